"""The table of compared answers, for pages and terminals: its columns, and the text of their cells."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tftrt_tools.accuracy import kinds, metrics


@dataclasses.dataclass(frozen=True)
class Part:
    """Comparisons that share a table. detections: they are of detectors; columns: the metrics to show."""

    detections: bool
    columns: tuple[metrics.Metric, ...]
    comparisons: tuple[metrics.Comparison, ...]


def parts(
    comparisons: Iterable[metrics.Comparison],
    bounds: Mapping[str, Mapping[str, float]],
    always: Iterable[str] | None = None,
    tight: bool = False,
) -> tuple[Part, ...]:
    """Single outputs, then detectors if there are any.

    Args: bounds: {output: {metric: bound}}; always: metrics that have a column even without a bound, None for those of the registry;
      tight: leave out empty columns, as is done beside detectors.
    """
    found, tight = [], tight or any(one.kind == kinds.DETECTIONS for one in comparisons)
    for of_detectors, shown in ((False, metrics.shown() if always is None else always), (True, metrics.shown())):
        mine = tuple(one for one in comparisons if (one.kind == kinds.DETECTIONS) == of_detectors)
        fitting = [metric for metric in shown if (kinds.DETECTIONS in metrics.METRICS[metric].kinds) == of_detectors]
        wanted = {*fitting, *(metric for one in mine for metric in bounds.get(one.name, ()))}
        columns = tuple(
            metric
            for metric in metrics.METRICS.values()
            if metric.name in wanted and (not tight or any(one.shown(metric.name) for one in mine))
        )
        if mine:
            found.append(Part(of_detectors, columns, mine))
    return tuple(found)


def fewer() -> tuple[str, ...]:
    """The argument `always` of `parts` for tables with little room."""
    return metrics.shown(short=True)


def kind(comparison: metrics.Comparison) -> str:
    """The type of an output, and its kind where that is not plain numbers: "float32, ids"."""
    plain = comparison.kind in (kinds.VALUES, kinds.EXACT, kinds.DETECTIONS)
    return comparison.dtype if plain else f"{comparison.dtype}, {comparison.kind}"


def verdict(comparison: metrics.Comparison, missed: Iterable[str], yes: str = "yes", no: str = "NO") -> str:
    """Whether it is within its bounds, "yes" or "NO", or shows nothing; "see detections" if it is judged with others.

    Args: missed: names of outputs that miss a bound.
    """
    beside = comparison.constant
    if comparison.part_of and not comparison.said and comparison.name not in missed:
        return "see detections" + (f" ({beside})" if beside else "")
    return (no if comparison.name in missed else yes) + (f" ({beside})" if beside else "")


def against_labels(accuracy: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(metric, original's, converted's) of a verification's accuracy, for people, the main metric first."""
    both = accuracy.get("metrics") or {"top1": {name: accuracy[name] for name in ("original", "converted")}}
    first = accuracy.get("metric", "top1")
    both = {first: both[first]} | both
    return [
        (name, *(metrics.METRICS[name].show(values[which]) for which in ("original", "converted")))
        for name, values in both.items()
    ]


def changed_classes(accuracy: Mapping[str, Any], most: int = 12) -> list[Mapping[str, Any]]:
    """The classes that lost or gained most, of a verification's accuracy."""
    found = [one for one in accuracy.get("per_class", ()) if one["original"] != one["converted"]]
    return sorted(found, key=lambda one: -abs(one["converted"] - one["original"]))[:most]
