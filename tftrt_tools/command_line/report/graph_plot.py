"""The picture of a model's graph: which engine holds which ops, what TensorFlow runs, and where ops that usually become one layer did not.

An op stands right of all that it reads; the picture goes on in the next line, as text does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tftrt_tools.command_line.report import bench_plots, plots

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matplotlib.axes import Axes

    from tftrt_tools.studies.profiling.call_graph import GraphNode

_ENGINES = (plots.GREEN, bench_plots.SKY, bench_plots.PURPLE, bench_plots.ORANGE, bench_plots.YELLOW, plots.BLUE)
# Columns of a line of the picture, and the most nodes that have their ops' names.
_COLUMNS, _NAMED = 26, 500
_MOST = 1500
_Place = tuple[float, float]


def draw(
    nodes: Sequence[GraphNode], unfused: Collection[tuple[str, str]] = (), slow: Mapping[str, str] | None = None
) -> str:
    """The graph.

    Args: nodes: each after those that it reads. unfused: pairs of nodes that usually are one layer and are not here. slow: {node: text
      beside it}. Returns: SVG text, "" for no nodes or too many.
    """
    if not nodes or len(nodes) > _MOST:
        return ""
    places, lines = _places(nodes)
    figure = plots.new_figure(10.5, 0.7 + 0.3 * lines)
    axes = figure.subplots()
    engines = list(dict.fromkeys(node.engine for node in nodes if node.engine))
    colors = {engine: _ENGINES[number % len(_ENGINES)] for number, engine in enumerate(engines)}
    _edges(axes, nodes, places, colors, set(unfused))
    for node in nodes:
        x, y = places[node.name]
        if node.engine:
            axes.plot(
                x, y, marker="o", markersize=15, color=colors[node.engine], alpha=0.3, markeredgewidth=0, zorder=1
            )
        axes.plot(x, y, marker="o", markersize=4.5, color=colors[node.engine] if node.engine else plots.RED, zorder=4)
        if len(nodes) <= _NAMED:
            axes.annotate(
                node.op[:14],
                (x, y),
                xytext=(0, -4 if x % 2 else -9),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=4.5,
                color="#333333",
                zorder=5,
            )
        if slow and node.name in slow:
            axes.annotate(
                slow[node.name],
                (x, y),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=5.5,
                fontweight="bold",
            )
    for engine in engines:
        axes.plot([], [], marker="o", linestyle="none", markersize=10, color=colors[engine], alpha=0.5, label=engine)
    if any(not node.engine for node in nodes):
        axes.plot([], [], marker="o", linestyle="none", markersize=5, color=plots.RED, label="TensorFlow")
    if unfused:
        axes.plot([], [], color="black", linewidth=2.5, label="not fused")
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    axes.set_xlim(-0.8, _COLUMNS - 0.2)
    axes.set_ylim(lines - 0.2, -0.8)
    axes.set_axis_off()
    return plots.svg(figure)


def _places(nodes: Sequence[GraphNode]) -> tuple[dict[str, _Place], int]:
    """({node: (column, line)}, lines). Nodes of one depth stand below each other; a line of text is as high as its fullest depth."""
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.name] = 1 + max((depth[name] for name in node.inputs if name in depth), default=-1)
    beside: dict[int, list[GraphNode]] = {}
    for node in nodes:
        beside.setdefault(depth[node.name], []).append(node)
    places: dict[str, _Place] = {}
    top = 0.0
    for row in range(math.ceil((max(depth.values()) + 1) / _COLUMNS)):
        columns = range(row * _COLUMNS, (row + 1) * _COLUMNS)
        for column in columns:
            for number, node in enumerate(sorted(beside.get(column, ()), key=lambda one: _wanted(one, places, top))):
                places[node.name] = (column - row * _COLUMNS, top + number)
        top += max((len(beside.get(column, ())) for column in columns), default=0) + 0.6
    return places, math.ceil(top)


def _wanted(node: GraphNode, places: Mapping[str, _Place], top: float) -> float:
    """The mean line of what a node reads, so that edges cross less."""
    lines = [places[name][1] for name in node.inputs if name in places]
    return sum(lines) / len(lines) if lines else top


def _edges(
    axes: Axes,
    nodes: Sequence[GraphNode],
    places: Mapping[str, _Place],
    colors: Mapping[str, str],
    unfused: Collection[tuple[str, str]],
) -> None:
    engine_of = {node.name: node.engine for node in nodes}
    for node in nodes:
        for source in node.inputs:
            if source not in places:
                continue
            (x, y), (to_x, to_y) = places[source], places[node.name]
            wraps = to_x < x
            if node.engine and engine_of[source] == node.engine and not wraps:
                axes.plot(
                    [x, to_x],
                    [y, to_y],
                    color=colors[node.engine],
                    linewidth=11,
                    alpha=0.3,
                    solid_capstyle="round",
                    zorder=1,
                )
            axes.plot([x, to_x], [y, to_y], color="#999999", linewidth=0.25 if wraps else 0.7, zorder=2)
    for one, other in unfused:
        if one in places and other in places:
            axes.plot(*zip(places[one], places[other], strict=True), color="black", linewidth=2.5, zorder=3)
