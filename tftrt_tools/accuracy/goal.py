"""The grammar of --accuracy: what a converted model has to keep.

    top1:threshold=0.97            accuracy on --labels (without labels: agreement with the original) of at least 0.97
    top1:max-degradation=0.01      at most 0.01 below the original's
    top1:percent-max-degradation=1 at most 1 % of the original's below it
    snr_db:threshold=30            a metric of `tftrt verify`, of the worst output
    my_metrics:f1:threshold=0.9    a function metric(outputs, labels, reference) -> float of your own

Olive and Triton Model Navigator use the same words for goals.
"""

import dataclasses
import math

from tftrt_tools.accuracy import metrics
from tftrt_tools.base import errors, records

KINDS = ("threshold", "max-degradation", "percent-max-degradation")
DIRECTIONS = ("higher", "lower")
_EXAMPLE = "write e.g. top1:max-degradation=0.01, snr_db:threshold=30 or module:metric:threshold=0.9"
# Two shares computed in a different order may differ in the last bits.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Goal(records.Record):
    """metric: of metrics.METRICS, or "module:function"; kind: of KINDS; value: the number given; higher: higher is better."""

    metric: str
    kind: str
    value: float
    higher: bool

    @property
    def is_function(self) -> bool:
        """Whether the metric is the user's own."""
        return ":" in self.metric

    def bound(self, original: float) -> float:
        """The value that the metric must reach, or stay below, if the original has `original`. Raises: UsageError."""
        if self.kind == "threshold":
            return self.value
        if not math.isfinite(original):
            raise errors.UsageError(
                f"{self._asked}: {self.metric} of the original is {original}, and nothing can be taken from that",
                f"write {self.metric}:threshold=…",
            )
        if self.kind == "percent-max-degradation" and original == 0:
            raise errors.UsageError(
                f"{self._asked}: {self.metric} of the original is 0, and a percentage of that is nothing",
                f"write {self.metric}:threshold=… or {self.metric}:max-degradation=…",
            )
        loss = self.value if self.kind == "max-degradation" else abs(original) * self.value / 100
        return original - loss if self.higher else original + loss

    @property
    def _asked(self) -> str:
        return f"{self.metric}:{self.kind}={self.value:g}"

    def kept(self, value: float, original: float) -> bool:
        """Whether a model of `value` keeps the goal; NaN never does."""
        bound = self.bound(original)
        slack = _ROUNDING * max(1.0, abs(bound))
        return value >= bound - slack if self.higher else value <= bound + slack

    def merit(self, value: float) -> float:
        """A number that is higher for a better model."""
        return value if self.higher else -value

    def text(self, original: float) -> str:
        """The goal as messages show it: "top1 >= 0.975"."""
        return f"{self.metric} {'>=' if self.higher else '<='} {self.bound(original):.6g}"


def parse(text: str, direction: str = "", where: str = "--accuracy") -> Goal:
    """Parse a goal.

    Args: direction: --metric_direction, "" where it was not given. where: the text stands, for messages. Returns: Goal. Raises: UsageError.
    """
    metric, colon, bound = text.strip().rpartition(":")
    kind, equals, number = bound.partition("=")
    metric, kind = metrics.ALIASES.get(metric.strip(), metric.strip()), kind.strip().lower()
    if not colon or not equals or not metric:
        raise errors.UsageError(f"{where}: {text!r} is no goal", _EXAMPLE)
    if kind not in KINDS:
        raise errors.UsageError(f"{where}: {kind!r} is no kind of goal", f"use one of {', '.join(KINDS)}; {_EXAMPLE}")
    value = _number(number)
    if value is None or kind != "threshold" and value < 0:
        raise errors.UsageError(
            f"{where}: {number.strip()!r} is no {'number' if value is None else 'loss: it is negative'}", _EXAMPLE
        )
    higher = _higher(metric, direction, where)
    _check(metric, kind, value, where)
    return Goal(metric, kind, value, higher)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _higher(metric: str, direction: str, where: str) -> bool:
    if direction and direction not in DIRECTIONS:
        raise errors.UsageError(f"--metric_direction={direction} is unknown", "use " + " or ".join(DIRECTIONS))
    if ":" in metric:
        module, _, function = metric.partition(":")
        if not module or not function or ":" in function:
            raise errors.UsageError(f"{where}: {metric!r} is no module:function", _EXAMPLE)
        return direction != "lower"
    if metric not in metrics.METRICS:
        near = errors.nearest(metric, metrics.METRICS)
        raise errors.UsageError(
            f"{where}: no metric {metric!r}",
            near if near.startswith("did") else f"metrics: {', '.join(metrics.METRICS)}, or module:function",
        )
    if direction:
        raise errors.UsageError(
            f"--metric_direction says how a function's values count, and {metric} is no function", "leave it out"
        )
    return metrics.METRICS[metric].higher


def _check(metric: str, kind: str, value: float, where: str) -> None:
    if ":" in metric:
        return
    definition = metrics.METRICS[metric]
    if definition.share and kind != "percent-max-degradation" and value > 1:
        raise errors.UsageError(
            f"{where}: {metric} lies between 0 and 1, and the goal says {value:g}", "write shares: 0.01 for 1 %"
        )
    if kind == "threshold":
        if decided := definition.decided(value):
            raise errors.UsageError(
                f"{where}: {metric}:threshold={value:g} judges nothing: {decided}",
                "give a bound that some answers keep and others miss",
            )
        return
    whole = 1.0 if kind == "max-degradation" else 100.0
    if definition.share and value >= whole:
        raise errors.UsageError(
            f"{where}: a loss of {value:g} is all of {metric}, so every model keeps it",
            "write 0.01 for one point" if whole == 1 else "write 1 for 1 % of the original's",
        )
    # The metric of the original against itself, unless there are labels; of inf and 0 no percentage can be taken.
    own = definition.perfect
    if math.isinf(own) or own == 0 and kind == "percent-max-degradation" and not definition.labels:
        shown = "infinite" if math.isinf(own) else "0"
        raise errors.UsageError(
            f"{where}: {metric} measures the distance to the original, whose own is {shown}; {kind} has no meaning",
            f"write {metric}:threshold=…",
        )
