"""GatherNd as a GatherV2 along the first axis: TF-TRT knows no GatherNd.

With constant indices the axes that they name become one, and the numbers are computed here. Indices of one number name the first axis as
they are. TensorRT looks at no index: of computed ones of several numbers, one that lies outside would silently take another element, where
TensorFlow raises on a CPU. These stay.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, folding, inferred, wider

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

OP = "GatherNd"
REASON = "TF-TRT knows no GatherNd; with dynamic shapes it becomes GatherV2 where its indices are constants, or name the first axis alone"
_INT32 = tf.int32.as_datatype_enum


def rewrite(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()) -> tuple[str, ...]:
    """Write them in place, for explicit batch mode; those inside functions and loops stay.

    In implicit batch mode the first axis is the batch, and TF-TRT puts nothing together with what takes rows of a constant.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. Returns: the names of those that were written.
    """
    sites = [node for node in graph_def.node if node.op == OP and node.name not in kept]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    nodes = {node.name: node for node in graph_def.node}
    writer = added_nodes.Writer(graph_def, nodes)
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if node.name in loops or op.inputs[0].dtype not in wider.TYPES:
            continue
        if _write(node, op, folding.value(node.input[1], nodes, frozenset({"Identity"})), writer):
            written.append(node.name)
    return tuple(written)


def _write(
    node: node_def_pb2.NodeDef, op: tf.Operation, indices: npt.NDArray[Any] | None, writer: added_nodes.Writer
) -> bool:
    """Write one, whose result keeps its name. Args: indices: where they are constants. Returns: whether it can be written."""
    name, source, dtype, shape = node.name, node.input[0], node.attr["Tparams"].type, op.inputs[1].shape
    count = shape[-1] if shape.rank else None
    if not count or op.inputs[0].shape.rank is None:
        return False
    if indices is not None:
        numbers = _numbers(op.inputs[0].shape, indices)
        together = None if numbers is None or count == 1 else _together(op.inputs[0].shape, count)
        if numbers is None or (count > 1 and together is None):
            return False
        if together is not None:
            sizes = writer.constant(f"{name}/sizes", np.array(together, np.int32))
            source = writer.add("Reshape", f"{name}/together", [source, sizes], T=dtype, Tshape=_INT32).name
        order = writer.constant(f"{name}/numbers", numbers)
    elif count == 1 and op.inputs[1].dtype == tf.int32:
        numbers_node = writer.add("Squeeze", f"{name}/numbers", [node.input[1]], T=_INT32)
        numbers_node.attr["squeeze_dims"].list.i[:] = [shape.rank - 1]
        order = numbers_node.name
    else:
        return False
    axis = writer.constant(f"{name}/axis", np.array(0, np.int32))
    added_nodes.become(node, "GatherV2", [source, order, axis], Tparams=dtype, Tindices=_INT32, Taxis=_INT32)
    node.attr["batch_dims"].i = 0
    return True


def _numbers(shape: tf.TensorShape, indices: npt.NDArray[Any]) -> npt.NDArray[np.int32] | None:
    """Which elements of the axes that indices name, taken as one axis, these are. None where the graph does not prove that they are there:
    only the first axis may be open, because GatherV2 looks at it, too."""
    inner = shape[1 : indices.shape[-1]].as_list()
    if None in inner or (indices < 0).any() or (indices > np.iinfo(np.int32).max).any():
        return None
    if any((indices[..., axis] >= size).any() for axis, size in enumerate(inner, 1)):
        return None
    if shape[0] is not None and (indices[..., 0] >= shape[0]).any():
        return None
    numbers = np.zeros(indices.shape[:-1], np.int64)
    for axis, size in enumerate([1, *inner]):
        numbers = numbers * size + indices[..., axis]
    return numbers.astype(np.int32) if numbers.size and numbers.max() <= np.iinfo(np.int32).max else None


def _together(shape: tf.TensorShape, count: int) -> list[int] | None:
    """The sizes of data whose first axes are one; None where they are no constants."""
    first, *inner = shape[:count].as_list()
    rest = shape[count:].as_list()
    sizes = [-1 if first is None else first * int(np.prod(inner)), *(-1 if size is None else size for size in rest)]
    return None if sizes.count(-1) > 1 or 0 in sizes else sizes
