"""How much longer an interval must be because neighbouring rounds may be correlated.

Rounds that follow each other may share the machine's state, and then they tell less than as many independent rounds. The model is a
first-order autoregression with an unknown correlation r of neighbours. A few rounds hardly determine r: for 12 independent ones the
estimate is 0.57 or more once in 20 times. Formulas that use one estimate as if it were exact, such as the effective number n (1 - r) /
(1 + r), therefore fail for few rounds (Zwiers and von Storch, "Taking serial correlation into account in tests of the mean", Journal of
Climate 8, 1995), and grow without bound where the estimate comes near 1.

So this module averages over r: for each r the mean has a Student distribution, from generalised least squares, and the weight of each is
how likely the rounds make that r (Zellner and Tiao, "Bayesian analysis of the regression model with autocorrelated errors", Journal of
the American Statistical Association 59, 1964). Before the rounds are seen, r has the density 2 (1 - r) on 0 … 1, the beta distribution
(1, 2) with mean 1/3: cautious, since log ratios of recorded rounds of one model under two names have -0.1 to 0.2.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base.statistics.averages import TRIM

# Points of r at which the integral over it is taken.
_POINTS = 100
# Fewer values say nothing about neighbours.
_FEWEST = 4
# Logarithms that differ by less than this are equal, apart from rounding.
_ROUNDING = 1e-9
# Level of the interval by which rounds are counted.
_COUNTED_AT = 0.1


def lengthening(values: npt.NDArray[np.float64] | Sequence[float], alpha: float) -> float:
    """How many times as long the 1 - alpha interval of the mean has to be as that of independent values.

    Values are winsorized first (TRIM at each end), so that a few outliers neither hide a correlation nor look like one.

    Args: values: one for each round, in order. Returns: float of at least 1.0; 1.0 where the values do not spread, or are fewer than four.
    """
    series = np.asarray(values, float)
    if len(series) < _FEWEST or np.ptp(series) <= _ROUNDING:
        return 1.0
    series = np.clip(series, *np.quantile(series, (TRIM, 1 - TRIM)))
    series = series - series.mean()
    spread = float(series.std(ddof=1))
    if spread <= _ROUNDING:
        return 1.0
    series = series / spread
    return _half_width(*_posterior(series), alpha, len(series)) / _plain(alpha, len(series))


def worth(values: npt.NDArray[np.float64] | Sequence[float]) -> float:
    """The number of independent rounds that would give an equally short 90 % interval. Returns: float in [1, n]."""
    return max(1.0, len(values) / lengthening(values, _COUNTED_AT) ** 2)


def _posterior(
    series: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(weights, middles, scales) of Student's distributions of the mean, one for each r. With P the inverse of the correlation matrix of a
    stationary autoregression, times 1 - r², and 1 the vector of ones: middle = 1'Px / 1'P1, residual = x'Px - (1'Px)² / 1'P1."""
    count, ends, inner = len(series), float(series[0] + series[-1]), series[1:-1]
    r = (np.arange(_POINTS) + 0.5) / _POINTS
    ones = (1 - r) * (2 + (count - 2) * (1 - r))
    mixed = (1 - r) * (ends + (1 - r) * inner.sum())
    squares = series @ series + r**2 * float(inner @ inner) - 2 * r * float(series[1:] @ series[:-1])
    residual = np.maximum(squares - mixed**2 / ones, _ROUNDING)
    logs = np.log(1 - r) + 0.5 * np.log(1 - r**2) - 0.5 * np.log(ones) - 0.5 * (count - 1) * np.log(residual)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), mixed / ones, np.sqrt(residual / (count - 1) / ones)


def _half_width(
    weights: npt.NDArray[np.float64],
    middles: npt.NDArray[np.float64],
    scales: npt.NDArray[np.float64],
    alpha: float,
    count: int,
) -> float:
    """Half the interval around 0 that leaves out alpha of the mixture; not below that of independent values."""
    from scipy import optimize, special

    def too_much(half: float) -> float:
        """Probability outside of ± half, less alpha."""
        above, below = (special.stdtr(count - 1, -(half + sign * middles) / scales) for sign in (-1, 1))
        return float(weights @ (above + below)) - alpha

    low = _plain(alpha, count)
    if too_much(low) <= 0:
        return low
    high = 2 * low
    while too_much(high) > 0:
        high *= 2
    return float(optimize.brentq(too_much, low, high, rtol=1e-6))


def _plain(alpha: float, count: int) -> float:
    """Half the interval of the mean of independent values with a standard deviation of 1."""
    from scipy import special

    return -float(special.stdtrit(count - 1, alpha / 2)) / math.sqrt(count)
