"""The report of `tftrt bench`: one HTML file that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import bench_plots, breakdown_plot, footnotes, html, pictures, plots

if TYPE_CHECKING:
    from tftrt_tools.studies.bench.goal import Goal
    from tftrt_tools.studies.bench.measurements import Bench, Row


def write_page(done: Bench, goal: Goal | None, path: str) -> None:
    """Write the report of a measurements.Bench, whole or not at all. Args: goal: goal.Goal or None. Raises: OSError."""
    whole_file.write_text(path, page(done, goal))


def write_breakdown(done: Bench, path: str) -> None:
    """Write the bars of a measurements.Bench with breakdowns as .svg or .png, whole or not at all. Raises: UsageError, OSError."""
    kind = pictures.kind(path)
    whole_file.write_bytes(path, pictures.content(breakdown_plot.bars(done.breakdowns), kind))


def page_of(done: Bench) -> str:
    """The page of a result, with the goal that it names."""
    from tftrt_tools.studies.bench import goal

    return page(done, goal.parse(done.goal))


def page(done: Bench, goal: Goal | None) -> str:
    """The page as text."""
    marks = (
        [(bound.percentile, bound.limit * 1e3) for bound in goal.bounds if bound.percentile is not None] if goal else []
    )
    measured = [row for row in done.rows if not row.probe]
    # In a search the probes next to the answer matter most; lines of the other probes would cover them.
    lines = measured or _around(done)
    series = [(row, plot) for row in lines if (plot := bench_plots.over_time(row))]
    return html.template("bench.html").render(
        done=done,
        goal=goal,
        footnotes=footnotes.collect((row.limited, row.waits, *row.notes) for row in done.rows),
        cdf=bench_plots.cdf(lines, marks),
        curve=bench_plots.throughput_latency(done.rows, marks),
        series=series,
        percentiles=list(done.rows[0].response.percentiles) if done.rows else [],
        batches=_batches(done),
        bars=plots.svg(breakdown_plot.bars(done.breakdowns)) if done.breakdowns else "",
    )


def _around(done: Bench) -> list[Row]:
    """Three probes of each search: at its answer, at the lowest rate that failed, and the slowest."""
    kept = []
    for one in done.searched:
        probes = [
            row
            for row in done.rows
            if row.probe and row.target == one.target and row.point.batch_size == one.batch_size
        ]
        wanted = {one.rate, one.above, min((row.point.rate for row in probes if row.point.rate), default=None)}
        kept += sorted(
            (row for row in probes if row.point.rate and row.point.rate in wanted),
            key=lambda row: row.point.rate or 0.0,
        )
    return kept


def _batches(done: Bench) -> bool:
    return any(row.server and row.server.processed_rows is not None for row in done.rows)
