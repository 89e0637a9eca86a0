"""The plot of `tftrt sensitivity`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tftrt_tools.accuracy import harm
from tftrt_tools.command_line.report import pictures, plots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from tftrt_tools.accuracy.harm import Effect, Node, SignatureHarm
    from tftrt_tools.base.choices import Precision

# Room for a bar's label right of the longest bar, as a share of that bar.
_LABEL_SHARE = 0.15


def bars(signatures: Sequence[SignatureHarm], precision: Precision, kind: str = "svg", most: int = 30) -> bytes:
    """Horizontal bars of each node's share of the noise of all nodes, when each is rounded alone, the worst on top. The label is the SNR
    in dB that the node leaves. The nodes suggested for a higher precision are red.

    Args: signatures: harm.SignatureHarms; precision: "INT8" or "FP16"; kind: "svg" or "png"; most: bars of a signature.
    Returns: bytes of the file.
    """
    heights = [min(len(one.nodes), most) for one in signatures]
    figure = plots.new_figure(10, 0.5 + 0.8 * len(signatures) + 0.28 * sum(heights))
    charts = figure.subplots(len(signatures), squeeze=False, height_ratios=[count + 1.5 for count in heights])[:, 0]
    for axes, one in zip(charts, signatures, strict=True):
        _chart(axes, one, precision, one.nodes[:most])
    suggested = {name for one in signatures for name in one.suggested_nodes}
    if any(node.name in suggested for one in signatures for node in one.nodes[:most]):
        figure.legend(handles=_legend(), loc="outside upper right", ncol=2, frameon=False)
    return pictures.content(figure, kind)


def _legend() -> list[Any]:
    from matplotlib import patches

    return [
        patches.Patch(color=plots.BLUE, label="rounded alone"),
        patches.Patch(color=plots.RED, label="rounded alone, suggested for a higher precision"),
    ]


def _chart(axes: Axes, signature: SignatureHarm, precision: Precision, nodes: Sequence[Node]) -> None:
    kept = set(signature.suggested_nodes)
    for row, node in enumerate(nodes):
        axes.barh(row, node.share, height=0.7, color=plots.RED if node.name in kept else plots.BLUE)
        axes.annotate(_label(node), (node.share, row), xytext=(4, 0), textcoords="offset points", va="center")
    names = plots.without_shared_scopes([node.name for node in nodes])
    axes.set_yticks(
        range(len(nodes)),
        [f"{name} ({node.op})" if node.op not in name else name for name, node in zip(names, nodes, strict=True)],
    )
    axes.set_ylim(len(nodes) - 0.4, -0.6)
    axes.set_xlim(0, (1 + _LABEL_SHARE) * max((node.share for node in nodes), default=0) or 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    more = f" (the worst {len(nodes)} of {len(signature.nodes)})" if len(signature.nodes) > len(nodes) else ""
    left = _level(harm.worst(signature.total))
    title = f"{signature.label}, {precision}{more}; everything rounded: {left}"
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(
        "share of the noise of all nodes at its worst output, and beside it the signal to noise that the node leaves there"
    )
    plots.bare(axes)


def _label(node: Node) -> str:
    return f"{_level(node.worst)}, {node.share:.0%}"


def _level(worst: Effect) -> str:
    return "NaN or Inf" if worst.nonfinite else "no noise" if not worst.noise else f"{worst.snr_db:.1f} dB"
