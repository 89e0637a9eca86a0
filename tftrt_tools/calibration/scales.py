"""From a tensor's histogram to its INT8 scale: scale = amax / 127, symmetric, where |x| above amax is clipped.

  max         amax = the largest |x|
  percentile  amax = the value that so many per cent of all |x| do not exceed
  mse         amax with the least mean squared error of rounding and clipping
  entropy     amax with the least Kullback-Leibler divergence of the quantized distribution from the original one
              (S. Migacz, "8-bit Inference with TensorRT", GTC 2017, and its public reimplementations)
"""

import dataclasses
import functools

import numpy as np

from tftrt_tools.calibration.methods import PERCENTILE

# Signed symmetric 8 bits: -127 to 127.
LEVELS = 127


def scale(histogram, method="entropy", percentile=PERCENTILE):
    """The scale of a tensor: a real value is scale * integer.

    Args: histogram: histogram.Histogram; method: one of methods.METHODS; percentile: of all |x|, for that method, in (0, 100].

    Returns: float > 0, or None for a tensor without range (empty or all zero). Never above absmax / 127 but with entropy.
    """
    if not histogram.absmax:
        return None
    methods = {"entropy": entropy_amax, "percentile": functools.partial(percentile_amax, percentile=percentile), "mse": mse_amax,
               "max": lambda one: one.absmax}
    return methods[method](histogram) / LEVELS


def percentile_amax(histogram, percentile=PERCENTILE):
    """The least value that `percentile` per cent of |x| do not exceed, interpolated within its bin.

    Where so many values are exact zeros that it would be zero, the percentile is taken of the other values.
    """
    upper = histogram.edges()
    counts = histogram.counts[:upper.size].astype(np.float64)
    wanted = percentile / 100 * histogram.count
    if wanted <= histogram.zeros:
        wanted = histogram.zeros + percentile / 100 * (histogram.count - histogram.zeros)
    counts[0] -= histogram.zeros
    cumulative = histogram.zeros + np.cumsum(counts)
    index = min(int(np.searchsorted(cumulative, wanted)), upper.size - 1)
    lower = upper[index - 1] if index else 0.0
    share = 1.0 - (cumulative[index] - wanted) / counts[index]
    return min(float(lower + min(share, 1.0) * (upper[index] - lower)), histogram.absmax)


def mse_amax(histogram):
    """The amax with the least `squared_errors`, from absmax down to absmax / 1024, found to 1/1024 of an octave."""
    octaves = 0.0
    for candidates in (np.arange(10 * 64 + 1) / 64, np.arange(-16, 17) / 1024):
        candidates = np.maximum(octaves + candidates, 0.0)
        octaves = float(candidates[np.argmin(squared_errors(histogram, histogram.absmax * np.exp2(-candidates)))])
    return float(histogram.absmax * np.exp2(-octaves))


def squared_errors(histogram, amaxes):
    """Mean of (x - q(x))^2 for each amax, where q rounds to the nearest of the 127 multiples of amax / 127 and clips.

    Within a bin |x| counts as evenly spread; exact zeros have no error. With the step s and the sums over |x| above t, A0(t) of 1 and
    A1(t) of |x|, the sum of squares is that of x^2 less 2 s sum_k A1((k - 1/2) s) plus s^2 sum_k (2k - 1) A0((k - 1/2) s), k = 1..127.

    Args: amaxes: float64 [n], above 0. Returns: float64 [n].
    """
    upper = histogram.edges()
    lower = np.concatenate([[0.0], upper[:-1]])
    counts = histogram.counts[:upper.size].astype(np.float64)
    counts[0] -= histogram.zeros
    below0 = np.concatenate([[0.0], np.cumsum(counts)])
    below1 = np.concatenate([[0.0], np.cumsum(counts * (lower + upper) / 2)])
    total2 = np.sum(counts * (lower**2 + lower * upper + upper**2) / 3)
    steps = np.asarray(amaxes, np.float64)[:, None] / LEVELS
    k = np.arange(1, LEVELS + 1)
    bounds = np.minimum((k - 0.5) * steps, upper[-1])
    index = np.minimum((bounds / histogram.width).astype(np.intp), upper.size - 1)
    # The last bin has no length where absmax is its lower end.
    inside = (bounds - lower[index]) * (counts / np.where(upper > lower, upper - lower, 1.0))[index]
    above0 = below0[-1] - below0[index] - inside
    above1 = below1[-1] - below1[index] - inside * (lower[index] + bounds) / 2
    sums = total2 - 2 * steps[:, 0] * above1.sum(axis=1) + steps[:, 0]**2 * ((2 * k - 1) * above0).sum(axis=1)
    return np.maximum(sums, 0.0) / histogram.count


