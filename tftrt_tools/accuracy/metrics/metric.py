"""What a metric is. Each has one entry, in the file of its formula; `registry.METRICS` has all of them."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np


class Measure:
    """Accumulates over calls what one or more metrics need.

    The reference is the original's answer, or the truth (labels) in the form that the answer has.
    """

    def __init__(self, epsilon: float = 1e-3) -> None:
        """Args: epsilon: floor of the divisor of max_rel, in the output's own unit."""
        self.epsilon = epsilon

    def add(self, reference: np.ndarray, answer: np.ndarray) -> None:
        """Add one call. What cannot be measured is passed over."""
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """{metric: value}; metrics that nothing could be measured for are left out."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Metric:
    """One number that says how good an answer is.

    name: in --thresholds and --accuracy. higher: whether higher is better. column: heading of its column. show: the value for people.
    measure: the Measure that gives it. kinds: of outputs (accuracy.kinds) for which it is held against the original's answers. labels:
    kinds of labels (accuracy.labels) against which it is held as well. perfect: what the original's answers have against themselves.
    share: whether it lies between 0 and 1. meaning: one line, for pages.
    """

    name: str
    higher: bool
    column: str
    show: Callable[[float], str]
    measure: type[Measure]
    kinds: frozenset[str]
    labels: frozenset[str] = frozenset()
    perfect: float = 0.0
    share: bool = False
    meaning: str = ""

    @property
    def sign(self) -> str:
        """How it is bounded: ">=" or "<="."""
        return ">=" if self.higher else "<="


def percent(value: float) -> str:
    """0.9512 as "95.12%"."""
    return f"{value:.2%}"


def short(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"


def fixed(digits: int) -> Callable[[float], str]:
    """A function that shows so many digits behind the point."""
    return lambda value: str(value) if math.isnan(value) else f"{value:.{digits}f}"
