"""The pictures of `tftrt profile`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import bench_plots, plots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from tftrt_tools.studies.profiling.call_profile import CallProfile
    from tftrt_tools.studies.profiling.call_records import Device, Group

_COLORS: dict[str, str] = {
    "input": bench_plots.SKY,
    "call": "#8C8C8C",
    "graph": bench_plots.YELLOW,
    "engine": plots.GREEN,
    "op": plots.BLUE,
    "copy": bench_plots.PURPLE,
    "output": bench_plots.ORANGE,
    "rest": "#FFFFFF",
}
_HOST_ALPHA = 0.4
_LABELS = {
    ("input", "host"): "making the input",
    ("input", "GPU"): "copy to the GPU",
    ("call", "host"): "Python",
    ("graph", "host"): "executor",
    ("engine", "host"): "engines, host",
    ("engine", "GPU"): "engines, GPU",
    ("op", "host"): "other ops, host",
    ("op", "GPU"): "other ops, GPU",
    ("copy", "GPU"): "copies between",
    ("output", "host"): "reading the answer",
    ("output", "GPU"): "copy back",
    ("rest", ""): "not placed",
}
# A part this narrow, as a share of the longest bar, has no room for its figure.
_NARROW = 0.04


def parts(bars: Sequence[tuple[str, CallProfile]]) -> str:
    """A bar for each call, in the order of a call's way; the host's parts, in which the GPU is idle, are pale. Returns: SVG text."""
    figure = plots.new_figure(10.5, 1.7 + 0.55 * len(bars))
    axes = figure.subplots()
    longest, labelled = max(call.latency.p50 for _, call in bars) or 1.0, set[str]()
    for row, (_, call) in enumerate(bars):
        at = 0.0
        for part in call.parts:
            label = _LABELS[part.group, part.device]
            _bar(axes, row, at, part.seconds, part.group, part.device, "" if label in labelled else label)
            labelled.add(label)
            if part.seconds > _NARROW * longest:
                axes.text(
                    1e3 * (at + part.seconds / 2),
                    row,
                    f"{1e3 * part.seconds:.3g}",
                    ha="center",
                    va="center",
                    fontsize=8,
                )
            at += part.seconds
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1e3 * longest * 1.01)
    axes.set_xlabel("ms of the measured call (pale: the host, while the GPU is idle)")
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    plots.bare(axes)
    return plots.svg(figure)


def _bar(axes: Axes, row: float, start: float, seconds: float, group: Group, device: Device, label: str = "") -> None:
    axes.barh(
        row,
        1e3 * seconds,
        left=1e3 * start,
        height=0.62,
        color=_COLORS[group],
        alpha=1.0 if device != "host" else _HOST_ALPHA,
        edgecolor="#444444" if group == "rest" else "none",
        linewidth=0.5,
        label=label or None,
    )


def timeline(calls: Sequence[tuple[str, CallProfile]]) -> str:
    """What takes each instant of one traced call, a lane for the GPU and one for the host while the GPU is idle.

    Returns: SVG text, "" where no call has a timeline.
    """
    shown = [(name, call) for name, call in calls if call.timeline]
    if not shown:
        return ""
    figure = plots.new_figure(10.5, 0.9 + 0.95 * len(shown))
    axes = figure.subplots()
    lanes = []
    for number, (name, call) in enumerate(shown):
        for one in call.timeline:
            row = 3 * number + (0 if one.device == "GPU" else 1)
            _bar(axes, row, one.start, one.end - one.start, one.group, one.device)
        lanes += [(3 * number, f"{name}: GPU"), (3 * number + 1, "host")]
    axes.set_yticks([row for row, _ in lanes], [name for _, name in lanes])
    axes.invert_yaxis()
    axes.set_xlim(0, 1e3 * max(call.timeline[-1].end for _, call in shown))
    axes.set_xlabel("ms of one traced call (a trace slows the host); colours as above")
    plots.bare(axes)
    return plots.svg(figure)
