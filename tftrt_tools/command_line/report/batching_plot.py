"""The plot of `tftrt bench --tune_batching`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import pictures, plots
from tftrt_tools.studies.batching import trial as trials

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tftrt_tools.studies.batching.trial import Trial
    from tftrt_tools.studies.batching.tuned import Tuned

# Room for a bar's label right of the longest bar, as a share of the axis.
_LABEL_SHARE = 0.35


def bars(done: Tuned, kind: str = "png") -> bytes:
    """Horizontal bars of each trial's highest rate, in the order of the trials; the winner is green, the one without batching grey.

    A trial that did not keep the best rate before it has no bar, because its rate is not known; a mark shows the rate that it missed. A
    line shows the rate that the winner kept in turns.

    Args: kind: "svg" or "png". Returns: bytes of the file.
    """
    figure = plots.new_figure(10, 1.3 + 0.3 * len(done.trials))
    axes = figure.subplots()
    for row, one in enumerate(done.trials):
        _bar(
            axes,
            row,
            one,
            plots.GREEN if one.number == done.winner else plots.GREY if one.settings is None else plots.BLUE,
        )
    if done.turns and done.turns.winner.kept:
        axes.axvline(
            done.turns.rate,
            color="black",
            linewidth=1.2,
            linestyle=(0, (5, 3)),
            zorder=3,
            label=f"in turns the winner kept {done.turns.rate:.4g}",
        )
        figure.legend(loc="outside upper right", frameon=False)
    axes.set_yticks(range(len(done.trials)), [f"{one.number}  {trials.text(one.settings)}" for one in done.trials])
    axes.invert_yaxis()
    longest = max((one.rate or one.floor or 0.0 for one in done.trials), default=0.0)
    axes.set_xlim(0, (1 + _LABEL_SHARE) * longest or 1.0)
    axes.set_xlabel(f"highest rate that keeps {done.goal}, requests/s ({done.backend} server)")
    plots.bare(axes)
    return pictures.content(figure, kind)


def _bar(axes: Axes, row: int, one: Trial, color: str) -> None:
    if one.rate is not None:
        axes.barh(row, one.rate, height=0.65, color=color)
        ms = f", {one.ms:.3g} ms" if one.ms is not None else ""
        plots.beside(axes, one.rate, row, f"{one.rate:.4g}{ms}")
    elif one.failure:
        plots.beside(axes, 0, row, "failed")
    elif one.floor:
        axes.plot(one.floor, row, marker="x", color=plots.RED)
        plots.beside(axes, one.floor, row, f"does not keep {one.floor:.4g}")
    else:
        plots.beside(axes, 0, row, "keeps no rate")
