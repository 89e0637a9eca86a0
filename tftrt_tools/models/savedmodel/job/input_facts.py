"""The inputs of signatures, with all that the graph tells of them. Works on protos alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import argument_order, graph, index_limits
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    from tensorflow.core.protobuf import meta_graph_pb2


def specs(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, tuple[InputSpec, ...]]:
    """{signature: InputSpecs of its inputs, with the limits of their values and their places}."""
    limits, places = index_limits.find(meta_graph), argument_order.find(meta_graph)
    return {
        name: tuple(
            spec.knowing(limits.get(name, {}).get(spec.name), places.get(name, {}).get(spec.name))
            for spec in graph.specs(definition.inputs)
        )
        for name, definition in signatures.definitions(meta_graph).items()
    }
