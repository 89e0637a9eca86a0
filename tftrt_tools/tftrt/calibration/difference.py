"""Two calibrations compared, tensor by tensor.

Ratios are B's scale to A's. Over the tensors that both have, with l = log2(B / A):
  median = 2^median(l)    spread = standard deviation of l (of the population, in octaves: 1 is a factor of 2)
  p5, p95 = 2^(5th, 95th percentile of l, linear between the nearest two)    worst = the tensor with the largest |l|
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tftrt_tools.base import records
from tftrt_tools.tftrt.calibration.table import is_numbered

if TYPE_CHECKING:
    from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable


@dataclasses.dataclass(frozen=True)
class TensorDifference(records.Record):
    """A tensor in two calibrations. a, b: its scales; None where one side has none."""

    written_too: ClassVar[tuple[str, ...]] = ("ratio",)

    engine: str
    tensor: str
    a: float | None
    b: float | None

    @property
    def ratio(self) -> float | Any:
        """b / a, or None."""
        return None if self.a is None or self.b is None else self.b / self.a


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary(records.Record):
    """Figures over all tensors that both have; the module's docstring has the formulas."""

    # The number of tensors that both have, and how many of them are equal, bit by bit.
    tensors: int
    equal: int
    # The median of the ratios.
    median: float
    # The standard deviation of their logarithms, in octaves.
    spread: float
    # Percentiles of the ratios.
    p5: float
    p95: float
    # The tensor whose ratio is the furthest from 1.
    worst: TensorDifference


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference(records.Record):
    """Two calibrations compared."""

    document: ClassVar[str] = "calibration_difference"
    written_too: ClassVar[tuple[str, ...]] = ("summary",)
    written_first: ClassVar[tuple[str, ...]] = ("kind", "a", "b", "equal", "notes", "summary")

    # The files that were compared.
    a: str
    b: str
    # Whether both have the same tables for the same engines.
    equal: bool
    # Differences outside of the tensors, and how engines were paired; lines.
    notes: tuple[str, ...]
    # The tensors of all paired engines.
    tensors: tuple[TensorDifference, ...]

    @property
    def summary(self) -> Summary | None:
        """A Summary, or None where the two have no tensor in common."""
        both = [tensor for tensor in self.tensors if tensor.ratio is not None]
        if not both:
            return None
        logs = [math.log2(scale.ratio) for scale in both]
        cuts = statistics.quantiles(logs, n=20, method="inclusive") if len(logs) > 1 else [logs[0]] * 19
        worst = max(both, key=lambda scale: abs(math.log2(scale.ratio)))
        return Summary(
            tensors=len(both),
            equal=sum(scale.a == scale.b for scale in both),
            median=2 ** statistics.median(logs),
            spread=statistics.pstdev(logs),
            p5=2 ** cuts[0],
            p95=2 ** cuts[-1],
            worst=worst,
        )


def compare(a: Calibration, b: Calibration, name_a: str = "A", name_b: str = "B") -> Difference:
    """Compare two Calibrations. Equal are those with the same tables for the same engines.

    Tensors that are named after a layer's number are compared only if both tables number alike. Builds for other shapes or the other
    batch mode have other layers, so a number means another tensor there.

    Returns: Difference.
    """
    tensors: list[TensorDifference] = []
    notes: list[str] = []
    equal = True
    for left, right, how in _pairs(a.engines, b.engines):
        engine = (left or right).label
        if how:
            notes.append(f"{engine}: {how}")
        if left is None or right is None:
            notes.append(f"{engine}: only in {name_a if left else name_b}")
        elif left.table.header != right.table.header:
            notes.append(f"{engine}: {left.table.header} in {name_a}, {right.table.header} in {name_b}")
        equal = equal and left is not None and right is not None and left.table == right.table
        scales = [side.table.scales if side else {} for side in (left, right)]
        if left and right and not _numbered_alike(left, right):
            counts = [sum(map(is_numbered, scale)) for scale in scales]
            scales = [{name: scale for name, scale in table.items() if not is_numbered(name)} for table in scales]
            notes.append(
                f"{engine}: {counts[0]} tensors in {name_a} and {counts[1]} in {name_b} are named after layers' numbers, and are "
                "not compared: the tables have other numbers, because they were made for other shapes or another batch mode"
            )
        tensors += [
            TensorDifference(engine, name, scales[0].get(name), scales[1].get(name))
            for name in {**scales[0], **scales[1]}
        ]
    return Difference(a=name_a, b=name_b, equal=equal, tensors=tuple(tensors), notes=tuple(notes))


def _numbered_alike(left: EngineTable, right: EngineTable) -> bool:
    """Whether the numbered names of one EngineTable are among the other's; a table may omit tensors without a note."""
    own, others = (
        {name for name in (*engine.table.scales, *dict(engine.left_out)) if is_numbered(name)}
        for engine in (left, right)
    )
    return own <= others or others <= own


def _pairs(
    a: Sequence[EngineTable], b: Sequence[EngineTable]
) -> list[tuple[EngineTable | Any, EngineTable | Any, str]]:
    """[(EngineTable or None, EngineTable or None, how they were paired where it is not by graph)]."""
    left, right = list(a), list(b)
    pairs: list[tuple[EngineTable | Any, EngineTable | Any, str]] = []
    keys: tuple[tuple[Callable[[EngineTable], object], str], ...] = (
        (lambda engine: engine.segment, ""),
        (lambda engine: engine.engine, "engines of one name, made for different graphs"),
    )
    for key, how in keys:
        for candidate in list(left):
            other = next((other for other in right if key(candidate) and key(candidate) == key(other)), None)
            if other:
                left.remove(candidate)
                right.remove(other)
                pairs.append((candidate, other, how))
    if len(left) == len(right) == 1:
        segments = left[0].segment and right[0].segment
        how = f"compared with {right[0].label} by tensor names alone, made for different graphs" if segments else ""
        pairs.append((left.pop(), right.pop(), how))
    return pairs + [(engine, None, "") for engine in left] + [(None, engine, "") for engine in right]
