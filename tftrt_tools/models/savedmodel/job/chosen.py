"""Select, DivNoNan and Casts of a bool as SelectV2, with dynamic shapes, and NotEqual as Equal: TF-TRT takes Select with a condition for
each element alone, and none of the others.

Select repeats a condition of one for each row, or a single one, and refuses operands of different shapes; SelectV2 repeats operands, too.
So it stands for a Select only where the graph proves that the shapes are the same.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, dimensions, folding, inferred, wider

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

OPS = frozenset({"Select", "DivNoNan", "NotEqual", "Cast"})
REASONS = {
    "Select": "TF-TRT takes Select with a condition for each element alone; with dynamic shapes others become SelectV2, where the graph "
    "proves that the shapes go together",
    "NotEqual": "TF-TRT knows no NotEqual; with dynamic shapes it becomes Equal and LogicalNot",
    "DivNoNan": "TF-TRT knows no DivNoNan; with dynamic shapes it becomes RealDiv and SelectV2",
}
_TYPES = (tf.float32, tf.float16)


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset(), explicit: bool = True
) -> tuple[str, ...]:
    """Write them in place; those inside functions and loops stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. explicit: for explicit batch mode; the other one has neither
      comparisons nor SelectV2, and only quotients by constants are written. Returns: the names of those that were written.
    """
    # A condition with wider operands may be a NotEqual that was not there before.
    others = _rewrite(graph_def, kept, explicit, OPS - {"NotEqual"})
    return (*others, *_rewrite(graph_def, kept, explicit, frozenset({"NotEqual"})))


def _rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str], explicit: bool, ops: Container[str]
) -> tuple[str, ...]:
    sites = [node for node in graph_def.node if node.op in ops and node.name not in kept]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    nodes = {node.name: node for node in graph_def.node}
    writer = _Writer(added_nodes.Writer(graph_def, nodes), nodes, explicit, kept)
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if node.name not in loops and writer.write(node, op):
            written.append(node.name)
    return tuple(written)


class _Writer:
    """Writes the nodes of one graph; the result of each keeps its name."""

    def __init__(
        self, writer: added_nodes.Writer, nodes: dict[str, node_def_pb2.NodeDef], explicit: bool, kept: Container[str]
    ) -> None:
        self._writer, self._nodes, self._explicit = writer, nodes, explicit
        self._wider = wider.Wider(writer, nodes, kept)

    def write(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write one of OPS. Returns: whether it has to be, and can be written."""
        if node.op == "Cast":
            return self._explicit and op.inputs[0].dtype == tf.bool and self.number(node, op)
        if node.op == "NotEqual":
            return self._explicit and op.inputs[0].dtype in wider.TYPES and self.unequal(node, op)
        if op.inputs[1].dtype not in _TYPES:
            return False
        return self.quotient(node, op) if node.op == "DivNoNan" else self.select(node, op)

    def number(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write a Cast of a bool, as 1 or 0. Returns: whether it can be written."""
        dtype = op.outputs[0].dtype
        if dtype not in _TYPES or not op.inputs[0].shape.rank:
            return False
        values = [
            self._writer.constant(f"{node.name}/{what}", np.array(value, dtype.as_numpy_dtype))
            for what, value in (("one", 1), ("zero", 0))
        ]
        added_nodes.become(node, "SelectV2", [node.input[0], *values], T=dtype.as_datatype_enum)
        return True

    def unequal(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write a NotEqual; NaN is equal to nothing. Returns: whether it can be written."""
        if not _one_rank(op.inputs):
            return False
        equal = self._writer.add("Equal", f"{node.name}/equal", node.input[:2], T=node.attr["T"].type)
        equal.attr["incompatible_shape_error"].b = op.get_attr("incompatible_shape_error")
        added_nodes.become(node, "LogicalNot", [equal.name])
        return True

    def quotient(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write a DivNoNan. Returns: whether it can be written."""
        dtype, (above, below) = node.attr["T"].type, list(node.input[:2])
        divisor = folding.value(below, self._nodes, frozenset({"Identity"}))
        if divisor is not None and _has_reciprocal(divisor):
            added_nodes.become(node, "RealDiv", [above, below], T=dtype)
            return True
        if not self._explicit or divisor is not None or not _one_rank(op.inputs):
            return False
        name, kind = node.name, op.inputs[1].dtype.as_numpy_dtype
        zero = self._writer.constant(f"{name}/zero", np.zeros((), kind))
        is_zero = self._writer.add("Equal", f"{name}/is_zero", [below, zero], T=dtype)
        # Shapes that do not fit are an error, as with DivNoNan.
        is_zero.attr["incompatible_shape_error"].b = True
        divided = self._writer.add("RealDiv", f"{name}/divided", [above, below], T=dtype)
        added_nodes.become(node, "SelectV2", [is_zero.name, zero, divided.name], T=dtype)
        return True

    def select(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write a Select. Returns: whether it has to be, and can be written."""
        condition, taken, other = op.inputs
        rank = taken.shape.rank
        if (
            not self._explicit
            or rank is None
            or not rank
            or condition.shape.rank not in (0, 1)
            or rank == condition.shape.rank
        ):
            return False
        if dimensions.of(taken) != dimensions.of(other):
            return False
        source = node.input[0]
        if condition.shape.rank == 1:
            if dimensions.size_of(condition, 0) != dimensions.size_of(taken, 0):
                return False
            source = self._wider.add(node.name, source, condition, range(1, rank))
        added_nodes.become(node, "SelectV2", [source, *node.input[1:3]], T=node.attr["T"].type)
        return True


def _has_reciprocal(divisor: npt.NDArray[Any]) -> bool:
    """Whether TensorFlow, which multiplies by the reciprocal of a constant, does not lose any of it: it takes denormal numbers for 0."""
    least, size = np.finfo(divisor.dtype).tiny, np.abs(divisor.astype(np.float64))
    return bool(((size >= least) & (size <= 1 / np.float64(least))).all())


def _one_rank(operands: Sequence[tf.Tensor]) -> bool:
    """Whether operands have as many dimensions. TF-TRT reshapes one that has fewer, and TensorRT then infers one size at most."""
    first, second = (operand.shape for operand in operands)
    if None in (first.rank, second.rank):
        return False
    fewer = min((first, second), key=lambda shape: shape.rank)
    return first.rank == second.rank or list(fewer).count(None) <= 1
