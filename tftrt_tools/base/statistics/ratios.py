"""Ratios of two series that were measured in turns, with their interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base.statistics import averages, dependence, resampling

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """value: the ratio; low, high: its interval."""

    value: float
    low: float
    high: float


def of_rounds(logs: Floats | Sequence[float], alpha: float, seed: int) -> Ratio:
    """The typical ratio of paired rounds: a ratio inside each round first, so that drift of the machine cancels; then their trimmed mean.

    Args: logs: 1-D, the logarithm of each round's ratio, in order. alpha: share of intervals that may miss. seed: of the bootstrap.
    """
    values = np.asarray(logs, float)
    resampled = np.exp(resampling.resampled_means(values, resampling.draws(len(values), seed)))
    return around(math.exp(averages.trimmed_mean(values)), resampled, values, alpha)


def of_medians(pairs: Floats, alpha: float, seed: int) -> Ratio:
    """The median of the first series over that of the second, for few rounds, of which one disturbed round would move a mean.

    Args: pairs: (N, 2), both values of each round, in order. alpha, seed: as of `of_rounds`.
    """
    drawn = pairs[resampling.draws(len(pairs), seed)]
    medians = np.median(drawn, axis=1)
    first, second = np.median(pairs, axis=0)
    return around(float(first / second), medians[:, 0] / medians[:, 1], np.log(pairs[:, 0] / pairs[:, 1]), alpha)


def around(value: float, resampled: Floats, logs: Floats, alpha: float) -> Ratio:
    """A ratio with its bootstrap. Args: resampled: ratios of the bootstrap samples; logs: of the rounds, in order, for their dependence."""
    low, high = resampling.interval(resampled, value, alpha, len(logs), dependence.lengthening(logs, alpha))
    return Ratio(value, low, high)
