"""A graph in which TensorFlow has inferred all shapes that it can. Nothing is run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape

# A constant with more elements is not a shape.
_LARGEST_SHAPE = 64
_LOOKUP = "LookupTableFindV2"


def shapes(
    graph_def: graph_pb2.GraphDef, given: Mapping[str, Shape] | None = None, first_round: bool = False
) -> tf.Graph:
    """The graph with its shapes; large constants are placeholders there, and a lookup of scalars has the shape of its keys.

    Args: graph_def: frozen. given: {placeholder: its shape here}; the others keep theirs. first_round: loops have the shapes of their
      first round; by default tensors that change from round to round may have any shape.
    Raises: ValueError where the graph refuses a shape.
    """
    entered = {node.name: node.input[0] for node in graph_def.node if node.op == "Enter"} if first_round else {}
    if any(node.op == _LOOKUP for node in graph_def.node):
        with contextlib.suppress(ValueError):  # of a table of vectors
            return _imported(graph_def, given or {}, entered, lookups=True)
    return _imported(graph_def, given or {}, entered, lookups=False)


def _imported(
    graph_def: graph_pb2.GraphDef, given: Mapping[str, Shape], entered: Mapping[str, str], lookups: bool
) -> Any:
    slim = graph_pb2.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if _is_large(node):
            _as_placeholder(node, slim)
        else:
            copy = slim.node.add()
            copy.CopyFrom(node)
            _stand_in(copy, slim, given, entered, lookups)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(slim, name="")
    return graph


def _is_large(node: node_def_pb2.NodeDef) -> bool:
    result: bool = (
        node.op == "Const"
        and np.prod([size.size for size in node.attr["value"].tensor.tensor_shape.dim]) > _LARGEST_SHAPE
    )
    return result


def _as_placeholder(constant: node_def_pb2.NodeDef, slim: graph_pb2.GraphDef) -> None:
    copy = slim.node.add(name=constant.name, op="Placeholder", input=constant.input)
    copy.attr["dtype"].CopyFrom(constant.attr["dtype"])
    copy.attr["shape"].shape.CopyFrom(constant.attr["value"].tensor.tensor_shape)


def _stand_in(
    node: node_def_pb2.NodeDef,
    slim: graph_pb2.GraphDef,
    given: Mapping[str, Shape],
    entered: Mapping[str, str],
    lookups: bool,
) -> None:
    """Give a node its shape if TensorFlow cannot, in place."""
    if node.name in given:
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(given[node.name]).as_proto())
    elif node.op == "Merge" and node.input[0] in entered:
        # Merge forgets the shapes of the elements of a list, and Enter every shape that may change.
        node.op, node.input[:] = "Identity", [entered[node.input[0]]]
        del node.attr["N"]
    elif node.op == _LOOKUP and lookups:
        kinds = node.attr["Tin"].type, node.attr["Tout"].type
        node.op, node.input[:] = "Fill", [_sizes(node, 1, kinds[0], slim), node.input[2]]
        node.attr.clear()
        node.attr["T"].type = kinds[1]
    elif node.op == "TensorListFromTensor":
        # It may know less about the elements than their tensor does.
        node.input[1] = _elements(node, _sizes(node, 0, node.attr["element_dtype"].type, slim), slim)
        node.attr["shape_type"].type = types_pb2.DT_INT32


def _sizes(node: node_def_pb2.NodeDef, index: int, dtype: int, slim: graph_pb2.GraphDef) -> str:
    """Name of a new node with the shape of a node's input."""
    sizes = slim.node.add(name=f"{node.name}/sizes_", op="Shape", input=[node.input[index]])
    sizes.attr["T"].type = dtype
    result: str = sizes.name
    return result


def _elements(node: node_def_pb2.NodeDef, sizes: str, slim: graph_pb2.GraphDef) -> str:
    """Name of a new node with all sizes but the first."""
    bounds = [slim.node.add(name=f"{node.name}/{name}_", op="Const") for name in ("begin", "size")]
    for bound, value in zip(bounds, (1, -1), strict=True):
        bound.attr["dtype"].type = types_pb2.DT_INT32
        bound.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([value], tf.int32))
    rest = slim.node.add(name=f"{node.name}/rest_", op="Slice", input=[sizes, *(constant.name for constant in bounds)])
    rest.attr["T"].type = rest.attr["Index"].type = types_pb2.DT_INT32
    result: str = rest.name
    return result
