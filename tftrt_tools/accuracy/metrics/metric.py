"""What a metric is. Each has one entry, in the file of its formula; `registry.METRICS` has all of them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal


class Measure:
    """Accumulates over calls what one or more metrics need.

    The reference is the original's answer, or the truth (labels) in the form that the answer has.
    """

    def __init__(self, epsilon: float = 1e-3) -> None:
        """Args: epsilon: floor of the divisor of max_rel, in the output's own unit."""
        self.epsilon = epsilon

    def add(self, reference: Any, answer: Any) -> None:
        """Add one call: arrays, or what the measure says. What cannot be measured is passed over."""
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """{metric: value}; metrics that nothing could be measured for are left out."""
        raise NotImplementedError


# Where a metric has a column although nothing is bounded by it: nowhere, in the tables of pages, or in short tables as well.
Shown = Literal["", "tables", "short tables"]


@dataclasses.dataclass(frozen=True)
class Metric:
    """One number that says how good an answer is. All that commands and pages know of a metric stands here."""

    # In --thresholds and --accuracy.
    name: str
    # Whether higher is better.
    higher: bool
    # Heading of its column.
    column: str
    # The value for people.
    show: Callable[[float], str]
    # What gives it.
    measure: type[Measure]
    # Kinds of outputs (accuracy.kinds) for which it is held against the original's answers.
    kinds: frozenset[str]
    _: dataclasses.KW_ONLY
    # Kinds of labels (accuracy.labels) against which it is held as well.
    labels: frozenset[str] = frozenset()
    # The kinds of labels about which it says most.
    first_of: frozenset[str] = frozenset()
    # What the original's answers have against themselves.
    perfect: float = 0.0
    # Whether it lies between 0 and 1.
    share: bool = False
    # Whether it speaks of classes: it is shown, and is a goal, for outputs that have classes.
    of_classes: bool = False
    # Where its column stands.
    shown: Shown = ""
    # Whether each comparison's JSON has it, null where it does not apply.
    written: bool = False
    # One line, for pages.
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
