"""When the trials of a search ran, and where: a bar for each. Colours and manners are those of `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import plots

if TYPE_CHECKING:
    from tftrt_tools.studies.tuning.tried import Trial

# Of the places; more than these share colours, and each bar names its place.
_COLOURS = (plots.BLUE, plots.RED, plots.GREEN, "#CC79A7", "#E69F00", "#56B4E9")
# A search that was taken up again after a pause so many times as long as its trials would be all pause.
_MOST_PAUSE = 3.0


def timeline(trials: Sequence[Trial]) -> str:
    """Bars from the begin of each trial to its end, in minutes since the first began; the colour says where it ran.

    Returns: SVG text; "" for fewer than two trials whose begin is known, and where most of the time was a pause.
    """
    known = [(one, began) for one in trials if one.measured.seconds and (began := one.measured.began) is not None]
    if len(known) < 2:
        return ""
    first = min(began for _, began in known)
    last = max(began + one.measured.seconds for one, began in known)
    if last - first > (1 + _MOST_PAUSE) * sum(one.measured.seconds for one, _ in known):
        return ""
    places = list(dict.fromkeys(one.measured.where for one, _ in known))
    figure = plots.new_figure(8, 1.1 + 0.3 * len(known))
    axes = figure.subplots()
    for row, (one, began) in enumerate(known):
        place = one.measured.where
        left, minutes = (began - first) / 60, one.measured.seconds / 60
        axes.barh(row, minutes, left=left, height=0.65, color=_COLOURS[places.index(place) % len(_COLOURS)])
        plots.beside(axes, left + minutes, row, f"{one.measured.seconds:.0f} s{', ' + place if place else ''}")
    axes.set_yticks(range(len(known)), [f"{one.number}  {one.text}" for one, _ in known])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * (last - first) / 60)
    axes.set_xlabel("minutes since the first trial began")
    plots.bare(axes)
    return plots.svg(figure)
