"""The bootstrap of rounds: intervals of trimmed means and of percentiles."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base.statistics import averages

RESAMPLES = 10_000
# Cells of the largest table that `resampled_quantiles` makes at once.
_CHUNK = 4_000_000
# A percentile of the resamples is reliable only if at least this many of them lie beyond it.
_BEYOND = 25
# exp() of more overflows.
_LARGEST_LOG = 700.0

Floats = npt.NDArray[np.float64]
Draws = npt.NDArray[np.int64]


def student(alpha: float, units: float) -> float:
    """Half the width of a 1 - alpha interval of few units, in standard errors of their percentile bootstrap: sqrt(n / (n - 1)) t, with t
    the 1 - alpha/2 point of Student's t with n - 1 degrees of freedom (Hesterberg, "What teachers should know about the bootstrap", The
    American Statistician 69, 2015: the plain interval is too narrow). Args: units: n, a float above 1."""
    from scipy import stats

    return float(math.sqrt(units / (units - 1)) * stats.t.ppf(1 - alpha / 2, units - 1))


def draws(units: int, seed: int, resamples: int = RESAMPLES) -> Draws:
    """Indices of `resamples` bootstrap samples. Returns: int (resamples, units)."""
    return np.random.default_rng(seed).integers(0, units, (resamples, units))


def interval(estimates: Floats, whole: float, alpha: float, units: int, longer: float = 1.0) -> tuple[float, float]:
    """The interval (low, high) of a positive value, from the percentiles of its bootstrap on the scale of logarithms.

    Student's factor can ask for a percentile that this many resamples cannot give. Then the percentiles are taken where at least _BEYOND
    resamples lie outside, and their distances are lengthened by the ratio of Student's factor to the normal one there; a skewed
    bootstrap stays skewed.

    Args: estimates: of the bootstrap samples. whole: the value itself. alpha: share of intervals that may miss it. units: rounds that were
      resampled. longer: how many times as long the arms become, of `dependence.lengthening`.
    """
    from scipy import stats

    quantile = student(alpha, units)
    level = max(2 * stats.norm.sf(quantile), 2 * _BEYOND / len(estimates))
    bounds = np.log(np.quantile(estimates, (level / 2, 1 - level / 2)))
    middle, length = math.log(whole), longer * quantile / stats.norm.isf(level / 2)
    low, high = (min(max(middle + length * (bound - middle), -_LARGEST_LOG), _LARGEST_LOG) for bound in bounds)
    return math.exp(low), math.exp(high)


def resampled_means(values: Floats | Sequence[float], drawn: Draws) -> Floats:
    """The trimmed mean of each bootstrap sample. Args: values: (n,); drawn: of `draws`. Returns: float (resamples,)."""
    return averages.trimmed_means(np.asarray(values, float)[drawn])


def resampled_quantiles(rounds: Sequence[npt.NDArray[Any]], share: float, drawn: Draws) -> Floats:
    """The nearest-rank quantile of all requests of each bootstrap sample of whole rounds.

    Args: rounds: [1-D array of a round's latencies]; share: such as 0.99; drawn: of `draws`. Returns: float (resamples,).
    """
    lengths = np.array([len(block) for block in rounds])
    values = np.concatenate(rounds)
    owner = np.repeat(np.arange(len(rounds)), lengths)
    order = np.argsort(values)[::-1]
    values, owner = values[order], owner[order]
    cells = drawn + len(rounds) * np.arange(len(drawn))[:, None]
    times = (
        np.bincount(cells.ravel(), minlength=len(drawn) * len(rounds)).reshape(len(drawn), len(rounds)).astype(np.int32)
    )
    totals = times @ lengths
    # Rank from above; the value there has at least `share` of all at or below it.
    targets = totals - averages.nearest_places(totals, share)
    solutions = np.full(len(drawn), np.nan)
    # The upper end is tried first: it is mostly enough for tails.
    for reach in (min(len(values), 64 + math.ceil(2 * (1 - share) * len(values))), len(values)):
        unknown = np.flatnonzero(np.isnan(solutions))
        step = max(1, _CHUNK // reach)
        for start in range(0, len(unknown), step):
            part = unknown[start : start + step]
            reached = np.cumsum(times[part][:, owner[:reach]], axis=1, dtype=np.int32)
            enough = reached[:, -1] >= targets[part]
            places = np.argmax(reached >= targets[part][:, None], axis=1)
            solutions[part[enough]] = values[places[enough]]
    return solutions
