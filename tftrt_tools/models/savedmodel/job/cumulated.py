"""Cumulative sums along an axis of known size, written as additions of moved parts: TF-TRT knows no Cumsum.

With y = x at first, and steps of 1, 2, 4, …, each step adds to every element the one that is `step` places before it. After the last,
each element is the sum of all up to it. A product with a triangular matrix would spread an infinity, or NaN, to the sums before it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, inferred

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

OP = "Cumsum"
REASON = "TF-TRT knows no Cumsum; along an axis of known size, which is not the batch, it becomes additions"
TYPES = (tf.float32, tf.int32)
_INT32 = tf.int32.as_datatype_enum
# The most bytes of numbers of elements that one sum may add.
_MOST_BYTES = 16 << 20


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset(), explicit: bool = True
) -> tuple[str, ...]:
    """Write them in place; those along open axes, and those inside functions and loops, stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. explicit: for explicit batch mode; the other one has neither
      ZerosLike, which exclusive sums need, nor the batch as an axis. Returns: the names of those that were written.
    """
    sites = [node for node in graph_def.node if node.op == OP and node.name not in kept]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    writer = added_nodes.Writer(graph_def, {node.name: node for node in graph_def.node})
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        axis = axis_of(op)
        if axis is None:
            continue
        size = op.inputs[0].shape[axis]
        if not size or op.inputs[0].dtype not in TYPES or node.name in loops or _bytes(size) > _MOST_BYTES:
            continue
        if explicit or (axis and not op.get_attr("exclusive")):
            _Sum(node, axis, size, writer).write()
            written.append(node.name)
    return tuple(written)


def axis_of(op: tf.Operation) -> int | None:
    """The axis of a Cumsum, counted from the beginning; None where it, or the rank, is not known, and where there is no such axis."""
    axis, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    return None if axis is None or not rank or not -rank <= axis < rank else int(axis) % rank


def _bytes(size: int) -> int:
    return sum(4 * (2 * size - step) for step in _steps(size))


def _steps(size: int) -> list[int]:
    return [1 << power for power in range((size - 1).bit_length())]


class _Sum:
    """Writes one sum."""

    def __init__(self, node: node_def_pb2.NodeDef, axis: int, size: int, writer: added_nodes.Writer) -> None:
        self._node, self._size, self._writer = node, size, writer
        self._dtype = node.attr["T"].type
        self._axis = writer.constant(f"{node.name}/axis", np.array(axis, np.int32))

    def write(self) -> None:
        """Write it; its result keeps its name."""
        node, size, source = self._node, self._size, self._node.input[0]
        back, exclusive = node.attr["reverse"].b, node.attr["exclusive"].b
        for step in _steps(size):
            behind, before = self._part(source, step, size), self._part(source, 0, size - step)
            added = self._writer.add("AddV2", f"{node.name}/added", [before, behind], T=self._dtype).name
            # Elements at the end from which the sum starts have nothing to add.
            ends = [added, self._part(source, size - step, size)] if back else [self._part(source, 0, step), added]
            source = self._joined(ends)
        if exclusive:
            first = self._part(source, 0, 1)
            zero = self._writer.add("ZerosLike", f"{node.name}/zero", [first], T=self._dtype).name
            rest = [self._part(source, *((1, size) if back else (0, size - 1)))] if size > 1 else []
            source = self._joined([*rest, zero] if back else [zero, *rest]) if rest else zero
        added_nodes.become(node, "Identity", [source], T=self._dtype)

    def _part(self, source: str, begin: int, end: int) -> str:
        numbers = self._writer.constant(f"{self._node.name}/numbers", np.arange(begin, end, dtype=np.int32))
        types = {"Tparams": self._dtype, "Tindices": _INT32, "Taxis": _INT32}
        part = self._writer.add("GatherV2", f"{self._node.name}/part", [source, numbers, self._axis], **types)
        part.attr["batch_dims"].i = 0
        result: str = part.name
        return result

    def _joined(self, parts: list[str]) -> str:
        sources = [*parts, self._axis]
        joined = self._writer.add("ConcatV2", f"{self._node.name}/joined", sources, T=self._dtype, Tidx=_INT32)
        joined.attr["N"].i = len(parts)
        result: str = joined.name
        return result