@dataclasses.dataclass(frozen=True)
class _Entropy:
    """What public descriptions of the entropy method leave open or differ in; the defaults are what TensorRT 8.5.3 does.

    bins: of the whole range; levels: of the quantized distribution.
    zeros: of the first bin: "keep", "drop" (the exact zeros; the rest stays), "empty" (the whole bin) or "next" (as many as the second).
    groups: of i bins to levels: "even" (level g begins at bin ceil(g i / levels)) or "floor" (each has i // levels bins, the last
      also the rest).
    support: which bins the candidate is expanded over: those with a "count" of their own or those of the "reference", whose last
      bin is non-empty when anything lies beyond.
    outliers: whether the candidate is normalised with ("all") or without ("inside") the values that it leaves out.
    tiny: least probability of the candidate where the reference has any; 0 makes the divergence infinite there.
    tie: divergences nearer than this to the least count as equal, in nats, and the last of them is taken. Values that fill few bins (the
      17 levels of a 4-bit image) have more than one i without any divergence, and rounding alone would choose between a range that holds
      them all and one that holds next to nothing.
    single: whether a candidate with one non-empty bin counts. Where all values lie far from zero, there is an i that holds the nearest of
      them alone: reference and candidate are then the same, with all values in one bin, and their divergence is nothing. TensorRT passes
      over it (seen in 38 tensors of an encoder).
    """

    bins: int = 2048
    levels: int = 128
    zeros: str = "next"
    groups: str = "even"
    support: str = "count"
    outliers: str = "inside"
    tiny: float = 0.0
    tie: float = 1e-9
    single: bool = False


def entropy_amax(histogram):
    """The amax of the entropy method: of TensorRT's bins (histogram.Histogram), (i + 1/2) for the i with the least `divergences`.

    It can lie above absmax, by half a bin or where i counts empty bins behind it: TensorRT's scales do.
    """
    return _entropy_amax(histogram, _Entropy())


def _entropy_amax(histogram, variant):
    counts = histogram.rebinned(variant.bins).astype(np.float64)
    if variant.zeros == "drop":
        counts[0] -= histogram.zeros
    elif variant.zeros == "empty":
        counts[0] = 0.0
    elif variant.zeros == "next":
        counts[0] = counts[1]
    if not counts.any():
        return histogram.absmax
    found = divergences(counts, variant)
    best = int(np.nonzero(found <= found.min() + variant.tie)[0][-1]) + variant.levels
    return (best + 0.5) * histogram.range / variant.bins


def divergences(counts, variant=_Entropy()):
    """KL(P_i || Q_i) in nats for each number of bins i = levels .. bins.

    P_i: the first i counts, everything beyond added to the last, normalised. Q_i: the first i counts alone, summed to `levels` values,
    each shared out evenly over its non-empty bins, normalised. With the sums S_g and the non-empty bins n_g of level g, all that
    depends on Q_i is sum_g P_g log(S_g / n_g), so no candidate is ever written out.

    Args: counts: float64 [bins]. Returns: float64 [bins - levels + 1]; inf where Q is zero and P is not, and where it does not count.
    """
    starts = _level_starts(variant.bins, variant.levels, variant.groups)
    ends = np.arange(variant.levels, variant.bins + 1)
    total = counts.sum()
    inside = np.concatenate([[0.0], np.cumsum(counts)])
    filled = np.concatenate([[0], np.cumsum(counts > 0)])
    beyond = np.maximum(total - inside[ends], 0.0)
    beyond[-1] = 0.0
    last = counts[ends - 1]
    # The levels of Q ...
    sums, sizes = np.diff(inside[starts], axis=1), np.diff(filled[starts], axis=1)
    if variant.support == "reference":
        sizes[:, -1] += (last == 0) & (beyond > 0)
    # ... and the reference's share in each: that of Q's own bins, and of what lies beyond, all in the last bin.
    mass = inside[ends] + (beyond if variant.outliers == "all" else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q = np.log(np.where(sizes > 0, sums / np.maximum(sizes, 1), 0.0) / np.where(mass > 0, mass, 1.0)[:, None])
        floor = np.log(variant.tiny) if variant.tiny else -np.inf
        log_q = np.maximum(log_q, floor)
        own = np.where(sums > 0, sums * log_q, 0.0).sum(axis=1)
        last_log_q = np.where((last > 0) | (variant.support == "reference"), log_q[:, -1], floor)
        own += np.where(beyond > 0, beyond * last_log_q, 0.0)
    entropy = np.concatenate([[0.0], np.cumsum(_x_log_x(counts))])[ends - 1] + _x_log_x(last + beyond)
    found = entropy / total - np.log(total) - own / total
    return found if variant.single else np.where(filled[ends] > 1, found, np.inf)


def _x_log_x(x):
    return x * np.log(np.where(x > 0, x, 1.0))


@functools.cache
def _level_starts(bins, levels, groups):
    """For each i = levels .. bins: where each level begins, and i. Returns: intp [bins - levels + 1, levels + 1]."""
    ends = np.arange(levels, bins + 1)[:, None]
    level = np.arange(levels + 1)[None, :]
    starts = -(-level * ends // levels) if groups == "even" else level * (ends // levels)
    starts[:, -1] = ends[:, 0]
    return starts.astype(np.intp)
