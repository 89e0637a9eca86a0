"""Whether a session finds all variables of a SavedModel, as TensorFlow Serving loads it: it runs the saver's op and the initializer of the
main graph. `tf.saved_model.load` restores by objects, and finds more. Works on protos; nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import graph

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

_HANDLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_INITIALIZER = "__saved_model_init_op"


def lost(meta_graph: meta_graph_pb2.MetaGraphDef) -> tuple[str, ...]:
    """Names of the variables that signatures read and that a session leaves without a value."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    definitions = signatures.definitions(meta_graph)
    read = _behind([output.name for signature in definitions.values() for output in signature.outputs.values()], nodes)
    given = [meta_graph.saver_def.restore_op_name] if meta_graph.saver_def.restore_op_name else []
    if _INITIALIZER in meta_graph.signature_def:
        given += [output.name for output in meta_graph.signature_def[_INITIALIZER].outputs.values()]
    for name in ("saved_model_main_op", "legacy_init_op"):
        given += meta_graph.collection_def[name].node_list.value if name in meta_graph.collection_def else []
    return tuple(sorted(_variable(nodes[name]) for name in read - _behind(given, nodes) if nodes[name].op in _HANDLES))


def _behind(tensors: Iterable[str], nodes: Mapping[str, node_def_pb2.NodeDef]) -> set[str]:
    """Names of all nodes that tensors or nodes depend on."""
    waiting, seen = list(tensors), set[str]()
    while waiting:
        name = waiting.pop().lstrip("^").split(":")[0]
        if name in nodes and name not in seen:
            seen.add(name)
            waiting += nodes[name].input
    return seen


def _variable(node: node_def_pb2.NodeDef) -> str:
    result: str = graph.attribute(node, "shared_name").s.decode(errors="replace") or node.name
    return result
