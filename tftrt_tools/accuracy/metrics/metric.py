"""What a metric is. Each has one entry, in the file of its formula; `registry.METRICS` has all of them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

# What a call gives a measure: arrays, or what was found in them.
Given = TypeVar("Given")


class Measure(Generic[Given]):
    """Accumulates over calls what one or more metrics need.

    The reference is the original's answer, or the truth (labels) in the form that the answer has.
    """

    def __init__(self, epsilon: float = 1e-3) -> None:
        """Args: epsilon: floor of the divisor of max_rel, in the output's own unit."""
        self.epsilon = epsilon

    def add(self, reference: Given, answer: Given) -> None:
        """Add one call: arrays, or what the measure takes. A call that cannot be measured is skipped."""
        raise NotImplementedError

    def values(self) -> dict[str, float]:
        """{metric: value}, without metrics for which nothing could be measured."""
        raise NotImplementedError


# Where a metric without a bound still has a column: nowhere, in the tables of pages, or in short tables as well.
Shown = Literal["", "tables", "short tables"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that says how good an answer is. Commands and pages take all facts about a metric from here."""

    # Its name in --thresholds and --accuracy.
    name: str
    # Whether higher is better.
    higher: bool
    # Heading of its column.
    column: str
    # The value for people.
    show: Callable[[float], str]
    # The measure that gives it.
    measure: type[Measure[Any]]
    # Kinds of outputs (accuracy.kinds) for which it compares with the original's answers.
    kinds: frozenset[str]
    # Kinds of labels (accuracy.labels) with which it also compares.
    labels: frozenset[str] = frozenset()
    # The kinds of labels for which it is the main metric.
    first_of: frozenset[str] = frozenset()
    # Its value for the original's answers against themselves.
    perfect: float = 0.0
    # Whether it lies between 0 and 1.
    share: bool = False
    # Its smallest value; None for 0, or for no end where higher is better without being a share.
    least: float | None = None
    # Whether it is about classes: then it is shown, and can be a goal, only for outputs that have classes.
    of_classes: bool = False
    # Where its column stands.
    shown: Shown = ""
    # Whether each comparison's JSON has it, null where it does not apply.
    written: bool = False
    # One line, for pages.
    meaning: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """(its smallest, its largest value)."""
        low = self.least if self.least is not None else -math.inf if self.higher and not self.share else 0.0
        return low, 1.0 if self.share else self.perfect if self.higher else math.inf

    def decided(self, bound: float) -> str:
        """Why a bound judges nothing, in words: no value, or every value, keeps it. "" for one that judges; the end itself is a way to
        say that the metric does not count."""
        low, high = self.ends
        none, every = (bound > high, bound < low) if self.higher else (bound < low, bound > high)
        ends = (
            f"{self.name} lies between {low:g} and {high:g}"
            if math.isfinite(low) and math.isfinite(high)
            else f"{self.name} is {low:g} or more"
            if math.isfinite(low)
            else f"{self.name} is {high:g} or less"
        )
        return (
            f"no value is {self.sign} {bound:g}: {ends}"
            if none
            else f"every value is {self.sign} {bound:g}: {ends}"
            if every
            else ""
        )

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
