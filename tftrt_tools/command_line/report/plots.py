"""Plots as SVG text, to be put into pages. Colours from the Okabe-Ito palette, which the colour-blind can tell apart."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tftrt_tools.accuracy.metrics import Comparison

BLUE, GREEN, GREY, RED = "#0072B2", "#009E73", "#999999", "#D55E00"
_SNR_CEILING_DB = 160.0


def new_figure(width: float, height: float) -> Figure:
    """A matplotlib Figure in this package's style. Args: width, height: in inches."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "font.size": 9,
            "svg.hashsalt": "tftrt",
            "text.parse_math": False,
        }
    )  # a $ in a name is a $
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure) -> str:
    """A figure as SVG text, the same for the same figure."""
    from matplotlib.text import Text

    for one in figure.findobj(Text):
        if terminal.shown(one.get_text()) != one.get_text():  # a font has no sign for it
            one.set_text(terminal.shown(one.get_text()))
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return terminal.shown(text.getvalue()[text.getvalue().index("<svg") :])


def bare(axes: Axes) -> None:
    """Take the upper and right border away."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def beside(axes: Axes, x: float, y: float, text: str) -> None:
    """A label right of the end of a bar."""
    axes.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center")


def without_shared_scopes(names: Sequence[str]) -> list[str]:
    """Names without the scopes that they share."""
    scopes = [name.split("/")[:-1] for name in names]
    shared = 0
    while scopes and all(len(scope) > shared and scope[shared] == scopes[0][shared] for scope in scopes):
        shared += 1
    return ["/".join(name.split("/")[shared:]) for name in names]


def signal_to_noise(comparisons: Iterable[Comparison], bounds: Mapping[str, Mapping[str, float]]) -> str:
    """SNR in dB of each output that it judges, with its bound. Equal answers have no noise and are drawn at the right edge.

    Args: comparisons: metrics.Comparisons. bounds: {output: {metric: bound}}.
    Returns: SVG text, or "" where no output is judged by it.
    """
    shown = [one for one in comparisons if one.snr_db is not None and "snr_db" in bounds[one.name]]
    if not shown:
        return ""
    figure = new_figure(8, 0.9 + 0.34 * len(shown))
    axes = figure.subplots()
    for row, one in enumerate(shown):
        bound = bounds[one.name]["snr_db"]
        value = min(max(one.snr_db, 0.0), _SNR_CEILING_DB)
        kept = one.snr_db >= bound
        axes.barh(row, value, color=BLUE if kept else RED, height=0.6)
        label = "equal" if math.isinf(one.snr_db) and one.snr_db > 0 else f"{one.snr_db:.0f} dB"
        inside = value > 0.85 * _SNR_CEILING_DB
        axes.text(
            value - 1.5 if inside else value + 1.5,
            row,
            label,
            va="center",
            ha="right" if inside else "left",
            color="white" if inside else "black",
        )
        axes.plot([bound, bound], [row - 0.42, row + 0.42], color="black", linewidth=1.6)
    axes.set_yticks(range(len(shown)), [one.name for one in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, _SNR_CEILING_DB)
    axes.set_xlabel("signal to noise against the original, dB (black line: the bound)")
    bare(axes)
    return svg(figure)


def where_ops_run(signatures: Iterable[Mapping[str, Any]]) -> str:
    """Computing ops of each signature, in TensorRT and in TensorFlow. Args: signatures: manifest entries. Returns: SVG text or ""."""
    shown = [one for one in signatures if one["engines"] or one["native_ops"]]
    if not shown:
        return ""
    figure = new_figure(8, 1.1 + 0.34 * len(shown))
    axes = figure.subplots()
    for row, one in enumerate(shown):
        inside, total = ops_of(one)
        axes.barh(row, inside, color=GREEN, height=0.6, label="TensorRT engines" if row == 0 else None)
        axes.barh(row, total - inside, left=inside, color=GREY, height=0.6, label="TensorFlow" if row == 0 else None)
        beside(axes, total, row, f"{inside} of {total}")
    axes.set_yticks(range(len(shown)), [one["name"] for one in shown])
    axes.invert_yaxis()
    axes.set_xlabel("ops that compute something")
    axes.margins(x=0.12)
    figure.legend(loc="outside upper right", ncol=2, frameon=False)
    bare(axes)
    return svg(figure)


def ops_of(signature: Mapping[str, Any]) -> tuple[int, int]:
    """(ops in engines, ops in all) of a manifest's signature entry."""
    from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

    return SignatureResult.from_dict(signature).compute_ops


