"""Typical values: a mean that outliers do not move, and a percentile that is one of the measured values."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Share of the values that the trimmed mean leaves out at each end: Wilcox, "Introduction to Robust Estimation and Hypothesis Testing",
# chapter 4, recommends a fifth for the percentile bootstrap; two disturbed rounds of ten then move nothing.
TRIM = 0.2


def nearest_rank(values: npt.NDArray[Any] | Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed: one that was measured. Args: values: 1-D, not empty."""
    rank = max(0, math.ceil(share * len(values) - 1e-9) - 1)
    return float(np.partition(values, rank)[rank])


def trimmed_means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Means along the last axis without the TRIM lowest and highest (`scipy.stats.trim_mean`); of fewer than five values the plain mean."""
    from scipy import stats

    means: npt.NDArray[np.float64] = np.asarray(stats.trim_mean(values, TRIM, axis=-1))
    return means


def trimmed_mean(values: npt.NDArray[np.float64] | Sequence[float]) -> float:
    """As `trimmed_means`, of one series. Args: values: 1-D."""
    return float(trimmed_means(np.asarray(values, float)))
