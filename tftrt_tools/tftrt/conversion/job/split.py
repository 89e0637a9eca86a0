"""Splits engine ops of a converted graph at nodes that TensorRT refused: these stay in TensorFlow, the rest is offered again.

All other engine ops stay as they are, with their names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel.job import graph, inline
from tftrt_tools.tftrt.conversion.job import graph_pass

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen
    from tftrt_tools.tftrt.conversion.pass_log import LeftOut
    from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """A graph whose engine ops were split. nodes: {node as the segment named it: its name in the graph}. left_out: nodes that were in an
    engine, compute something, and stay in TensorFlow now."""

    graph_def: graph_pb2.GraphDef
    nodes: dict[str, str]
    left_out: tuple[LeftOut, ...]


def split(
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    refused: Mapping[str, Collection[str]],
    reasons: Mapping[str, str],
    settings: Settings,
    prefix: str,
) -> Split:
    """Split engine ops of the main graph.

    Args: frozen: of the converted signature. graph_def: its graph; left as it is. refused: {engine: nodes of its segment that stay in
      TensorFlow}. reasons: {node: why it stays there}, of these and of earlier ones. prefix: of the new engines' names.
    Returns: Split. Raises: TftrtError where the pass fails.
    """
    nodes: dict[str, str] = {}
    kept = frozen.thrown.setdefault(settings.dynamic, {})
    left: list[LeftOut] = []
    for number, (engine, named) in enumerate(refused.items()):
        (before,) = (one for one in graph.engine_ops(graph_def) if one.name == engine)
        # What was in TensorFlow stays there. Constants may be read by engines, which copy them.
        outside = {node.name for node in graph_def.node if node.op not in (graph.ENGINE_OP, "Const")}
        inlined, tensors = inline.inline_segments(graph_def, only=[engine], own_names=True)
        _bypass(inlined, engine, frozen.outputs)
        own = {name: tensors[engine][f"{name}:0"].split(":")[0] for name in named}
        nodes.update(own)
        kept.update({own[name]: reasons[name] for name in named})
        graph_def, log = graph_pass.once(
            frozen,
            inlined,
            _bounded(settings, graph_def),
            before.precision,
            outside & {one.name for one in inlined.node},
        )
        _name(graph_def, inlined, f"{prefix}_{number}")
        left += [
            one for one in graph_pass.left_of(graph_def, log, frozenset(), settings, frozen) if one.node not in outside
        ]
    return Split(graph_def=graph_def, nodes=nodes, left_out=tuple(left))


def _bounded(settings: Settings, graph_def: graph_pb2.GraphDef) -> Settings:
    """The settings for one more pass over a graph: --max_engines bounds all engines together."""
    others = len(graph.engine_ops(graph_def)) - 1
    return dataclasses.replace(settings, max_engines=settings.max_engines and max(1, settings.max_engines - others))


def _bypass(graph_def: graph_pb2.GraphDef, engine: str, fetched: Sequence[str]) -> None:
    """Let readers of an engine op's outputs read the nodes of its segment, in place. Its IdentityN stays where something else needs it."""
    (node,) = (one for one in graph_def.node if one.name == engine)
    sources = [source for source in node.input if not source.startswith("^")]
    needed = len(sources) < len(node.input) or any(tensor.split(":")[0] == engine for tensor in fetched)
    for reader in graph_def.node:
        for index, source in enumerate(reader.input):
            name, _, port = source.partition(":")
            needed |= source == f"^{engine}"
            if name == engine:
                reader.input[index] = sources[int(port or 0)]
    if not needed:
        graph_def.node.remove(node)


def _name(graph_def: graph_pb2.GraphDef, before: graph_pb2.GraphDef, prefix: str) -> None:
    """Give the engine ops that were not in the graph `before` names of their own, in place, and their segments."""
    known = {engine.name for engine in graph.engine_ops(before)}
    new = [node.name for node in graph_def.node if node.op == graph.ENGINE_OP and node.name not in known]
    names = {old: f"{prefix}_{number}" for number, old in enumerate(new)}
    graph.rename(graph_def, names, {f"{old}_native_segment": f"{name}_native_segment" for old, name in names.items()})
