"""The bars of `tftrt bench --breakdown`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import bench_plots, plots
from tftrt_tools.studies.bench import breakdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from tftrt_tools.studies.bench.breakdown import Breakdown

_COLORS = {
    breakdown.ENCODING: bench_plots.SKY,
    breakdown.EMPTY_CALL: plots.GREY,
    breakdown.MESSAGES: bench_plots.YELLOW,
    breakdown.QUEUE: bench_plots.PURPLE,
    breakdown.DECODING: bench_plots.ORANGE,
    breakdown.ENGINES: plots.GREEN,
    breakdown.OPS: plots.BLUE,
    breakdown.BETWEEN: "#C7C7C7",
    breakdown.READING: "#56708A",
    breakdown.REST: "white",
}
# A part this narrow, as a share of the longest bar, has no room for its figure.
_NARROW = 0.045


def bars(breakdowns: Sequence[Breakdown]) -> Figure:
    """A bar for each breakdown.Breakdown, in the order of a request's way; inferred parts are hatched. Returns: a matplotlib Figure."""
    figure = plots.new_figure(10.5, 1.9 + 0.55 * len(breakdowns))
    axes = figure.subplots()
    longest, labelled = max(one.total_ms for one in breakdowns) or 1.0, set[str]()
    for row, one in enumerate(breakdowns):
        at = 0.0
        for part in one.parts:
            axes.barh(
                row,
                part.ms,
                left=at,
                height=0.62,
                color=_COLORS[part.name],
                edgecolor="#444444",
                linewidth=0.6,
                hatch="////" if part.found == "inferred" else None,
                label=None if part.name in labelled else part.name,
            )
            labelled.add(part.name)
            if part.ms > _NARROW * longest:
                axes.text(
                    at + part.ms / 2,
                    row,
                    f"{part.ms:.3g}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
                )
            at += part.ms
    axes.set_yticks(range(len(breakdowns)), [one.point.text() for one in breakdowns])
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.01)
    axes.set_xlabel("mean time of a request, ms (hatched: inferred)")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    plots.bare(axes)
    return figure
