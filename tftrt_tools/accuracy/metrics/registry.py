"""All metrics. A new one is an entry in the METRICS of its file; a new file is named here."""

import functools
from collections.abc import Iterable
from typing import Any

from tftrt_tools.accuracy import kinds
from tftrt_tools.accuracy.metrics import boxes, classes, detections, elements, exact, segmentation, texts
from tftrt_tools.accuracy.metrics.metric import Measure, Metric

METRICS: dict[str, Metric] = {
    metric.name: metric
    for file in (elements, classes, exact, boxes, detections, segmentation, texts)
    for metric in file.METRICS
}
ALIASES = {"mae": "mean_abs", "ap": "map", "ap50": "map50", "top_1": "top1", "top_5": "top5", "word_error_rate": "wer"}


def of_kinds(wanted: set[str]) -> dict[type[Measure[Any]], tuple[Metric, ...]]:
    """{Measure: its metrics} that compare outputs of these kinds with the original's answers."""
    return _grouped(one for one in METRICS.values() if one.kinds & wanted)


@functools.cache
def of_ids_alone() -> frozenset[type[Measure[Any]]]:
    """The Measures that ids have and values do not have."""
    return frozenset(of_kinds({kinds.IDS})) - frozenset(of_kinds({kinds.VALUES}))


def of_labels(kind: str) -> dict[type[Measure[Any]], tuple[Metric, ...]]:
    """{Measure: its metrics} that compare answers with labels of this kind."""
    return _grouped(one for one in METRICS.values() if kind in one.labels)


def first_of(kind: str) -> str:
    """The main metric for labels of this kind."""
    return next(one.name for one in METRICS.values() if kind in one.first_of)


def shown(short: bool = False) -> tuple[str, ...]:
    """The metrics without a bound that still have a column in tables. Args: short: in tables with little room."""
    return tuple(one.name for one in METRICS.values() if one.shown and (not short or one.shown == "short tables"))


def _grouped(metrics: Iterable[Metric]) -> dict[type[Measure[Any]], tuple[Metric, ...]]:
    found: dict[type[Measure[Any]], tuple[Metric, ...]] = {}
    for one in metrics:
        found[one.measure] = (*found.get(one.measure, ()), one)
    return found