def pareto(points: Iterable[Mapping[str, Any]], goal: float, metric: str, higher: bool, latency_label: str) -> str:
    """Trials of a search: latency against accuracy, with the goal and the winner; a list beside it says what each number is.

    Args:
      points: [{"number", "ms", "accuracy", "text", "kept", "winner"}] of the trials that gave a model; infinite accuracies are drawn at the
        edge. goal: bound of the metric. metric: its name; higher: higher is better. latency_label: what "ms" is.

    Returns: SVG text, or "" without points.
    """
    shown = [one for one in points if not math.isnan(one["accuracy"])]
    if not shown:
        return ""
    low, high = _frame([one["accuracy"] for one in shown if math.isfinite(one["accuracy"])] + [goal])
    left, right = _frame([one["ms"] for one in shown])
    figure = new_figure(9.5, max(4.2, 1.2 + 0.2 * len(shown)))
    axes, listed = figure.subplots(1, 2, width_ratios=(2, 1))
    axes.axhline(goal, color="black", linewidth=1.2, linestyle=(0, (5, 3)))
    axes.annotate(
        f"goal: {metric} {'≥' if higher else '≤'} {goal:.6g}",
        (1, goal),
        xycoords=axes.get_yaxis_transform(),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
    )
    places = [(one["ms"], min(max(one["accuracy"], low), high)) for one in shown]
    offsets = _label_offsets([((x - left) / (right - left), (y - low) / (high - low)) for x, y in places])
    for one, place, offset in zip(shown, places, offsets, strict=True):
        marker, color = _mark(one)
        axes.plot(*place, marker=marker, markersize=14 if one["winner"] else 6, color=color, zorder=3)
        axes.annotate(
            str(one["number"]),
            place,
            xytext=offset,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            fontweight="bold" if one["winner"] else "normal",
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_xlabel(latency_label)
    axes.set_ylabel(metric)
    bare(axes)
    _list_beside(listed, shown)
    for winner, kept, label in ((True, True, "winner"), (False, True, "keeps the goal"), (False, False, "misses it")):
        marker, color = _mark({"winner": winner, "kept": kept})
        axes.plot([], [], linestyle="none", marker=marker, color=color, label=label)
    figure.legend(loc="outside upper right", ncol=3, frameon=False)
    return svg(figure)


def _mark(one: Mapping[str, Any]) -> tuple[str, str]:
    """(marker, colour) of a point."""
    return ("*", GREEN) if one["winner"] else ("o", BLUE) if one["kept"] else ("o", RED)


def _frame(values: Sequence[float]) -> tuple[float, float]:
    """(low, high) of an axis with room around the points: a point on the edge could not be read."""
    margin = 0.1 * ((max(values) - min(values)) or abs(values[0]) or 1.0)
    return min(values) - margin, max(values) + margin


def _list_beside(axes: Axes, points: Sequence[Mapping[str, Any]]) -> None:
    axes.set_axis_off()
    axes.set_ylim(len(points), -0.5)
    for row, one in enumerate(points):
        weight = "bold" if one["winner"] else "normal"
        axes.text(0.06, row, one["number"], ha="right", va="center", fontsize=8, fontweight=weight)
        axes.text(0.1, row, one["text"], va="center", fontsize=8, fontweight=weight)


def _label_offsets(places: Iterable[tuple[float, float]]) -> list[tuple[int, int]]:
    """Where the labels go, in points from their marks, so that they cover neither marks nor labels. Args: places: 0 to 1 in both axes."""
    width, height = 400, 250
    steps = [
        (0, 11),
        (0, -11),
        (13, 0),
        (-13, 0),
        (11, 11),
        (-11, 11),
        (11, -11),
        (-11, -11),
        (0, 21),
        (0, -21),
        (13, 21),
        (-13, -21),
    ]
    marks = [(x * width, y * height) for x, y in places]
    taken, offsets = list(marks), []
    for mark in marks:

        def room(step: tuple[int, int], mark: tuple[float, float] = mark) -> float:
            return min(
                (max(abs(mark[0] + step[0] - x) / 12, abs(mark[1] + step[1] - y) / 9) for x, y in taken), default=9
            )

        chosen = next((step for step in steps if room(step) >= 1), max(steps, key=room))
        taken.append((mark[0] + chosen[0], mark[1] + chosen[1]))
        offsets.append(chosen)
    return offsets
