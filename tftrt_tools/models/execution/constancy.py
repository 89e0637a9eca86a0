"""Does an output show anything? One that is the same for every input is equal even in two models that have nothing in common. One that is
saturated, such as a softmax of inputs that are far too large, hides what rounding changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Call

# Rows that differ by no more than this share of the largest value differ only by rounding.
_ROUNDING = 1e-6
# Fewer rows may all be classified without any doubt.
_LEAST_SATURATED = 32
# From this share of saturated rows on, the rest shows little.
MOSTLY_SATURATED = 0.95
_SATURATED = "saturated: 0 or 1 in all {rows} rows"


class Variation:
    """How an array varies over calls: over its elements, and from row to row."""

    def __init__(self) -> None:
        self._elements = self._rows = self._certain = 0
        self._inexact = False
        self._value: Any = None
        self._row: Any = None
        self._one_value = self._alike = True

    def add(self, array: npt.NDArray[Any], rows: int) -> None:
        """Args: array: of any dtype; rows: of the call. If its first dimension is another, the whole array is one row."""
        array = np.asarray(array)
        self._elements += array.size
        split = array if array.ndim and len(array) == rows else array[None]
        if self._row is None and len(split):
            self._row = split[:1].reshape(split.shape[1:])
        if self._value is None and array.size:
            self._value = array.reshape(-1)[0]
        self._rows += len(split)
        certain, inexact = _certain(split)
        self._certain += certain
        self._inexact = self._inexact or inexact
        self._one_value = self._one_value and (not array.size or _alike(array, self._value))
        self._alike = self._alike and (
            not len(split) or split.shape[1:] == self._row.shape and _alike(split, self._row)
        )

    @property
    def differs(self) -> bool:
        """Whether any two rows differ."""
        return not self._alike

    @property
    def repeated(self) -> int:
        """The number of rows if all are equal; 0 where two differ, or where there is only one."""
        return self._rows if self._alike and self._rows > 1 else 0

    @property
    def saturated(self) -> float:
        """The share of rows whose classes all have the score 0 or 1; 0 where there are too few rows to tell."""
        return self._certain / self._rows if self._rows >= _LEAST_SATURATED and self._inexact else 0.0

    def text(self, inputs_differ: bool) -> str:
        """Why it shows nothing, such as "0 everywhere", "the same for every input" or "empty"; "" if it shows something.

        Args: inputs_differ: whether any two rows of the inputs do. A single element is never called constant.
        """
        if not self._elements:
            return "empty"
        if self._one_value and self._elements > 1:
            return f"{_shown(self._value)} everywhere"
        if inputs_differ and self._rows > 1 and self._alike:
            return "the same for every input"
        return _SATURATED.format(rows=self._rows) if inputs_differ and self.saturated == 1 else ""


def _certain(rows: npt.NDArray[Any]) -> tuple[int, bool]:
    """(how many rows hold nothing but scores near 0 and 1, whether one of all scores is not exactly 0 or 1, or classes in the last
    dimension add up to 1). A mask has exactly 0 and 1; a softmax or sigmoid that is saturated only comes near."""
    if rows.dtype.kind != "f" or rows.ndim < 2 or not rows.size:
        return 0, False
    near = (np.abs(rows) <= _ROUNDING) | (np.abs(rows - 1) <= _ROUNDING)
    one_hot = rows.shape[-1] > 1 and bool((np.abs(rows.sum(axis=-1) - 1) <= _ROUNDING).all())
    return int(near.reshape(len(rows), -1).all(axis=1).sum()), one_hot or bool(((rows != 0) & (rows != 1)).any())


def _alike(array: npt.NDArray[Any], earlier: npt.ArrayLike) -> bool:
    """Whether all of `array` equals `earlier` (which is broadcast), apart from the rounding of fractions."""
    earlier = np.asarray(earlier)
    if array.dtype.kind not in "fc" and array.dtype.name != "bfloat16":
        return bool(np.all(array == earlier))
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    array, earlier = array.astype(wide), earlier.astype(wide)
    same = (array == earlier) | np.isnan(array) & np.isnan(earlier)
    if same.all():
        return True
    finite = np.abs(earlier[np.isfinite(earlier)])
    fractions = bool(finite.size) and not np.all(finite == np.round(finite))
    if not fractions:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all(same | (np.abs(array - earlier) <= _ROUNDING * finite.max())))


def _shown(value: bytes | str | SupportsFloat) -> str:
    if isinstance(value, bytes | str):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return repr(text if len(text) <= 20 else text[:20] + "…")
    return (
        str(value)
        if isinstance(value, bool | np.bool_ | np.integer)
        else f"{complex(value):.6g}"
        if isinstance(value, np.complexfloating)
        else f"{float(value):.6g}"
    )


class Watch:
    """Watches the calls of a verification: what each output of the original shows, given how the inputs vary."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[str, str], Variation] = {}
        self._outputs: dict[tuple[str, str], Variation] = {}

    def add(self, call: Call, answer: Mapping[str, npt.NDArray[Any]]) -> None:
        """Args: call: run.Call. answer: {output: array} of the original."""
        for found, arrays in ((self._inputs, call.inputs), (self._outputs, answer)):
            for name, array in arrays.items():
                found.setdefault((call.signature, name), Variation()).add(array, call.rows)

    def saturated(self, signature: str, output: str) -> float:
        """The share of saturated rows of an output (Variation.saturated)."""
        return self._outputs[signature, output].saturated

    def repeated(self, signature: str) -> int:
        """How many rows the inputs of a signature have, if they are all the same; 0 where any two differ."""
        repeats = [state.repeated for (name, _), state in self._inputs.items() if name == signature]
        return (
            max(repeats)
            if repeats and not any(state.differs for (name, _), state in self._inputs.items() if name == signature)
            else 0
        )

    def constant(self, signature: str, output: str) -> str:
        """Why an output shows nothing (Variation.text)."""
        differ = any(one.differs for (name, _), one in self._inputs.items() if name == signature)
        return self._outputs[signature, output].text(differ)

    def nothing(self, signature: str) -> str:
        """Why no output of a signature shows anything, in words; "" if one does."""
        texts = {output: self.constant(signature, output) for name, output in self._outputs if name == signature}
        return said(texts) if texts and all(texts.values()) else ""

    def findings(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """({signature of which no output shows anything: a line}, (a line on outputs that show nothing beside others that do, …)).

        A signature without inputs may be constant.
        """
        nothing, beside = {}, []
        for signature in dict.fromkeys(name for name, _ in self._outputs):
            texts = {output: self.constant(signature, output) for name, output in self._outputs if name == signature}
            constants = {output: text for output, text in texts.items() if text}
            if len(constants) == len(texts) and any(name == signature for name, _ in self._inputs):
                nothing[signature] = f"{signature}: nothing was shown: in the original {said(constants)}"
            elif constants:
                them = "it" if len(constants) == 1 else "them"
                beside.append(f"{signature}: {said(constants)} in the original, which shows nothing of {them}")
        return nothing, tuple(beside)

    def hints(self, signatures: Iterable[str]) -> Iterator[str]:
        """What to know of answers to the user's rows that show little, a line each. Args: signatures: whose inputs are the user's."""
        for signature in sorted(signatures):
            if repeated := self.repeated(signature):
                yield f"{signature}: all {repeated} rows of the data are the same, and show what one row shows"
            for output in (output for name, output in self._outputs if name == signature):
                share = self.saturated(signature, output)
                if MOSTLY_SATURATED <= share < 1:
                    yield (
                        f"{signature}: {output} is saturated, 0 or 1, in {share:.1%} of the rows, and shows little there: is the data "
                        "scaled as in training?"
                    )


def said(constants: dict[str, str]) -> str:
    """{output: Variation.text} in one line: "boxes and scores are 0 everywhere, counts is empty"."""
    groups: dict[str, list[str]] = {}
    for output, text in sorted(constants.items()):
        groups.setdefault(text, []).append(output)
    return ", ".join(
        f"{', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]} {'are' if len(names) > 1 else 'is'} {text}"
        for text, names in groups.items()
    )
