"""What the numbers of an output mean, which decides how they are judged: given by --output_kind, or recognised.

--output_kind=classes:ids;serving_default/boxes:boxes

values         numbers; what a float output is taken for
ids            classes or tokens by their numbers, in floats or integers: right or wrong, never near
scores         confidences: compared with a threshold, or ranked
boxes          corners of rectangles, four numbers in the last dimension: [y1, x1, y2, x2] or [x1, y1, x2, y2]
probabilities  of classes in the last dimension
masks          probabilities or scores of classes in the last dimension, for each pixel
texts          strings that are compared word by word
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors

VALUES, IDS, SCORES, BOXES, PROBABILITIES, MASKS, TEXTS = (
    "values",
    "ids",
    "scores",
    "boxes",
    "probabilities",
    "masks",
    "texts",
)
# What --output_kind takes.
KINDS = (VALUES, IDS, SCORES, BOXES, PROBABILITIES, MASKS, TEXTS)
# The kind of integers, booleans and strings without a given kind; the kind of boxes, scores and classes that are compared together.
EXACT, DETECTIONS = "exact", "detections"
_EXAMPLE = f"write --output_kind='OUTPUT:KIND;SIGNATURE/OUTPUT:KIND' with one of {', '.join(KINDS)}"
_ID_NAME = re.compile(
    r"class|categor|label|(^|[_/.])ids?($|[_/.\d])|index|indices|num|count|token|argmax", re.IGNORECASE
)
# More different numbers than this are measurements that happen to be whole.
_MOST_IDS = 10_000


def parse(texts: Iterable[str]) -> dict[str, str]:
    """Parse --output_kind, given once or more. Returns: {"output" or "signature/output": kind}. Raises: UsageError."""
    kind_of: dict[str, str] = {}
    for item in (part.strip() for text in texts for part in text.split(";")):
        if not item:
            continue
        name, colon, kind = item.rpartition(":")
        name, kind = name.strip(), kind.strip().lower()
        if not colon or not name:
            raise errors.UsageError(f"--output_kind: {item!r} is not of the form OUTPUT:KIND", _EXAMPLE)
        if kind not in KINDS:
            raise errors.UsageError(f"--output_kind: {kind!r} is no kind of output", _EXAMPLE)
        if kind_of.setdefault(name, kind) != kind:
            raise errors.UsageError(f"--output_kind: {name!r} is said to be {kind_of[name]} and {kind}", "say it once")
    return kind_of


def check(given: Mapping[str, str], outputs: Iterable[tuple[str, str]]) -> None:
    """Refuse kinds for outputs that do not exist. Args: given: what `parse` returned. outputs: (signature, output). Raises: UsageError."""
    outputs = list(outputs)
    whole = [f"{signature}/{output}" for signature, output in outputs]
    unknown = [name for name in given if name not in (*whole, *(output for _, output in outputs))]
    if unknown:
        raise errors.UsageError(f"--output_kind: no output {unknown[0]!r}", "outputs here: " + ", ".join(whole))


def said(given: Mapping[str, str], signature: str, output: str) -> str:
    """The kind that the user gave for an output, or ""."""
    return given.get(f"{signature}/{output}", given.get(output, ""))


def check_fits(kind: str, name: str, array: npt.NDArray[Any]) -> None:
    """Refuse a kind that does not fit the answer. Raises: UsageError."""
    type_name = "string" if array.dtype.kind in "OSU" else array.dtype.name
    needs = {
        TEXTS: (array.dtype.kind in "OSU", "texts are strings"),
        IDS: (array.dtype.kind in "fiuV", "ids are numbers"),
    }
    fits, why = needs.get(kind, (array.dtype.kind in "f" or type_name == "bfloat16", f"{kind} are floats"))
    if kind == BOXES and fits:
        fits, why = array.ndim > 1 and array.shape[-1] == 4, "boxes have four numbers in the last dimension"
    if kind in (PROBABILITIES, MASKS) and fits:
        fits, why = array.ndim > 1, f"{kind} have the classes in the last dimension"
    if not fits:
        shape = ",".join(map(str, array.shape))
        raise errors.UsageError(
            f"--output_kind: {name} is {type_name}[{shape}], and {why}", "say another kind, or leave it out"
        )


class Ids:
    """Finds out whether a float output holds ids: whole numbers in both answers, not too many different ones, and a telling name or
    enough of them."""

    def __init__(self, name: str) -> None:
        self._named, self.possible = bool(_ID_NAME.search(name)), True
        self._seen: set[float] = set()

    def add(self, *arrays: npt.NDArray[Any]) -> None:
        """Args: arrays: of the reference and the answer, one call, real numbers."""
        for array in arrays if self.possible else ():
            self.possible = bool(
                np.all(np.isfinite(array)) and np.all(array == np.round(array)) and np.all(array >= -1)
            )
            if self.possible:
                self._seen |= set(np.unique(array).tolist())
                self.possible = len(self._seen) <= _MOST_IDS

    @property
    def found(self) -> bool:
        """Whether the numbers are ids. Equal numbers are none: zeros are whole. 0 and 1 without a telling name are a mask or clipped."""
        return self.possible and len(self._seen) > (1 if self._named else 2)
