"""The plot of `tftrt sensitivity`. Colours and manners are those of `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tftrt_tools.accuracy import harm
from tftrt_tools.command_line.report import pictures, plots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from tftrt_tools.accuracy.harm import Node, SignatureHarm
    from tftrt_tools.base.choices import Precision

_CEILING_DB, _FLOOR_DB = 160.0, -20.0
# Room for a bar's label right of the longest bar, as a share of the axis.
_LABEL_SHARE = 0.2


def bars(signatures: Sequence[SignatureHarm], precision: Precision, kind: str = "svg", most: int = 30) -> bytes:
    """Horizontal bars of the SNR in dB that is left when each node is rounded alone, the worst on top.

    The longer the bar, the more harm: it reaches from a little above the best SNR shown down to its own. The nodes suggested for a
    higher precision are red.

    Args: signatures: harm.SignatureHarms; precision: "INT8" or "FP16"; kind: "svg" or "png"; most: bars of a signature.
    Returns: bytes of the file.
    """
    heights = [min(len(one.nodes), most) for one in signatures]
    figure = plots.new_figure(10, 0.5 + 0.8 * len(signatures) + 0.28 * sum(heights))
    charts = figure.subplots(len(signatures), squeeze=False, height_ratios=[count + 1.5 for count in heights])[:, 0]
    for axes, one in zip(charts, signatures, strict=True):
        _chart(axes, one, precision, one.nodes[:most])
    figure.legend(handles=_legend(), loc="outside upper right", ncol=3, frameon=False)
    return pictures.content(figure, kind)


def _legend() -> list[Any]:
    from matplotlib import lines, patches

    return [
        patches.Patch(color=plots.BLUE, label="rounded alone"),
        patches.Patch(color=plots.RED, label="rounded alone, suggested for a higher precision"),
        lines.Line2D([], [], color="black", linewidth=1.6, label="everything rounded"),
    ]


def _chart(axes: Axes, signature: SignatureHarm, precision: Precision, nodes: Sequence[Node]) -> None:
    levels, total = [_clipped(node.worst.snr_db) for node in nodes], _clipped(harm.worst(signature.total).snr_db)
    best, least = max(*levels, total) + 3.0, min(*levels, total)
    kept = set(signature.suggested_nodes)
    axes.axvline(total, color="black", linewidth=1.6, zorder=1)
    for row, (node, level) in enumerate(zip(nodes, levels, strict=True)):
        axes.barh(
            row, level - best, left=best, height=0.7, color=plots.RED if node.name in kept else plots.BLUE, zorder=2
        )
        axes.annotate(
            _label(node),
            (level, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            zorder=3,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )
    names = plots.without_shared_scopes([node.name for node in nodes])
    axes.set_yticks(
        range(len(nodes)),
        [f"{name} ({node.op})" if node.op not in name else name for name, node in zip(names, nodes, strict=True)],
    )
    axes.set_ylim(len(nodes) - 0.4, -0.6)
    axes.set_xlim(best, least - _LABEL_SHARE * (best - least))
    more = f" (the worst {len(nodes)} of {len(signature.nodes)})" if len(signature.nodes) > len(nodes) else ""
    axes.set_title(f"{signature.label}, {precision}{more}", loc="left", fontsize=10)
    axes.set_xlabel("signal to noise at the worst output, dB, and share of the noise of all nodes")
    plots.bare(axes)


def _label(node: Node) -> str:
    level = (
        "NaN or Inf" if node.worst.nonfinite else "no noise" if not node.worst.noise else f"{node.worst.snr_db:.1f} dB"
    )
    return f"{level}, {node.share:.0%}"


def _clipped(snr_db: float) -> float:
    return max(min(snr_db, _CEILING_DB), _FLOOR_DB)
