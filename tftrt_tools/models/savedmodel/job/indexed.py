"""Mirrored paddings and reversed tensors as one GatherV2 for each axis: TF-TRT knows neither MirrorPad nor ReverseV2; and paddings of two
or three dimensions as paddings of four, which are all that it takes.

Where the size of an axis is known, both ops take its elements in an order that is a constant.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, inferred

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

OPS = frozenset({"MirrorPad", "ReverseV2"})
_TYPES = (tf.float32, tf.int32)
_INT32 = tf.int32.as_datatype_enum
# {dimensions of a padding: where new ones of size 1 come in, so that the others are height and width}.
_NEW_AXES: dict[int, tuple[int, ...]] = {2: (1, 3), 3: (3,)}


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write them in place; those of open axes, and those inside functions and loops, stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are.
    Returns: (names of mirrored paddings and reversed tensors, names of paddings of two or three dimensions) that were written.
    """
    sites = [node for node in graph_def.node if node.op in (*OPS, "Pad") and node.name not in kept]
    if not sites:
        return (), ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    writer = added_nodes.Writer(graph_def, {node.name: node for node in graph_def.node})
    indexed, lifted = [], []
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if node.name in loops or op.inputs[0].dtype not in _TYPES:
            continue
        if node.op == "Pad":
            if op.inputs[0].dtype == tf.float32 and _lift(node, op, writer):
                lifted.append(node.name)
        elif orders := _orders(op):
            gather(node, orders, writer)
            indexed.append(node.name)
    return tuple(indexed), tuple(lifted)


def _orders(op: tf.Operation) -> list[tuple[int, npt.NDArray[np.int32]]]:
    """[(axis, the elements that the result has along it)]; [] where an axis or its size is not known."""
    how, shape = tf.get_static_value(op.inputs[1]), op.inputs[0].shape
    if how is None or shape.rank is None:
        return []
    if op.type == "ReverseV2":
        axes = sorted({int(axis) % shape.rank for axis in how.ravel()})
        orders = [(axis, np.arange(shape[axis] or 0, dtype=np.int32)[::-1]) for axis in axes]
    else:
        edge = op.get_attr("mode") == b"SYMMETRIC"
        axes = [axis for axis in range(shape.rank) if how[axis].any()]
        orders = [(axis, _mirrored(shape[axis] or 0, how[axis], edge)) for axis in axes]
    # The batch is no axis of an engine in one of the modes.
    return [] if any(axis == 0 or shape[axis] is None or not order.size for axis, order in orders) else orders


def _mirrored(size: int, amounts: npt.NDArray[np.int32], edge: bool) -> npt.NDArray[np.int32]:
    """Args: amounts: elements to add in front and behind. edge: whether the elements at the ends are repeated, as SYMMETRIC has it."""
    (before, after), positions = amounts.tolist(), np.arange(size, dtype=np.int32)
    inner = positions if edge else positions[1:]
    front = inner[:before][::-1]
    back = (positions if edge else positions[:-1])[::-1][:after]
    return np.concatenate([front, positions, back])


def gather(
    node: node_def_pb2.NodeDef, orders: Sequence[tuple[int, npt.NDArray[np.int32]]], writer: added_nodes.Writer
) -> None:
    """Make a node the elements of its first input along axes. Args: orders: (axis, the elements that the result has along it), one or more.
    writer: of the node's graph."""
    dtype, source, last = node.attr["T"].type, node.input[0], len(orders) - 1
    types = {"Tparams": dtype, "Tindices": _INT32, "Taxis": _INT32}
    for place, (axis, order) in enumerate(orders):
        numbers = writer.constant(f"{node.name}/order", order)
        sources = [source, numbers, writer.constant(f"{node.name}/axis", np.array(axis, np.int32))]
        if place < last:
            added = writer.add("GatherV2", f"{node.name}/along_{axis}", sources, **types)
            added.attr["batch_dims"].i, source = 0, added.name
        else:
            added_nodes.become(node, "GatherV2", sources, **types)
            node.attr["batch_dims"].i = 0


def _lift(node: node_def_pb2.NodeDef, op: tf.Operation, writer: added_nodes.Writer) -> bool:
    """Make a Pad of two or three dimensions one of four, of height and width. Returns: whether it is one, and leaves the batch."""
    sizes = tf.get_static_value(op.inputs[1])
    if sizes is None or len(sizes) not in _NEW_AXES or sizes[0].any() or not sizes.any():
        return False
    # A sequence is padded as a picture of height 1, as a convolution of one dimension has it.
    along_length = len(sizes) == 3 and not sizes[2].any()
    axes = (1,) if along_length else _NEW_AXES[len(sizes)]
    dtype, source, amounts = node.attr["T"].type, node.input[0], list(sizes)
    for axis in axes:
        amounts.insert(axis, np.zeros(2, sizes.dtype))
        at = writer.constant(f"{node.name}/axis", np.array(axis, np.int32))
        source = writer.add("ExpandDims", f"{node.name}/lifted", [source, at], T=dtype, Tdim=_INT32).name
    paddings = writer.constant(f"{node.name}/paddings", np.array(amounts, np.int32))
    padded = writer.add("Pad", f"{node.name}/padded", [source, paddings], T=dtype, Tpaddings=_INT32)
    added_nodes.become(node, "Squeeze", [padded.name], T=dtype)
    node.attr["squeeze_dims"].list.i[:] = axes
    return True
