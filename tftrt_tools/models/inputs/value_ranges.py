"""What values fill a model's inputs: their ranges, to hold one set of rows against another, and integers in float inputs. Both tell of rows
that are scaled otherwise than in training. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    import numpy.typing as npt

# Both the largest value and the mean size of ordinary rows differ by less than this; of a few rows alone they may differ by more.
_RATIO, _RATIO_OF_FEW, _FEW = 8.0, 64.0, 8
# Of so many values some are below zero, if any ever are as large as this share of the largest.
_MANY, _SHARE_BELOW = 1000, 0.25
# Kinds of sources (find.Found) whose numbers are text, or are scaled while they are read.
_UNTYPED = ("tables", "texts", "images", "random")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueRange(records.Record):
    """The values of an input. rms: root of the mean of their squares; rows, values: how many there were."""

    minimum: float
    maximum: float
    rms: float
    rows: int
    values: int

    @property
    def largest(self) -> float:
        """The largest |x|."""
        return max(abs(self.minimum), abs(self.maximum))

    def with_others(self, other: ValueRange) -> ValueRange:
        """The range of both sets of values together."""
        values = self.values + other.values
        rms = math.sqrt((self.rms**2 * self.values + other.rms**2 * other.values) / values)
        return ValueRange(
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            rms=rms,
            rows=self.rows + other.rows,
            values=values,
        )

    def text(self) -> str:
        """The range as messages show it."""
        return f"from {self.minimum:.4g} to {self.maximum:.4g}"


class Ranges:
    """The ranges of a signature's float inputs over batches of rows. found: {signature/input: ValueRange}."""

    def __init__(self) -> None:
        self.found: dict[str, ValueRange] = {}

    def add(self, signature: str, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add a batch; inputs that are no floats, and scalars, are left out."""
        for name, array in inputs.items():
            if array.dtype.kind != "f" or not array.ndim or not array.size:
                continue
            wide = array.astype("float64")
            measured = ValueRange(
                minimum=float(wide.min()),
                maximum=float(wide.max()),
                rms=math.sqrt(float((wide**2).mean())),
                rows=len(array),
                values=array.size,
            )
            key = f"{signature}/{name}"
            self.found[key] = self.found[key].with_others(measured) if key in self.found else measured


def combined(found: Iterable[Mapping[str, ValueRange]]) -> dict[str, ValueRange]:
    """The ranges of several sets of rows together."""
    together: dict[str, ValueRange] = {}
    for name, value_range in (item for each in found for item in each.items()):
        together[name] = together[name].with_others(value_range) if name in together else value_range
    return together


def read(data: Mapping[str, Any]) -> dict[str, ValueRange]:
    """Of a calibration's data record, {} where it has none (an older one) or none that can be read."""
    try:
        return {name: ValueRange.from_dict(value_range) for name, value_range in (data.get("ranges") or {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def differing(
    calibrated: Mapping[str, ValueRange], seen: Mapping[str, ValueRange], said: str = "--data"
) -> Iterator[str]:
    """A line on each input whose values differ in scale between calibration and other data. Args: said: the other data, for people."""
    for name, value_range in calibrated.items():
        other = seen.get(name)
        if other and (_scaled(value_range, other) or _shifted(value_range, other)):
            yield (
                f"{name}: the calibration's values go {value_range.text()} (RMS {value_range.rms:.3g}), those of {said} {other.text()} "
                f"(RMS {other.rms:.3g}): is one of them scaled differently?"
            )


def _scaled(one: ValueRange, other: ValueRange) -> bool:
    if not one.rms or not other.rms:
        return False
    ratio = _RATIO if min(one.rows, other.rows) >= _FEW else _RATIO_OF_FEW
    ratios = one.largest / other.largest, one.rms / other.rms
    return min(ratios) >= ratio or max(ratios) <= 1 / ratio


def _shifted(one: ValueRange, other: ValueRange) -> bool:
    """Whether one range has large negative values and the other has none."""
    if min(one.values, other.values) < _MANY or min(one.rows, other.rows) < _FEW:
        return False
    return any(
        first.minimum <= -_SHARE_BELOW * first.largest and second.minimum >= 0 and second.maximum > 0
        for first, second in ((one, other), (other, one))
    )


class Integers:
    """Float inputs that were filled with integers. Values of 0 and 1 alone, and -1, are no sign of a wrong scale."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, str, int, int]] = {}

    def add(self, array: npt.NDArray[Any], spec: InputSpec) -> None:
        """Look at an array of an input as it was given, before it gets the input's dtype."""
        if (
            array.dtype.kind not in "iu"
            or not array.ndim
            or not array.size
            or not spec.dtype.startswith(("float", "bfloat"))
        ):
            return
        low, high = int(array.min()), int(array.max())
        if spec.name in self._found:
            _, _, before, after = self._found[spec.name]
            low, high = min(low, before), max(high, after)
        self._found[spec.name] = (array.dtype.name, spec.dtype, low, high)

    def lines(self, kind: str = "") -> tuple[str, ...]:
        """One line for each input. Args: kind: of the source (find.Found). Numbers in a table are text: 3 is no integer there."""
        return tuple(
            f"integers ({given}) from {low} to {high} fill input {name}, which takes {ratio}: are they scaled as in training?"
            for name, (given, ratio, low, high) in self._found.items()
            if kind not in _UNTYPED and (low < -1 or high > 1)
        )
