"""The order in which the user's function takes the inputs of a signature; the signature has them in alphabetical order. Works on protos
alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import graph

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def find(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, dict[str, int]]:
    """{signature: {input: its place among the arguments}}, only for signatures with several inputs that TF2 saved: it wraps the user's
    function, which the wrapper calls with its arguments in order."""
    functions = graph.library(meta_graph.graph_def)
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    orders = {
        name: _places(definition, nodes, functions)
        for name, definition in signatures.definitions(meta_graph).items()
        if len(definition.inputs) > 1
    }
    return {name: places for name, places in orders.items() if places}


def _places(
    signature: meta_graph_pb2.SignatureDef,
    nodes: dict[str, graph_pb2.NodeDef],
    functions: dict[str, function_pb2.FunctionDef],
) -> dict[str, int]:
    called = {info.name.partition(":")[0] for info in signature.outputs.values()}
    node = nodes.get(called.pop()) if len(called) == 1 else None
    wrapper = functions.get(graph.attribute(node, "f").func.name) if node is not None and node.op in _CALLS else None
    if node is None or wrapper is None:
        return {}
    inner = [call for call in wrapper.node_def if call.op in _CALLS]
    if len(inner) != 1:
        return {}
    fed = {info.name.partition(":")[0]: name for name, info in signature.inputs.items()}
    arguments = {
        arg.name: fed.get(source.partition(":")[0])
        for arg, source in zip(wrapper.signature.input_arg, node.input, strict=False)
    }
    order = [name for source in inner[0].input if (name := arguments.get(source))]
    return {name: place for place, name in enumerate(order)} if sorted(order) == sorted(signature.inputs) else {}
