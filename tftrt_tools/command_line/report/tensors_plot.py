"""The plot of `tftrt verify --tensors`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import pictures, plots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from tftrt_tools.tensorrt.plans.tensors import Tensors

_CEILING_DB, _FLOOR_DB = 160.0, -20.0
# Up to so many tensors have their names below the axis; of more of them only the first that departs and the farthest are named.
_NAMED = 40
# Characters of a name below the axis, and of that of the marked tensor; inches of height that a turned character takes.
_LONGEST, _LONGEST_MARKED = 30, 48
_OF_A_CHARACTER = 0.06


def line(done: Tensors, kind: str = "svg") -> bytes:
    """SNR in dB of each tensor, in the order in which the second graph computes them, with the bound as a black line.

    Tensors below the bound are red. A dashed line marks the first of them, which is named; where none departs, the farthest one is
    named. Equal tensors have no noise and are drawn on the upper edge, others of another shape or without any signal on the lower one.

    Args: kind: "svg" or "png". Returns: bytes of the file.
    """
    inners = done.inners
    shown = inners if len(inners) <= _NAMED else ()
    names = [_short(name, _LONGEST) for name in plots.without_shared_scopes([one.tensor for one in shown])]
    figure = plots.new_figure(10, 4.0 + _OF_A_CHARACTER * max(map(len, names), default=0))
    axes = figure.subplots()
    levels = [_clipped(one.snr_db) for one in inners]
    axes.plot(range(len(inners)), levels, color=plots.GREY, linewidth=1.0, zorder=1)
    axes.axhline(done.bound, color="black", linewidth=1.6, zorder=2)
    for kept, color, label in ((True, plots.BLUE, "keeps the bound"), (False, plots.RED, "departs")):
        places = [place for place, one in enumerate(inners) if (one.snr_db >= done.bound) == kept]
        if places:
            axes.plot(
                places,
                [levels[place] for place in places],
                linestyle="none",
                marker="o",
                markersize=5 if names else 3.5,
                color=color,
                zorder=3,
                label=label,
            )
    _mark(axes, done, levels)
    _name(axes, names, len(inners))
    axes.set_ylim(_FLOOR_DB - 5, _CEILING_DB + 28)
    axes.set_yticks(range(0, int(_CEILING_DB) + 1, 20), [*map(str, range(0, int(_CEILING_DB), 20)), "≥160 or equal"])
    axes.set_ylabel("signal to noise, dB")
    axes.set_title(
        f"against the original; black line: the bound, {done.bound:g} dB ({done.arithmetic})", loc="left", fontsize=9
    )
    figure.legend(loc="outside upper right", ncol=2, frameon=False)
    plots.bare(axes)
    return pictures.content(figure, kind)


def _mark(axes: Axes, done: Tensors, levels: Sequence[float]) -> None:
    """Name the first tensor that departs, or else the farthest."""
    inners = done.inners
    one = done.departed[0] if done.departed else min(inners, key=lambda one: one.snr_db)
    place = inners.index(one)
    what = "first departs" if done.departed else "farthest"
    axes.axvline(
        place, color=plots.RED if done.departed else plots.GREY, linewidth=1.2, linestyle=(0, (5, 3)), zorder=0
    )
    left = place < len(inners) / 2
    text = f"{what}: {_short(one.tensor, _LONGEST_MARKED)}\n{_short(one.node, _LONGEST_MARKED)}, {one.level}"
    axes.annotate(
        text,
        (place, 1),
        xycoords=axes.get_xaxis_transform(),
        xytext=(5 if left else -5, -2),
        textcoords="offset points",
        ha="left" if left else "right",
        va="top",
        fontweight="bold",
        zorder=4,
        bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"},
    )
    axes.plot(
        place,
        levels[place],
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgewidth=1.6,
        color=plots.RED if done.departed else plots.BLUE,
        zorder=4,
    )


def _name(axes: Axes, names: Sequence[str], count: int) -> None:
    room = 0.6 + count / 100
    axes.set_xlim(-room, count - 1 + room)
    if names:
        axes.set_xticks(range(count), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
        axes.set_xlabel("tensors in the order in which they are computed")
    else:
        axes.set_xlabel(f"the {count} tensors in the order in which they are computed, from 0")


def _short(name: str, most: int) -> str:
    """A name without its middle, if it is long: the beginning says where it is, the end what."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-(most - most // 2) :]}"


def _clipped(snr_db: float) -> float:
    return max(min(snr_db, _CEILING_DB), _FLOOR_DB)
