"""Placeholders with a default that no signature names, as TF1's `is_training` and `keep_prob`. No TensorFlow here.

Nobody can feed them: a server and `tf.saved_model.load` know the tensors of a signature alone. So each always has its default.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.models.savedmodel.shapes import InputSpec

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

OP = "PlaceholderWithDefault"


def specs(graph_def: graph_pb2.GraphDef, named: Container[str]) -> tuple[InputSpec, ...]:
    """The unnamed placeholders of a graph and its functions. Args: named: tensors of the signature's inputs, "node:0"."""
    constants = {node.name: node for node in graph_def.node if node.op == "Const"}
    return tuple({node.name: _spec(node, constants) for node in nodes(graph_def, named)}.values())


def of_signature(graph_def: graph_pb2.GraphDef, signature: meta_graph_pb2.SignatureDef) -> tuple[InputSpec, ...]:
    """Those of a MetaGraph's graph, without those of the main graph that no output of the signature depends on."""
    by_name = {node.name: node for node in graph_def.node}
    waiting, seen = [output.name for output in signature.outputs.values()], set[str]()
    while waiting:
        name = waiting.pop().lstrip("^").split(":")[0]
        if name in by_name and name not in seen:
            seen.add(name)
            waiting += by_name[name].input
    named = [info.name for info in signature.inputs.values()] + [f"{name}:0" for name in by_name.keys() - seen]
    return specs(graph_def, named)


def nodes(graph_def: graph_pb2.GraphDef, named: Container[str]) -> Iterator[node_def_pb2.NodeDef]:
    """Their NodeDefs. Args: as of `specs`."""
    yield from (node for node in graph_def.node if node.op == OP and f"{node.name}:0" not in named)
    yield from (node for function in graph_def.library.function for node in function.node_def if node.op == OP)


def _spec(node: node_def_pb2.NodeDef, constants: Mapping[str, node_def_pb2.NodeDef]) -> InputSpec:
    shape = graph.shape_of(graph.attribute(node, "shape").shape)
    default = constants.get(node.input[0].split(":")[0])
    if shape is None and default is not None:
        shape = graph.shape_of(graph.attribute(default, "value").tensor.tensor_shape)
    return InputSpec(node.name, graph.dtype_name(graph.attribute(node, "dtype").type), shape)
