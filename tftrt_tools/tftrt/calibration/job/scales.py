"""From a tensor's histogram to its INT8 scale: scale = amax / 127, symmetric, where |x| above amax is clipped.

max         amax = the largest |x|
percentile  amax = the value that so many per cent of all |x| do not exceed
mse         amax with the least mean squared error of rounding and clipping
entropy     amax with the least Kullback-Leibler divergence of the quantized distribution from the original one
            (S. Migacz, "8-bit Inference with TensorRT", GTC 2017, and its public reimplementations)
"""

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import choices
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.calibration.methods import PERCENTILE

# Signed symmetric 8 bits: -127 to 127.
LEVELS = 127


def scale(histogram: Histogram, method: choices.Method = "entropy", percentile: float = PERCENTILE) -> float | None:
    """The scale of a tensor: a real value is scale * integer.

    Args: histogram: histogram.Histogram; method: one of methods.METHODS; percentile: of all |x|, for that method, in (0, 100].

    Returns: float > 0, or None for a tensor without range (empty or all zero). Never above absmax / 127 but with entropy.
    """
    if not histogram.absmax:
        return None
    methods: dict[choices.Method, Callable[[Histogram], float]] = {
        "entropy": entropy_amax,
        "percentile": functools.partial(percentile_amax, percentile=percentile),
        "mse": mse_amax,
        "max": lambda counts: counts.absmax,
    }
    return methods[method](histogram) / LEVELS


def percentile_amax(histogram: Histogram, percentile: float = PERCENTILE) -> float:
    """The least value that `percentile` per cent of |x| do not exceed, interpolated within its bin.

    If so many values are exact zeros that it would be zero, the percentile is of the other values.
    """
    upper = histogram.edges()
    counts = histogram.counts[: upper.size].astype(np.float64)
    count = percentile / 100 * histogram.count
    if count <= histogram.zeros:
        count = histogram.zeros + percentile / 100 * (histogram.count - histogram.zeros)
    counts[0] -= histogram.zeros
    cumulative = histogram.zeros + np.cumsum(counts)
    index = min(int(np.searchsorted(cumulative, count)), upper.size - 1)
    lower = upper[index - 1] if index else 0.0
    share = 1.0 - (cumulative[index] - count) / counts[index]
    return min(float(lower + min(share, 1.0) * (upper[index] - lower)), histogram.absmax)


def mse_amax(histogram: Histogram) -> float:
    """The amax with the least `squared_errors`, from absmax down to absmax / 1024, found to 1/1024 of an octave."""
    octaves = 0.0
    for candidates in (np.arange(10 * 64 + 1) / 64, np.arange(-16, 17) / 1024):
        candidates = np.maximum(octaves + candidates, 0.0)
        octaves = float(candidates[np.argmin(squared_errors(histogram, histogram.absmax * np.exp2(-candidates)))])
    return float(histogram.absmax * np.exp2(-octaves))


