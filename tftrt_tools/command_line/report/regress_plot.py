"""Plots of `tftrt regress` and `tftrt history`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tftrt_tools.command_line.report import pictures, plots
from tftrt_tools.studies.regression.history import VALUES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tftrt_tools.studies.regression.comparison import Regression
    from tftrt_tools.studies.regression.history import History, Series


def rounds(done: Regression) -> str:
    """Each round of a comparison.Regression: the medians of both models, and below their ratio with its interval. Returns: SVG text."""
    native, candidate = (1e3 * np.asarray(values) for values in (done.rounds.native_p50, done.rounds.candidate_p50))
    places = np.arange(1, len(native) + 1)
    figure = plots.new_figure(9, 5)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(places, native, marker="o", markersize=3, linewidth=0.8, color=plots.GREY, label="native")
    upper.plot(places, candidate, marker="o", markersize=3, linewidth=0.8, color=plots.BLUE, label="candidate")
    upper.set_ylabel("median of the round, ms")
    upper.set_ylim(bottom=0)
    lower.axhline(1, color="black", linewidth=0.8)
    effect = done.verdict.min_effect if done.verdict else 0.0
    lower.axhspan(1 / (1 + effect), 1 + effect, color=plots.GREY, alpha=0.2, linewidth=0, label="too small to count")
    one = done.verdict.of("p50") if done.verdict else None
    if one and one.low is not None:
        lower.axhspan(one.low, one.high, color=plots.BLUE, alpha=0.25, linewidth=0, label="interval of the ratio")
        lower.axhline(one.ratio, color=plots.BLUE, linewidth=1.4)
    lower.plot(places, candidate / native, linestyle="none", marker="o", markersize=3, color=plots.BLUE)
    lower.set_ylabel("candidate / native")
    lower.set_xlabel("round")
    for axes in (upper, lower):
        plots.bare(axes)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncol=3, fontsize=8, borderaxespad=0)
    return plots.svg(figure)


def history(found: History, kind: str = "svg") -> bytes:
    """A chart for each series of a history.History: its values, their levels, and the steps. Args: kind: "svg" or "png". Returns: bytes."""
    shown = [one for one in found.series if one.points]
    figure = plots.new_figure(9, max(1, len(shown)) * 2.8)
    charts = figure.subplots(max(1, len(shown)), 1, squeeze=False)[:, 0]
    for axes, series in zip(charts, shown, strict=False):
        _chart(axes, series)
    return pictures.content(figure, kind)


def _chart(axes: Axes, series: Series) -> None:
    title, unit, _, _ = VALUES[series.shown]
    values = [value for _, value in series.points]
    axes.plot(range(len(values)), values, linestyle="none", marker="o", markersize=4, color=plots.BLUE)
    for first, last, level in series.levels:
        axes.plot([first - 0.4, last + 0.4], [level, level], color="black", linewidth=1.6)
    for (first, _, level), step in zip(series.levels[1:], series.steps, strict=True):
        axes.axvline(first - 0.5, color=plots.RED if step.worse else plots.GREEN, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            f"{step.change:+.1%}",
            (first - 0.4, level),
            xytext=(2, 6),
            textcoords="offset points",
            fontsize=8,
            color=plots.RED if step.worse else plots.GREEN,
        )
    labels = [str(entry.number) for entry, _ in series.points]
    every = max(1, len(labels) // 20)
    axes.set_xticks(range(0, len(labels), every), labels[::every])
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_ylabel(f"{title}, {unit}" if unit else title)
    axes.set_xlabel("number of the result")
    axes.set_title(f"{series.name}: {series.asked}\non {series.machine.text()}", loc="left", fontsize=9)
    axes.margins(y=0.2)
    plots.bare(axes)
