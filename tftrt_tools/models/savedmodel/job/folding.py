"""Cuts a part that consists of a few kinds of ops out of a graph, and runs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

if TYPE_CHECKING:
    import numpy.typing as npt

# Ops that compute a filter from constants: Conv1D gives it an axis, a normalisation of weights divides it by its length. Quantization
# nodes are not among them, because they have to stay.
FILTERS = frozenset(
    {
        "Identity",
        "StopGradient",
        "Snapshot",
        "ExpandDims",
        "Squeeze",
        "Reshape",
        "Transpose",
        "Mul",
        "RealDiv",
        "Add",
        "AddV2",
        "Sub",
        "Neg",
        "Square",
        "Sqrt",
        "Rsqrt",
        "Maximum",
        "Sum",
        "Mean",
    }
)


def name_of(source: str) -> str:
    """The node of a reference ("node:port" or "^node")."""
    return source.lstrip("^").split(":")[0]


def behind(
    sources: Iterable[str], nodes: dict[str, node_def_pb2.NodeDef], ops: frozenset[str]
) -> dict[str, node_def_pb2.NodeDef] | None:
    """{name: node} of all nodes that compute some tensors, up to constants and placeholders; None if an op is not among `ops`."""
    ancestors, waiting = {}, [name_of(source) for source in sources]
    while waiting:
        name = waiting.pop()
        if name in ancestors:
            continue
        node = nodes[name]
        if node.op not in ops and node.op != "Const":
            return None
        ancestors[name] = node
        if node.op != "Shape":
            waiting += [name_of(source) for source in node.input if not source.startswith("^")]
    return ancestors


def part(found: dict[str, node_def_pb2.NodeDef]) -> graph_pb2.GraphDef:
    """A graph of what `behind` found; each Shape is a placeholder of its name."""
    result = graph_pb2.GraphDef()
    for node in found.values():
        copy = result.node.add()
        copy.CopyFrom(node)
        copy.device = ""
        copy.input[:] = [source for source in node.input if not source.startswith("^")]
        if "_class" in copy.attr:  # colocation with nodes that may not be here
            del copy.attr["_class"]
        if node.op == "Shape":
            dtype = node.attr["out_type"].type or tf.int32.as_datatype_enum
            copy.op, copy.input[:] = "Placeholder", []
            copy.attr.clear()
            copy.attr["dtype"].type = dtype
    return result


def value(source: str, nodes: dict[str, node_def_pb2.NodeDef], ops: frozenset[str]) -> npt.NDArray[Any] | None:
    """The array of a tensor that `ops` compute from constants alone, or None."""
    ancestors = behind([source], nodes, ops - {"Shape"})
    if ancestors is None:
        return None
    if len(ancestors) == 1:
        array: npt.NDArray[Any] = tf.make_ndarray(nodes[name_of(source)].attr["value"].tensor)
        return array
    with tf.device("/CPU:0"):
        function = tf.compat.v1.wrap_function(
            lambda: tf.import_graph_def(part(ancestors), return_elements=[_tensor(source)]), []
        )
        array = function()[0].numpy()
        return array


def _tensor(source: str) -> str:
    return source if ":" in source else f"{source}:0"
