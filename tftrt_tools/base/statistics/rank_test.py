"""The paired rank test of two models that were measured in rounds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Tested(NamedTuple):
    """statistic: the smaller of the two sums of ranks. p: two-sided."""

    statistic: float
    p: float


def signed_rank(differences: npt.NDArray[np.float64] | Sequence[float]) -> Tested:
    """Wilcoxon's signed-rank test (Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945), by
    `scipy.stats.wilcoxon`: exact for up to 50 rounds without ties, from the normal distribution for more.

    Both models' values of a round share the machine's state; only their difference is ranked, so drift has no effect.

    Args: differences: one for each round, such as log(candidate / native). Returns: Tested; p is 1.0 where all are zero.
    """
    from scipy import stats

    values = np.asarray(differences, float)
    if not values.any():
        return Tested(0.0, 1.0)
    test = stats.wilcoxon(values)
    return Tested(float(test.statistic), float(test.pvalue))


def smallest_p(rounds: int) -> float:
    """The smallest two-sided p that so many rounds can give: all differences have one sign."""
    return 2.0 ** (1 - rounds)
