"""New nodes of a graph, under names that no other node has."""

from __future__ import annotations

from collections.abc import Container
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
