"""Compared answers as tables on the terminal; for every command that compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console

from tftrt_tools.accuracy import metrics
from tftrt_tools.command_line.commands import _output
from tftrt_tools.command_line.report import answers


def show(
    console: Console,
    title: str,
    comparisons: Iterable[metrics.Comparison],
    bounds: Mapping[str, Mapping[str, float]],
    missed: Iterable[str],
    always: Iterable[str] | None = None,
) -> None:
    """Print a table of the outputs, and one of the detectors. Args: as of report.answers; missed: names of outputs that miss a bound."""
    for part in answers.parts(comparisons, bounds, always):
        rows = [
            (
                one.name,
                *([] if part.detections else [answers.kind(one)]),
                *(one.shown(metric.name) for metric in part.columns),
                answers.verdict(one, missed),
            )
            for one in part.comparisons
        ]
        head = ["detections of"] if part.detections else ["output", "type"]
        columns = [*head, *(f">{metric.column}" for metric in part.columns), "within bounds"]
        console.print(_output.table(title, columns, rows))
