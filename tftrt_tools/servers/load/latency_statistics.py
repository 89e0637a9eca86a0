"""Statistics of a run, as pure functions: percentiles with a stated confidence, the warm-up rule, rates, histograms.

Confidence of a percentile. A request is "over" a bound with the unknown probability q. If q were larger than 1 - p, that is if the p-th
percentile were above the bound, then at most t of n requests would be over it with a probability of at most

    P[X <= t],  X ~ Binomial(n, 1 - p).

Where that is 1 - c or less, the percentile is below the bound with confidence c. This is the early-stopping rule of MLPerf's LoadGen
(mlcommons/inference, loadgen/early_stopping.cc; it writes the sum as the regularised incomplete beta function I_p(n - t, t + 1), which is
the same by DLMF 8.17.5) with its tolerance d = 0. Requests are assumed to be independent; a stall that delays many in a row makes them
less so.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import records
from tftrt_tools.base.statistics import averages

# Nanoseconds, int64 [n].
Instants: typing.TypeAlias = npt.NDArray[np.int64]
CONFIDENCE = 0.99
# Nanoseconds: 1 us to one hour, three significant decimal digits.
_LOWEST, _HIGHEST, _DIGITS = 1_000, 3_600_000_000_000, 3
_FEWEST_OF_A_THIRD = 4


@functools.lru_cache(4096)
def passing(over: int, percentile: float, confidence: float = CONFIDENCE) -> int:
    """The number of requests needed to say with `confidence` that the percentile is below a bound, if `over` of them are over it.

    Args: over: int >= 0. percentile: share in (0, 1), such as 0.99. Returns: int, the over ones included.
    """
    _check_shares(percentile, confidence)

    def enough(count: int) -> bool:
        return _at_most(over, count, 1 - percentile) <= 1 - confidence

    low, high = over, max(2 * over, 1)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def min_samples(percentile: float, confidence: float = CONFIDENCE) -> int:
    """Requests needed before a percentile is reported: LoadGen's rule, in which one request may be over the estimate.

    Returns: int; 64 for 0.9, 130 for 0.95, 662 for 0.99 and 6636 for 0.999 at a confidence of 0.99.
    """
    return passing(1, percentile, confidence)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Percentile(records.Record):
    """A percentile, and how sure it is."""

    # Share, such as 0.99.
    percentile: float
    # In the unit of the samples; None where there are too few.
    value: float | None
    # With `confidence` the percentile of the whole population is below this; None where there are too few samples.
    upper: float | None
    # Number of samples.
    count: int
    # Number of samples that a value needs.
    needed: int
    confidence: float


def percentile(samples: npt.ArrayLike, share: float, confidence: float = CONFIDENCE) -> Percentile:
    """A percentile by nearest rank (the smallest sample that at least `share` of them do not exceed), with its upper bound.

    The bound is LoadGen's estimate: with n samples, the largest t for which `passing(t, share)` is at most n; the t - 1 highest are left
    out and the next one is the bound.

    Args: samples: 1-D array of numbers. share: in (0, 1). Returns: Percentile; without a value where n < min_samples.
    """
    values, needed = np.asarray(samples), min_samples(share, confidence)
    count = values.size
    if count < needed:
        return Percentile(percentile=share, value=None, upper=None, count=count, needed=needed, confidence=confidence)
    over = _most_over(count, share, confidence)
    rank, bound = int(averages.nearest_places(count, share)), count - over
    ordered = np.partition(values, sorted({rank, bound}))
    return Percentile(
        percentile=share,
        value=ordered[rank].item(),
        upper=ordered[bound].item(),
        count=count,
        needed=needed,
        confidence=confidence,
    )


def decided(over: int, count: int, share: float, confidence: float = CONFIDENCE) -> bool | None:
    """Whether a percentile is below a bound that `over` of `count` requests are over: True, False, or None for "not known yet".

    False by the other tail of the same binomial: P[X >= over] <= 1 - c for X ~ Binomial(count, 1 - share).
    """
    _check_shares(share, confidence)
    if not count:
        return None
    if _at_most(over, count, 1 - share) <= 1 - confidence:
        return True
    if over and 1 - _at_most(over - 1, count, 1 - share) <= 1 - confidence:
        return False
    return None


def mean_decided(samples: npt.ArrayLike, limit: float, confidence: float = CONFIDENCE) -> bool | None:
    """Whether the mean of what the samples are drawn from is below `limit`: True, False, or None for "not known yet".

    By the one-sided confidence bounds of Student's t on the plain values, mean ± t * s / sqrt(n): True where the upper one is below the
    limit, False where the lower one is above it. Latencies are skewed to the right, for which these bounds are too narrow with few
    samples: with fewer than 64, as many as a p90 needs, it stays None. Samples without any spread are decided by their value.

    Args: samples: 1-D array of numbers. limit: in their unit.
    """
    from scipy import special

    values = np.asarray(samples, float)
    count = values.size
    if count < min_samples(0.9, confidence):
        return None
    reach = float(special.stdtrit(count - 1, confidence)) * values.std(ddof=1) / math.sqrt(count)
    if values.mean() + reach < limit:
        return True
    return False if values.mean() - reach > limit else None


@dataclasses.dataclass(frozen=True)
class Window:
    """A stretch of a run. rate: requests done a second. latency_ns: their median, NaN for none."""

    rate: float
    latency_ns: float


def windows(done_ns: Instants, latency_ns: Instants, start_ns: int, end_ns: int, length_ns: int) -> list[Window]:
    """Cut [start, end) into windows of `length_ns`; a shorter rest is left out. Args: two arrays [n], in any order."""
    count = int((end_ns - start_ns) // length_ns)
    place = (done_ns - start_ns) // length_ns
    kept = []
    for number in range(count):
        inside = latency_ns[place == number]
        kept.append(Window(inside.size / length_ns * 1e9, float(np.median(inside)) if inside.size else math.nan))
    return kept


def stable(found: Sequence[Window], last: int = 3, tolerance: float = 0.1) -> bool:
    """The warm-up rule: in the `last` windows both the rate and the median latency stay within `tolerance`, which is largest / smallest
    <= 1 + tolerance (as perf_analyzer judges its windows). Windows without a request, and fewer than `last`, are not stable."""
    recent = found[-last:]
    if len(recent) < last:
        return False
    for values in ([window.rate for window in recent], [window.latency_ns for window in recent]):
        if not min(values) > 0 or max(values) > min(values) * (1 + tolerance):
            return False
    return True


def rate(done_ns: npt.ArrayLike, length_ns: int) -> float:
    """Requests done a second inside [0, length). Args: done_ns: int64 [n], from the start. Returns: float, 0 for an empty stretch."""
    if length_ns <= 0:
        return 0.0
    done = np.asarray(done_ns)
    return float(((done >= 0) & (done < length_ns)).sum() / length_ns * 1e9)


def falling_behind(scheduled_ns: Instants, latency_ns: Instants) -> float:
    """Does a backlog grow? Seconds by which the latencies grow for each second of the schedule: the median of the last third of requests
    against that of the first. A server that answers 1 / (1 + x) of the offered requests makes it x.

    Args: two arrays [n], in any order. Returns: float; 0 if the quartiles of the two thirds overlap, because noise can cause such a
    difference, and for fewer than 12 requests.
    """
    third = len(scheduled_ns) // 3
    if third < _FEWEST_OF_A_THIRD:
        return 0.0
    order = np.argsort(scheduled_ns, kind="stable")
    first, last = order[:third], order[-third:]
    apart = np.median(scheduled_ns[last]) - np.median(scheduled_ns[first])
    if not apart or np.quantile(latency_ns[last], 0.25) <= np.quantile(latency_ns[first], 0.75):
        return 0.0
    return float((np.median(latency_ns[last]) - np.median(latency_ns[first])) / apart)


def histogram(latency_ns: npt.ArrayLike) -> typing.Any:
    """An HdrHistogram of nanoseconds (1 us to 1 h, 3 significant digits; values outside are set to the nearest end). It can be encoded,
    and merged with those of other processes, in HdrHistogram's own format."""
    from hdrh.histogram import HdrHistogram

    filled = HdrHistogram(_LOWEST, _HIGHEST, _DIGITS)
    values, counts = np.unique(np.clip(np.asarray(latency_ns, np.int64), _LOWEST, _HIGHEST), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        filled.record_value(value, count)
    return filled


def _most_over(count: int, share: float, confidence: float) -> int:
    """The largest t with passing(t) <= count; it exists where count >= passing(1)."""
    low, high = 1, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at_most(middle, count, 1 - share) <= 1 - confidence else (low, middle)
    return low


def _at_most(over: int, count: int, probability: float) -> float:
    """P[X <= over] for X ~ Binomial(count, probability)."""
    from scipy import special

    return float(special.bdtr(over, count, probability)) if over < count else 1.0


def _check_shares(percentile: float, confidence: float) -> None:
    if not (0 < percentile < 1 and 0 < confidence < 1):
        raise ValueError(f"a percentile ({percentile}) and a confidence ({confidence}) are shares between 0 and 1")