def squared_errors(histogram: Histogram, amaxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean of (x - q(x))^2 for each amax, where q rounds to the nearest of the 127 multiples of amax / 127 and clips.

    Within a bin |x| counts as evenly spread; exact zeros have no error. With the step s and the sums over |x| above t, A0(t) of 1 and
    A1(t) of |x|, the sum of squares is that of x^2 less 2 s sum_k A1((k - 1/2) s) plus s^2 sum_k (2k - 1) A0((k - 1/2) s), k = 1..127.

    Args: amaxes: float64 [n], above 0. Returns: float64 [n].
    """
    upper = histogram.edges()
    lower = np.concatenate([[0.0], upper[:-1]])
    counts = histogram.counts[: upper.size].astype(np.float64)
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
    sums = total2 - 2 * steps[:, 0] * above1.sum(axis=1) + steps[:, 0] ** 2 * ((2 * k - 1) * above0).sum(axis=1)
    result: npt.NDArray[np.float64] = np.maximum(sums, 0.0) / histogram.count
    return result


# Of the entropy method: bins of the whole range, and levels of the quantized distribution.
BINS, QUANTIZED = 2048, 128
# Divergences within this of the least, in nats, count as equal, and the last of them is taken. Values that fill few bins (the 17 levels
# of a 4-bit image) have no divergence for more than one i, and without this, rounding errors would choose between a range that holds all
# values and one that holds almost none.
_TIE = 1e-9


def entropy_amax(histogram: Histogram) -> float:
    """The amax of the entropy method: of TensorRT's bins (histogram.Histogram), (i + 1/2) for the i with the least `divergences`. The
    first bin gets the count of the second, because exact zeros say nothing about the range.

    The result can lie above absmax, by half a bin or by empty bins that i counts: TensorRT's scales do so too.
    """
    counts = histogram.rebinned(BINS).astype(np.float64)
    counts[0] = counts[1]
    if not counts.any():
        return histogram.absmax
    losses = divergences(counts)
    best = int(np.nonzero(losses <= losses.min() + _TIE)[0][-1]) + QUANTIZED
    return (best + 0.5) * histogram.range / BINS


def divergences(counts: npt.NDArray[np.float64], levels: int = QUANTIZED) -> npt.NDArray[np.float64]:
    """KL(P_i || Q_i) in nats for each number of bins i = levels .. bins.

    P_i: the first i counts, everything beyond added to the last, normalised. Q_i: the first i counts alone, summed to `levels` values
    (level g begins at bin ceil(g i / levels)), each shared out evenly over its non-empty bins, normalised. With the sums S_g and the
    non-empty bins n_g of level g, all that depends on Q_i is sum_g P_g log(S_g / n_g), so no candidate is ever written out.

    Where public descriptions leave a choice, this does as TensorRT 8.5.3: if Q_i is zero and P_i is not, the divergence is infinite; and
    an i with one non-empty bin does not count. (If all values lie far from zero, there is an i that holds only the nearest of them. P_i
    and Q_i are then the same, with all values in one bin. TensorRT skips it, seen in 38 tensors of an encoder.)

    Args: counts: [bins]. levels: of the quantized distribution.
    Returns: [bins - levels + 1]; inf where Q is zero and P is not, and where i does not count.
    """
    starts = _level_starts(counts.size, levels)
    ends = np.arange(levels, counts.size + 1)
    total = counts.sum()
    inside = np.concatenate([[0.0], np.cumsum(counts)])
    filled = np.concatenate([[0], np.cumsum(counts > 0)])
    beyond = np.maximum(total - inside[ends], 0.0)
    beyond[-1] = 0.0
    last = counts[ends - 1]
    # The levels of Q ...
    sums, sizes = np.diff(inside[starts], axis=1), np.diff(filled[starts], axis=1)
    # ... and the reference's share in each: that of Q's own bins, and of what lies beyond, all in the last bin.
    mass = inside[ends]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q = np.log(np.where(sizes > 0, sums / np.maximum(sizes, 1), 0.0) / np.where(mass > 0, mass, 1.0)[:, None])
        own = np.where(sums > 0, sums * log_q, 0.0).sum(axis=1)
        own += np.where(beyond > 0, beyond * np.where(last > 0, log_q[:, -1], -np.inf), 0.0)
    entropy = np.concatenate([[0.0], np.cumsum(_x_log_x(counts))])[ends - 1] + _x_log_x(last + beyond)
    losses: npt.NDArray[np.float64] = np.where(filled[ends] > 1, entropy / total - np.log(total) - own / total, np.inf)
    return losses


def _x_log_x(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = x * np.log(np.where(x > 0, x, 1.0))
    return result


@functools.cache
def _level_starts(bins: int, levels: int) -> npt.NDArray[np.intp]:
    """For each i = levels .. bins: where each level begins, and i. Returns: [bins - levels + 1, levels + 1]."""
    ends = np.arange(levels, bins + 1)[:, None]
    starts = -(-np.arange(levels + 1)[None, :] * ends // levels)
    starts[:, -1] = ends[:, 0]
    return starts.astype(np.intp)
