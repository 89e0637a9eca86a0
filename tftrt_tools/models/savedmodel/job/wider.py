"""Tensors with new axes of size 1. Of a bool, TF-TRT moves none: neither Reshape nor ExpandDims. So what compares gets wider operands."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import folding

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

    from tftrt_tools.models.savedmodel.job.added_nodes import Writer

OP = "ExpandDims"
# Types that TF-TRT moves.
TYPES = (tf.float32, tf.float16, tf.int32)
_INT32 = tf.int32.as_datatype_enum
_COMPARISONS = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"})
# Those that TensorFlow's optimizer turns round where a LogicalNot alone reads them, which is no negation for NaN.
_ORDERED = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual"})
_LOGICAL = frozenset({"LogicalAnd", "LogicalOr", "LogicalNot"})
# The most ops behind each other that get wider operands.
_DEEPEST = 8


def _compares(tensor: tf.Tensor) -> bool:
    op = tensor.op
    if negated(tensor) or (op.type == "LogicalNot" and negated(op.inputs[0])):
        return False
    if op.type not in _LOGICAL and not (op.type in _COMPARISONS and op.inputs[0].dtype in TYPES):
        return False
    return tensor.shape.rank is not None and all(one.shape.rank in (0, tensor.shape.rank) for one in op.inputs)


def negated(tensor: tf.Tensor, behind: tf.Tensor | None = None) -> bool:
    """Whether a LogicalNot reads an ordered comparison of floats: its answer for NaN then depends on who else reads that, and a comparison
    that is written otherwise has other readers. Args: behind: a tensor that will be the comparison."""
    op = tensor.op
    if op.type not in _ORDERED or not op.inputs[0].dtype.is_floating:
        return False
    return any(reader.type == "LogicalNot" for one in (tensor, behind) if one is not None for reader in one.consumers())


class Wider:
    """Adds axes to tensors of one graph. Args: nodes: {name: node} of it. kept: names of nodes that are not to be computed otherwise."""

    def __init__(self, writer: Writer, nodes: dict[str, node_def_pb2.NodeDef], kept: Container[str]) -> None:
        self._writer, self._nodes, self._kept = writer, nodes, kept

    def compares(self, tensor: tf.Tensor) -> bool:
        """Whether a bool is computed by ops that TF-TRT takes, from operands that have its dimensions, or none."""
        return tensor.op.name not in self._kept and _compares(tensor)

    def add(self, name: str, source: str, tensor: tf.Tensor, places: Sequence[int], deep: int = _DEEPEST) -> str:
        """Add a tensor with new axes.

        Args: name: of the node that reads it; names of new nodes begin with that. source: of `tensor` in the graph. tensor: in a graph of
          inferred shapes; a single number stays one. places: the new axes of the result, upwards. Returns: the reference to the result.
        """
        if tensor.shape.rank == 0:
            return source
        if deep and tensor.dtype == tf.bool and self.compares(tensor):
            added = self._writer.add(tensor.op.type, f"{name}/compared", [])
            self.compare(added, name, source, tensor, places, deep)
            result: str = added.name
            return result
        for place in places:
            source = self._writer.add(OP, f"{name}/wider", [source, self.place(name, place)], **types(tensor)).name
        return source

    def compare(
        self,
        node: node_def_pb2.NodeDef,
        name: str,
        source: str,
        tensor: tf.Tensor,
        places: Sequence[int],
        deep: int = _DEEPEST,
    ) -> None:
        """Make a node what a bool is with new axes. Args: node: with no inputs but those that it waits for. Others as of `add`."""
        before = self._nodes[folding.name_of(source)]
        node.op, waits = before.op, list(node.input)
        operands = [one for one in before.input if not one.startswith("^")]
        wider = [self.add(name, *pair, places, deep - 1) for pair in zip(operands, tensor.op.inputs, strict=True)]
        node.input[:] = [*wider, *waits]
        node.attr.clear()
        for key, value in before.attr.items():
            if not key.startswith("_"):
                node.attr[key].CopyFrom(value)

    def place(self, name: str, place: int) -> str:
        """A constant with the number of an axis."""
        return self._writer.constant(f"{name}/axis", np.array(place, np.int32))


def types(tensor: tf.Tensor) -> dict[str, int]:
    """Attributes of an ExpandDims of a tensor."""
    return {"T": tensor.dtype.as_datatype_enum, "Tdim": _INT32}
