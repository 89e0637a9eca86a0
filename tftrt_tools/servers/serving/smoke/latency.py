"""Latency statistics as pure functions."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import records
from tftrt_tools.base.statistics import ratios

# From this ratio of latencies on the model counts as faster; the frozen graph of a converted model gains a little even without an engine.
CLEARLY_FASTER = 1.2
# Up to this ratio it counts as not faster.
NOT_FASTER = 1.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio(records.Record):
    """How many times as fast the second model is as the first."""

    # Median of the first over the median of the second.
    value: float = records.field(digits=6)
    # The confidence interval of the ratio.
    low: float = records.field(digits=6)
    high: float = records.field(digits=6)
    # Medians, seconds.
    first: float = records.field(digits=6)
    second: float = records.field(digits=6)
    # Blocks of calls.
    blocks: int


def ratio(blocks: npt.ArrayLike, confidence: float = 0.95, seed: int = 0) -> Ratio:
    """Compare the latencies of two models that were called in turn.

    Args: blocks: float (N, 2), seconds of the first and the second in each block of calls. confidence: of the interval.
    Returns: Ratio, the interval by the bootstrap over whole blocks, so that a disturbance of both in a block stays together; it is
      longer where neighbouring blocks are alike (base.statistics.dependence). Raises: ValueError for fewer than two blocks.
    """
    times = np.asarray(blocks, float)
    if times.ndim != 2 or times.shape[1] != 2 or len(times) < 2:
        raise ValueError("a ratio needs two columns and two blocks or more")
    measured, (first, second) = ratios.of_medians(times, 1 - confidence, seed), np.median(times, axis=0)
    return Ratio(
        value=measured.value,
        low=measured.low,
        high=measured.high,
        first=float(first),
        second=float(second),
        blocks=len(times),
    )


def p50(seconds: Sequence[float]) -> float | None:
    """The median, in the unit given; None for no values."""
    return float(np.median(seconds)) if len(seconds) else None
