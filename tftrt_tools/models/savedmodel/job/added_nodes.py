"""New nodes of a graph, under names that no other node has; and nodes that become others."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2


def free(name: str, taken: Container[str]) -> str:
    """`name`, longer where it is taken."""
    while name in taken:
        name += "_"
    return name


def constant(
    name: str, values: npt.NDArray[Any], graph_def: graph_pb2.GraphDef, nodes: dict[str, node_def_pb2.NodeDef]
) -> str:
    """Add a constant. Args: nodes: {name: node} of the graph, which gets the new one too. Returns: its name."""
    node = graph_def.node.add(name=free(name, nodes), op="Const")
    nodes[node.name] = node
    node.attr["dtype"].type = tf.as_dtype(values.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
    result: str = node.name
    return result


class Writer:
    """Adds nodes to one graph. Args: nodes: {name: node} of it, which gets the new ones."""

    def __init__(self, graph_def: graph_pb2.GraphDef, nodes: dict[str, node_def_pb2.NodeDef]) -> None:
        self._graph_def, self._nodes = graph_def, nodes

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """As the function `constant`."""
        return constant(name, values, self._graph_def, self._nodes)

    def add(self, op: str, name: str, sources: Iterable[str], **types: int) -> node_def_pb2.NodeDef:
        """Add a node. Args: types: its attributes that are types. Returns: it."""
        node = self._graph_def.node.add(name=free(name, self._nodes), op=op, input=sources)
        self._nodes[node.name] = node
        for key, value in types.items():
            node.attr[key].type = value
        return node


def become(node: node_def_pb2.NodeDef, op: str, sources: Iterable[str], **types: int) -> None:
    """Make a node another one, of the same name and behind the same nodes. Args: types: its attributes that are types; of others it has
    none."""
    controls = [source for source in node.input if source.startswith("^")]
    node.op, node.input[:] = op, [*sources, *controls]
    node.attr.clear()
    for key, value in types.items():
        node.attr[key].type = value
