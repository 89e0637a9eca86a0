"""Typical values: a mean that outliers do not move, and a percentile that is one of the measured values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Share of the values that the trimmed mean leaves out at each end: Wilcox, "Introduction to Robust Estimation and Hypothesis Testing",
# chapter 4, recommends a fifth for the percentile bootstrap; two disturbed rounds of ten then move nothing.
TRIM = 0.2


def nearest_rank(values: npt.NDArray[Any] | Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed: one that was measured. Args: values: 1-D, not empty."""
    place = int(nearest_places(len(values), share))
    return float(np.partition(values, place)[place])


def nearest_places(
    counts: int | npt.NDArray[np.int64], share: float | npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """The places of `nearest_rank` in sorted values, from 0. Args: counts: how many values there are. One of both may be an array.

    A tiny number is taken off, because share * count may come out a little above a whole number: 0.07 * 100 is 7.000000000000001.
    """
    places: npt.NDArray[np.int64] = np.maximum(0, np.ceil(share * np.asarray(counts) - 1e-9).astype(int) - 1)
    return places


def trimmed_means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Means along the last axis without the TRIM lowest and highest (`scipy.stats.trim_mean`); of fewer than five values the plain mean."""
    from scipy import stats

    means: npt.NDArray[np.float64] = np.asarray(stats.trim_mean(values, TRIM, axis=-1))
    return means


def trimmed_mean(values: npt.NDArray[np.float64] | Sequence[float]) -> float:
    """The trimmed mean of one series, as `trimmed_means`. Args: values: 1-D."""
    return float(trimmed_means(np.asarray(values, float)))
