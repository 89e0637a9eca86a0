"""The pictures of engines: time by layer, the roofline, memory. Colours and manners are those of `plots`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import bench_plots, plots
from tftrt_tools.studies.profiling import engine_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tftrt_tools.studies.profiling.engine_profile import EngineProfile, LayerProfile

_PRECISIONS = {
    "INT8": plots.GREEN,
    "FP16": plots.BLUE,
    "BF16": bench_plots.PURPLE,
    "TF32": bench_plots.SKY,
    "FP32": bench_plots.ORANGE,
}
_MOVES, _OTHER = "#BBBBBB", plots.GREY
_MOST_LAYERS = 25


def _color(layer: LayerProfile) -> tuple[str, str]:
    """(colour, label) of a layer."""
    if layer.role in ("reformat", "transpose", "shuffle"):
        return _MOVES, "moves values"
    return _PRECISIONS.get(layer.precision, _OTHER), layer.precision or "other"


def layers(engine: EngineProfile) -> str:
    """Time by layer, the slowest first. Returns: SVG text, "" for no layers."""
    ordered = [(layer, total) for layer, total in engine.by_time() if layer.seconds]
    if not ordered:
        return ""
    shown = ordered[:_MOST_LAYERS]
    rest = sum(layer.seconds for layer, _ in ordered[_MOST_LAYERS:])
    names = [engine_rows.short(layer.short) for layer, _ in shown]
    figure = plots.new_figure(10.5, 1.2 + 0.23 * (len(shown) + bool(rest)))
    axes, labelled = figure.subplots(), set[str]()
    for row, (layer, total) in enumerate(shown):
        color, label = _color(layer)
        axes.barh(row, 1e3 * layer.seconds, height=0.7, color=color, label=None if label in labelled else label)
        labelled.add(label)
        bound = f", {layer.bound}" if layer.bound else ""
        plots.beside(axes, 1e3 * layer.seconds, row, f"{1e3 * layer.seconds:.3g} ({total:.0%}{bound})")
    if rest:
        names.append(f"{len(ordered) - len(shown)} more layers")
        plots.beside(axes, 0.0, len(shown), f"{1e3 * rest:.3g} together")
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.set_xlabel("ms of a call (in brackets: the share of it and all above, and what bounds it)")
    figure.legend(loc="outside upper right", ncols=6, frameon=False, fontsize=8)
    plots.bare(axes)
    return plots.svg(figure)


def roofline(engine: EngineProfile) -> str:
    """Each computing layer by its operations a byte and its speed, under the roofs of the GPU. Returns: SVG text, "" where too little is
    known."""
    points = [
        (layer.flops / layer.bytes, layer.tflops, layer)
        for layer in engine.layers
        if layer.flops and layer.bytes and layer.tflops
    ]
    if not points or engine.peaks is None:
        return ""
    figure = plots.new_figure(10.5, 4.2)
    axes, labelled = figure.subplots(), set[str]()
    # Wide enough to show where memory bounds, also if one layer does all.
    low, high = min(min(x for x, *_ in points) / 2, 50.0), max(max(x for x, *_ in points) * 2, 1000.0)
    for name, rate in engine.peaks.flops.items():
        if engine.peaks.bytes_per_s and any(layer.precision == name for *_, layer in points):
            ridge = rate / engine.peaks.bytes_per_s
            xs = [low, ridge, high] if low < ridge < high else [low, high]
            axes.plot(
                xs,
                [min(x * engine.peaks.bytes_per_s, rate) / 1e12 for x in xs],
                color=_PRECISIONS.get(name, _OTHER),
                linewidth=1.2,
            )
            axes.annotate(
                f"{name} {rate / 1e12:.0f} TFLOP/s",
                (high, rate / 1e12),
                xytext=(-2, 3),
                textcoords="offset points",
                ha="right",
                fontsize=8,
            )
    total = sum(layer.seconds for layer in engine.layers) or 1.0
    for x, y, layer in points:
        color, label = _color(layer)
        axes.plot(
            x,
            y,
            marker="o",
            linestyle="none",
            color=color,
            alpha=0.7,
            markersize=3 + 26 * math.sqrt(layer.seconds / total),
            markeredgewidth=0,
        )
        if label not in labelled:
            axes.plot([], [], marker="o", linestyle="none", color=color, markersize=6, label=label)
        labelled.add(label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(bottom=min(y for _, y, _ in points) / 4)
    axes.grid(True, color="#e5e5e5", linewidth=0.8)
    axes.set_xlabel("operations a byte (area of a mark: the layer's time)")
    axes.set_ylabel("TFLOP/s")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    plots.bare(axes)
    return plots.svg(figure)


def memory(engines: Sequence[EngineProfile]) -> str:
    """What engines take of memory, a group of bars for each. Returns: SVG text, "" where nothing is known."""
    known = [(engine, engine_rows.memory(engine)) for engine in engines]
    listed = [
        (f"{engine.engine}{f' profile {engine.profile + 1}' if engine.profiles > 1 else ''}: {what}", size)
        for engine, sizes in known
        for what, size in sizes
    ]
    if not listed:
        return ""
    figure = plots.new_figure(10.5, 0.9 + 0.22 * len(listed))
    axes = figure.subplots()
    for row, (name, size) in enumerate(listed):
        mib = size / (1 << 20)
        axes.barh(row, mib, height=0.65, color=plots.GREY if "disk" in name or "if none" in name else plots.BLUE)
        plots.beside(axes, mib, row, f"{mib:.1f}")
    axes.set_yticks(range(len(listed)), [name for name, _ in listed], fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("MiB (grey: not on the GPU)")
    plots.bare(axes)
    return plots.svg(figure)
