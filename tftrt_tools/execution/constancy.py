"""Does an output show anything? One that is the same for every input is equal even in two models that have nothing in common. One that is
saturated, such as a softmax of inputs that are far too large, hides what rounding changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tftrt_tools.execution.run import Call

# Rows that differ by no more than this share of the largest value differ only by rounding.
_ROUNDING = 1e-6
# Fewer rows may all be classified without any doubt.
_LEAST_SATURATED = 32
_SATURATED = "saturated: 0 or 1 in all {rows} rows"


class Variation:
    """How an array varies over calls: over its elements, and from row to row."""

    def __init__(self) -> None:
        self._elements = self._rows = self._one_hot = 0
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
        self._one_hot += _one_hot(split)
        self._one_value = self._one_value and (not array.size or _alike(array, self._value))
        self._alike = self._alike and (not len(split) or split.shape[1:] == self._row.shape and _alike(split, self._row))

    @property
    def differs(self) -> bool:
        """Whether two rows differ."""
        return not self._alike

    @property
    def saturated(self) -> float:
        """The share of rows whose classes all have the score 0 or 1; 0 where there are too few rows to tell."""
        return self._one_hot / self._rows if self._rows >= _LEAST_SATURATED else 0.0

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


def _one_hot(rows: npt.NDArray[Any]) -> int:
    """How many rows hold classes (in the last dimension) of which one has 1 and all others 0."""
    if rows.dtype.kind != "f" or rows.ndim < 2 or rows.shape[-1] < 2 or not rows.size:
        return 0
    near = ((np.abs(rows) <= _ROUNDING) | (np.abs(rows - 1) <= _ROUNDING)).all(axis=-1) & (np.abs(rows.sum(axis=-1) - 1) <= _ROUNDING)
    return int(near.reshape(len(rows), -1).all(axis=1).sum())


def _alike(array: npt.NDArray[Any], one: npt.ArrayLike) -> bool:
    """Whether all of `array` equals `one` (which is broadcast), apart from the rounding of fractions."""
    one = np.asarray(one)
    if array.dtype.kind not in "fc" and array.dtype.name != "bfloat16":
        return bool(np.all(array == one))
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    array, one = array.astype(wide), one.astype(wide)
    same = (array == one) | np.isnan(array) & np.isnan(one)
    if same.all():
        return True
    finite = np.abs(one[np.isfinite(one)])
    fractions = bool(finite.size) and not np.all(finite == np.round(finite))
    if not fractions:
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.all(same | (np.abs(array - one) <= _ROUNDING * finite.max())))


def _shown(value: Any) -> str:
    if isinstance(value, bytes | str):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return repr(text if len(text) <= 20 else text[:20] + "…")
    return str(value) if isinstance(value, bool | np.bool_ | np.integer) else f"{complex(value):.6g}" if isinstance(
        value, np.complexfloating) else f"{float(value):.6g}"


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
        """Variation.saturated of an output."""
        return self._outputs[signature, output].saturated

    def constant(self, signature: str, output: str) -> str:
        """Variation.text of an output."""
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


def said(constants: dict[str, str]) -> str:
    """{output: Variation.text} in one line: "boxes and scores are 0 everywhere, counts is empty"."""
    groups: dict[str, list[str]] = {}
    for output, text in sorted(constants.items()):
        groups.setdefault(text, []).append(output)
    return ", ".join(f"{', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]} {'are' if len(names) > 1 else 'is'} {text}"
                     for text, names in groups.items())
