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

_INDEXED = frozenset({"MirrorPad", "ReverseV2"})
_TYPES = (tf.float32, tf.int32)
# {dimensions of a padding: where new ones of size 1 come in, so that the others are height and width}.
_NEW_AXES: dict[int, tuple[int, ...]] = {2: (1, 3), 3: (3,)}


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write them in place; those of open axes, and those inside functions and loops, stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are.
    Returns: (names of mirrored paddings and reversed tensors, names of paddings of two or three dimensions) that were written.
    """
    sites = [node for node in graph_def.node if node.op in (*_INDEXED, "Pad") and node.name not in kept]
    if not sites:
        return (), ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    indexed, lifted = [], []
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if node.name in loops or op.inputs[0].dtype not in _TYPES:
            continue
        writer = Writer(node, graph_def, nodes)
        if node.op == "Pad":
            if op.inputs[0].dtype == tf.float32 and writer.lift(op):
                lifted.append(node.name)
        elif orders := _orders(op):
            writer.gather(orders)
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


class Writer:
    """Writes one node otherwise; its result keeps its name. Args: nodes: {name: node} of the graph, which gets the new ones."""

    def __init__(
        self, node: node_def_pb2.NodeDef, graph_def: graph_pb2.GraphDef, nodes: dict[str, node_def_pb2.NodeDef]
    ) -> None:
        self._node, self._graph_def, self._nodes = node, graph_def, nodes
        self._dtype = node.attr["T"].type
        self._controls = [source for source in node.input if source.startswith("^")]

    def gather(self, orders: Sequence[tuple[int, npt.NDArray[np.int32]]]) -> None:
        """Make it the elements of each axis in these orders."""
        source = self._node.input[0]
        for axis, order in orders[:-1]:
            added = self._added(f"along_{axis}", "GatherV2", [])
            self._gather(added, source, axis, order)
            source = added.name
        self._gather(self._node, source, *orders[-1])
        self._node.input.extend(self._controls)

    def _gather(self, node: node_def_pb2.NodeDef, source: str, axis: int, order: npt.NDArray[np.int32]) -> None:
        operands = [self._constant("order", order), self._constant("axis", np.array(axis, np.int32))]
        node.op, node.input[:] = "GatherV2", [source, *operands]
        node.attr.clear()
        node.attr["Tparams"].type = self._dtype
        node.attr["Tindices"].type = node.attr["Taxis"].type = tf.int32.as_datatype_enum
        node.attr["batch_dims"].i = 0

    def lift(self, op: tf.Operation) -> bool:
        """Make a Pad of two or three dimensions one of four, of height and width. Returns: whether it is one, and leaves the batch."""
        sizes = tf.get_static_value(op.inputs[1])
        if sizes is None or len(sizes) not in _NEW_AXES or sizes[0].any() or not sizes.any():
            return False
        # A sequence is padded as a picture of height 1, as a convolution of one dimension has it.
        along_length = len(sizes) == 3 and not sizes[2].any()
        axes = (1,) if along_length else _NEW_AXES[len(sizes)]
        source, amounts = self._node.input[0], list(sizes)
        for axis in axes:
            amounts.insert(axis, np.zeros(2, sizes.dtype))
            at = self._constant("axis", np.array(axis, np.int32))
            lifted = self._added("lifted", "ExpandDims", [source, at])
            lifted.attr["Tdim"].type = tf.int32.as_datatype_enum
            source = lifted.name
        paddings = self._constant("paddings", np.array(amounts, np.int32))
        padded = self._added("padded", "Pad", [source, paddings])
        padded.attr["Tpaddings"].type = tf.int32.as_datatype_enum
        self._node.op, self._node.input[:] = "Squeeze", [padded.name, *self._controls]
        self._node.attr.clear()
        self._node.attr["T"].type = self._dtype
        self._node.attr["squeeze_dims"].list.i[:] = axes
        return True

    def _constant(self, what: str, values: npt.NDArray[np.generic]) -> str:
        return added_nodes.constant(f"{self._node.name}/{what}", values, self._graph_def, self._nodes)

    def _added(self, what: str, kind: str, sources: Sequence[str]) -> node_def_pb2.NodeDef:
        node = self._graph_def.node.add(
            name=added_nodes.free(f"{self._node.name}/{what}", self._nodes), op=kind, input=sources
        )
        node.attr["T"].type = self._dtype
        self._nodes[node.name] = node
        return node
