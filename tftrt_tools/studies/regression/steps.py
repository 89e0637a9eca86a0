"""Finds the steps in a series of measurements: where it moved to another level and stayed there.

The series is fitted by a piecewise constant that minimises

    sum |y_i - level(i)| + penalty * (number of levels - 1),

the Potts functional with the absolute value as its loss, so that one outlier does not make a level. The minimum is exact, by dynamic
programming over the place of the last step (Friedrich, Kempe, Liebscher and Winkler, "Complexity penalized M-estimation: fast
computation", Journal of Computational and Graphical Statistics 17, 2008; asv uses the same functional). The penalty is PENALTY * b * log
n, with b the scale of the
noise: for double-exponential noise of scale b the loss is b times the negative log-likelihood, and a step brings two numbers, its place and
its level, so Schwarz's criterion asks for b log n; PENALTY is higher because a place is searched for, not given (Zhang and Siegmund,
Biometrics 63, 2007, show that plain BIC finds too many).
"""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
PENALTY = 3.0
# The fewest measurements of a level: fewer are outliers until more follow.
LEAST = 3
# The factor from the median of |x|, for differences x of two normal variables, to the mean absolute deviation of one variable.
_TO_SCALE = math.sqrt(2 / math.pi) / (math.sqrt(2) * 0.6744897501960817)


@dataclasses.dataclass(frozen=True)
class Level:
    """first, last: places of its first and last measurement. value: their median."""

    first: int
    last: int
    value: float


def levels(
    values: npt.ArrayLike, least: int = LEAST, penalty: float = PENALTY, smallest: float = 0.0
) -> tuple[Level, ...]:
    """The levels of a series.

    Args: values: finite floats, in order. least: measurements of a level. smallest: a step must be larger than this, in the unit of the
    values.
    Returns: (Level, …), which cover the series; () for an empty one. Raises: ValueError for values that are not finite.
    """
    values = np.asarray(values, float)
    if not np.all(np.isfinite(values)):
        raise ValueError("the series has values that are not finite")
    if not len(values):
        return ()
    cost = _costs(values)
    ends = _ends(cost, penalty * noise(values) * math.log(max(len(values), 2)), least)
    found = [Level(first, last, float(np.median(values[first : last + 1]))) for first, last in ends]
    return tuple(_joined(found, values, smallest))


def noise(values: npt.ArrayLike) -> float:
    """Mean absolute deviation of the noise, from the median of the differences of neighbours, which steps do not touch."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return 0.0
    return float(np.median(np.abs(np.diff(values)))) * _TO_SCALE


def _costs(values: Floats) -> Floats:
    """cost[i, j]: sum of |y - median| over i … j. O(n^2 log n) time; histories are of hundreds."""
    count = len(values)
    cost = np.zeros((count, count))
    for first in range(count):
        # Heaps around the running median.
        low: list[float] = []
        high: list[float] = []
        low_sum = high_sum = 0.0
        for last in range(first, count):
            low_sum, high_sum = _push(low, high, low_sum, high_sum, values[last])
            middle = -low[0]
            cost[first, last] = middle * len(low) - low_sum + high_sum - middle * len(high)
    return cost


def _push(low: list[float], high: list[float], low_sum: float, high_sum: float, value: float) -> tuple[float, float]:
    """Add to two heaps: `low` has the smaller half, negated, and at most one more than `high`. Returns: their new sums."""
    import heapq

    if low and value > -low[0]:
        heapq.heappush(high, value)
        high_sum += value
    else:
        heapq.heappush(low, -value)
        low_sum += value
    if len(low) > len(high) + 1:
        moved = -heapq.heappop(low)
        heapq.heappush(high, moved)
        low_sum, high_sum = low_sum - moved, high_sum + moved
    elif len(high) > len(low):
        moved = heapq.heappop(high)
        heapq.heappush(low, -moved)
        low_sum, high_sum = low_sum + moved, high_sum - moved
    return low_sum, high_sum


def _ends(cost: Floats, gamma: float, least: int) -> list[tuple[int, int]]:
    """[(first, last)] of the best levels."""
    count = len(cost)
    best, before = np.full(count, np.inf), np.zeros(count, int)
    for last in range(count):
        if last + 1 >= least or last + 1 == count:
            best[last] = cost[0, last]
        for first in range(least, last - least + 2):
            total = best[first - 1] + gamma + cost[first, last]
            if total < best[last] - 1e-12:
                best[last], before[last] = total, first
    found, last = [], count - 1
    while last >= 0:
        found.append((int(before[last]), last))
        last = int(before[last]) - 1
    return found[::-1]


def _joined(found: Iterable[Level], values: Floats, smallest: float) -> list[Level]:
    """The levels without steps that are too small to count; the smallest step is removed first."""
    left = list(found)
    while len(left) > 1:
        steps = [abs(after.value - one.value) for one, after in zip(left, left[1:], strict=False)]
        least = int(np.argmin(steps))
        if steps[least] > smallest:
            break
        first, last = left[least].first, left[least + 1].last
        left[least : least + 2] = [Level(first, last, float(np.median(values[first : last + 1])))]
    return left
