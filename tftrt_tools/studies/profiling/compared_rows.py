"""The rows of a comparison's tables, for pages and terminals."""

from __future__ import annotations

from tftrt_tools.base import terminal
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies.profiling import engine_rows, rows
from tftrt_tools.studies.profiling.comparison import CallPair
from tftrt_tools.studies.profiling.engines_compare import Comparison, Side

PARTS = ("part of the call", "busy", ">A ms", ">B ms", ">difference")
LAYERS = ("nodes", "A", ">ms", "B", ">ms", ">difference", "remark")


def headline(pair: CallPair) -> list[str]:
    """Lines on two calls as a whole."""
    lines = [pair.one if pair.one == pair.other else f"A {pair.one}, B {pair.other}"]
    lines.append(f"A {pair.one_latency.text()}, B {pair.other_latency.text()}: B is {pair.speed}")
    return lines


def parts(pair: CallPair) -> list[tuple[str, ...]]:
    """The rows under PARTS."""
    return [
        (
            part.name,
            part.device,
            rows.ms(part.one),
            rows.ms(part.other),
            f"{1e3 * ((part.other or 0.0) - (part.one or 0.0)):+.4f}",
        )
        for part in pair.parts
    ]


def engines(compared: Comparison) -> str:
    """A line on two engines."""
    return (
        f"A {compared.one} ({shape_grammar.call_text(dict(compared.one_shapes))}), "
        f"B {compared.other} ({shape_grammar.call_text(dict(compared.other_shapes))})"
    )


def layers(compared: Comparison) -> list[tuple[str, ...]]:
    """The rows under LAYERS, the largest difference first; rows without time are left out."""
    return [
        (
            _nodes(row.nodes),
            _side(row.one),
            rows.ms(row.one.seconds),
            _side(row.other),
            rows.ms(row.other.seconds),
            f"{1e3 * row.difference:+.4f}",
            "fused otherwise" if row.fused_otherwise else "",
        )
        for row in compared.rows
        if row.one.seconds or row.other.seconds
    ]


def _nodes(names: tuple[str, ...]) -> str:
    return engine_rows.short(" + ".join(names)) if names else "layers that only move values"


def _side(side: Side) -> str:
    count = len(side.layers)
    return " ".join(filter(None, ("/".join(side.precisions), terminal.counted(count, "layer") if count else "none")))


def remarks(compared: Comparison) -> list[str]:
    """Lines on nodes that only one of the two has."""
    return [
        f"only in {which}: {', '.join(map(engine_rows.node, names[:8]))}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
        for which, names in (("A", compared.only_one), ("B", compared.only_other))
        if names
    ]
