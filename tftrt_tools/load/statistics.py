"""Statistics of a run, as pure functions: percentiles with a stated confidence, the warm-up rule, rates, histograms.

Confidence of a percentile. A request is "over" a bound with the unknown probability q. If q were larger than 1 - p, that is if the p-th
percentile were above the bound, then at most t of n requests would be over it with a probability of at most

    P[X <= t],  X ~ Binomial(n, 1 - p).

Where that is 1 - c or less, the percentile is below the bound with confidence c. This is the early-stopping rule of MLPerf's LoadGen
(mlcommons/inference, loadgen/early_stopping.cc; it writes the sum as the regularised incomplete beta function I_p(n - t, t + 1), which is
the same by DLMF 8.17.5) with its tolerance d = 0. Requests are taken as independent; a stall that hits many in a row makes them less so.
"""

import dataclasses
import functools
import math

import numpy as np

CONFIDENCE = 0.99
# Nanoseconds: 1 us to one hour, three significant decimal digits.
_LOWEST, _HIGHEST, _DIGITS = 1_000, 3_600_000_000_000, 3
_FEWEST_OF_A_THIRD = 4


@functools.lru_cache(4096)
def passing(over, percentile, confidence=CONFIDENCE):
    """Requests needed, when `over` of them are over the bound, to say with `confidence` that the percentile is below it.

    Args: over: int >= 0. percentile: share in (0, 1), such as 0.99. Returns: int, the over ones included.
    """
    _check_shares(percentile, confidence)

    def enough(count):
        return _at_most(over, count, 1 - percentile) <= 1 - confidence

    low, high = over, max(2 * over, 1)
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def min_samples(percentile, confidence=CONFIDENCE):
    """Requests needed before a percentile is reported: LoadGen's rule, in which one request may be over the estimate.

    Returns: int; 64 for 0.9, 130 for 0.95, 662 for 0.99 and 6636 for 0.999 at a confidence of 0.99.
    """
    return passing(1, percentile, confidence)


@dataclasses.dataclass(frozen=True)
class Percentile:
    """percentile: share, such as 0.99. value: in the unit of the samples, or None where there are too few. upper: the percentile of the
    whole population is below this with `confidence`, or None. count: samples; needed: the count that a value asks for."""

    percentile: float
    value: float | None
    upper: float | None
    count: int
    needed: int
    confidence: float

    def to_dict(self):
        return dataclasses.asdict(self)


def percentile(samples, share, confidence=CONFIDENCE):
    """A percentile by nearest rank (the smallest sample that at least `share` of them do not exceed), with its upper bound.

    The bound is LoadGen's estimate: with n samples, the largest t for which `passing(t, share)` is at most n; the t - 1 highest are left
    out and the next one is the bound.

    Args: samples: 1-D array of numbers. share: in (0, 1). Returns: Percentile; without a value where n < min_samples.
    """
    samples, needed = np.asarray(samples), min_samples(share, confidence)
    count = samples.size
    if count < needed:
        return Percentile(share, None, None, count, needed, confidence)
    over = _most_over(count, share, confidence)
    rank, bound = max(0, math.ceil(share * count - 1e-9) - 1), count - over
    ordered = np.partition(samples, sorted({rank, bound}))
    return Percentile(share, ordered[rank].item(), ordered[bound].item(), count, needed, confidence)


def decided(over, count, share, confidence=CONFIDENCE):
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


def mean_decided(samples, limit, confidence=CONFIDENCE):
    """Whether the mean of what the samples are drawn from is below `limit`: True, False, or None for "not known yet".

    By the one-sided confidence bounds of Student's t on the plain values, mean ± t * s / sqrt(n): True where the upper one is below the
    limit, False where the lower one is above it. Latencies are skewed to the right, for which these bounds are too narrow with few
    samples: with fewer than 64, as many as a p90 needs, it stays None. Samples without any spread are decided by their value.

    Args: samples: 1-D array of numbers. limit: in their unit.
    """
    from scipy import special

    samples = np.asarray(samples, float)
    count = samples.size
    if count < min_samples(0.9, confidence):
        return None
    reach = float(special.stdtrit(count - 1, confidence)) * samples.std(ddof=1) / math.sqrt(count)
    if samples.mean() + reach < limit:
        return True
    return False if samples.mean() - reach > limit else None


@dataclasses.dataclass(frozen=True)
class Window:
    """A stretch of a run. rate: requests done a second. latency_ns: their median, NaN for none."""

    rate: float
    latency_ns: float


def windows(done_ns, latency_ns, start_ns, end_ns, length_ns):
    """Cut [start, end) into windows of `length_ns`; a shorter rest is left out. Args: two int64 [n] arrays, in any order. Returns: list of
    Window."""
    count = int((end_ns - start_ns) // length_ns)
    done_ns, latency_ns = np.asarray(done_ns), np.asarray(latency_ns)
    place = (done_ns - start_ns) // length_ns
    found = []
    for number in range(count):
        inside = latency_ns[place == number]
        found.append(Window(inside.size / length_ns * 1e9, float(np.median(inside)) if inside.size else math.nan))
    return found


def stable(found, last=3, tolerance=0.1):
    """The warm-up rule: in the `last` windows both the rate and the median latency stay within `tolerance`, which is largest / smallest
    <= 1 + tolerance (as perf_analyzer judges its windows). Windows without a request, and fewer than `last`, are not stable."""
    recent = found[-last:]
    if len(recent) < last:
        return False
    for values in ([one.rate for one in recent], [one.latency_ns for one in recent]):
        if not min(values) > 0 or max(values) > min(values) * (1 + tolerance):
            return False
    return True


def rate(done_ns, length_ns):
    """Requests done a second inside [0, length). Args: done_ns: int64 [n], from the start. Returns: float, 0 for an empty stretch."""
    if length_ns <= 0:
        return 0.0
    done_ns = np.asarray(done_ns)
    return float(((done_ns >= 0) & (done_ns < length_ns)).sum() / length_ns * 1e9)


def falling_behind(scheduled_ns, latency_ns):
    """Does a backlog grow? Seconds by which the latencies grow for each second of the schedule: the median of its last third of requests
    against that of the first. A server that does 1 / (1 + x) of what is offered makes it x.

    Args: two int64 arrays [n], in any order. Returns: float; 0 where the quartiles of the two thirds meet, which noise makes them do, and
    for fewer than 12 requests.
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


def histogram(latency_ns):
    """An HdrHistogram of nanoseconds (1 us to 1 h, 3 significant digits; values outside are set to the nearest end). It can be encoded,
    and merged with those of other processes, in HdrHistogram's own format."""
    from hdrh.histogram import HdrHistogram

    made = HdrHistogram(_LOWEST, _HIGHEST, _DIGITS)
    values, counts = np.unique(np.clip(np.asarray(latency_ns, np.int64), _LOWEST, _HIGHEST), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        made.record_value(value, count)
    return made


def _most_over(count, share, confidence):
    """The largest t with passing(t) <= count; it exists where count >= passing(1)."""
    low, high = 1, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at_most(middle, count, 1 - share) <= 1 - confidence else (low, middle)
    return low


def _at_most(over, count, probability):
    """P[X <= over] for X ~ Binomial(count, probability)."""
    from scipy import special

    return float(special.bdtr(over, count, probability)) if over < count else 1.0


def _check_shares(percentile, confidence):
    if not (0 < percentile < 1 and 0 < confidence < 1):
        raise ValueError(f"a percentile ({percentile}) and a confidence ({confidence}) are shares between 0 and 1")
