"""Slices that count from the end (x[:, :-1]), written so that TF-TRT takes them as they are meant.

TF-TRT 2.14 (convert/ops/slice_ops.cc) counts from the end only where it knows the size. Where the size is open in the engine, it takes
an end of -1 for a length of 1, and refuses a beginning of -1 during the build. Often the graph as a whole tells the size, and then the
same slice can be counted from the beginning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, inferred, segment

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import function_pb2, graph_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape

OP = "StridedSlice"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Axis:
    """One axis of a slice that names it. Bounds are None where the slice begins or ends with the axis."""

    # The place in the slice's constants.
    position: int
    # The size of the axis, None where it is open.
    size: int | None
    begin: int | None
    end: int | None
    # Whether the slice takes one element and drops the axis.
    shrinks: bool


def begins_from_open_end(op: tf.Operation) -> bool:
    """Whether a tf.Operation, a StridedSlice, has a beginning that is counted from an end that its shapes leave open."""
    return any(one.size is None and (one.begin or 0) < 0 for one in _axes(op))


def ends_from_open_end(op: tf.Operation) -> bool:
    """Whether a StridedSlice has an end that is counted from an end that its shapes leave open."""
    return any(one.size is None and not one.shrinks and (one.end or 0) < 0 for one in _axes(op))


def rewrite(graph_def: graph_pb2.GraphDef, names: Container[str]) -> tuple[str, ...]:
    """Count slices from the beginning, in place, where the graph tells the size. Args: graph_def: frozen. names: of the slices that may
    be changed. Returns: names of those that were."""
    inferred_shapes = inferred.shapes(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    changed = []
    for node in [candidate for candidate in nodes.values() if candidate.op == OP and candidate.name in names]:
        op = inferred_shapes.get_operation_by_name(node.name)
        axes = [axis for axis in _axes(op) if axis.size is not None]
        if any(bound is not None and bound < 0 for axis in axes for bound in (axis.begin, axis.end)):
            begin, end = _counted(op, axes)
            node.input[1] = added_nodes.constant(f"{node.name}/begin_counted", begin, graph_def, nodes)
            node.input[2] = added_nodes.constant(f"{node.name}/end_counted", end, graph_def, nodes)
            changed.append(node.name)
    return tuple(changed)


def fix(
    function: function_pb2.FunctionDef, declared: Sequence[Shape], calls: Sequence[Sequence[Shape]]
) -> tuple[str, ...]:
    """Count slices of a native segment from the beginning, in place, where all calls have one size, and the segment leaves it open.

    Only for building an engine, which runs for these sizes alone: the segment that stays in the model has to take all others.

    Args: declared: the shapes of the segment's inputs. calls: those of each call. Returns: names of the slices that were changed.
    """
    body, _ = segment.to_graph(function)
    opened, *fixed = (inferred.shapes(segment.importable(body, shapes)) for shapes in (declared, *calls))
    changed = []
    for node in [candidate for candidate in function.node_def if candidate.op == OP]:
        op = opened.get_operation_by_name(node.name)
        if not (begins_from_open_end(op) or ends_from_open_end(op)):
            continue
        bounds = {tuple(map(tuple, _all_counted(graph.get_operation_by_name(node.name)) or ())) for graph in fixed}
        if len(bounds) == 1 and (bound := bounds.pop()):
            for place, name, values in zip((1, 2), ("begin", "end"), bound, strict=True):
                constant = function.node_def.add(name=f"{node.name}/{name}_counted", op="Const")
                constant.attr["dtype"].CopyFrom(node.attr["Index"])
                constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values, op.inputs[place].dtype))
                node.input[place] = f"{constant.name}:output:0"
            changed.append(node.name)
    return tuple(changed)


def _all_counted(op: tf.Operation) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """As `_counted`, on all axes; None where a size is open."""
    axes = list(_axes(op))
    return None if any(one.size is None for one in axes) else _counted(op, axes)


def _counted(op: tf.Operation, axes: Sequence[_Axis]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(begin, end) of a slice, counted from the beginning on these axes."""
    begin, end = (np.array(tf.get_static_value(op.inputs[number])) for number in (1, 2))
    for axis in axes:
        assert axis.size is not None, "axes of known sizes"
        for values, bound in ((begin, axis.begin), (end, axis.end)):
            if bound is not None and bound < 0:
                values[axis.position] = max(bound + axis.size, 0)
        if axis.shrinks:
            end[axis.position] = begin[axis.position] + 1
    return begin, end


def _axes(op: tf.Operation) -> Iterator[_Axis]:
    """The axes that a slice of known steps names; none where its bounds are no constants, or it goes backwards."""
    begin, end, steps = (_constant(op, number) for number in (1, 2, 3))
    shape = op.inputs[0].shape
    if begin is None or end is None or steps is None or shape.rank is None or (steps < 0).any():
        return
    axis = 0
    for position in range(len(begin)):
        if _bit(op, "ellipsis_mask", position):
            # An ellipsis stands for all axes that are not named.
            axis += shape.rank - sum(not _bit(op, "new_axis_mask", other) for other in range(len(begin))) + 1
        elif not _bit(op, "new_axis_mask", position):
            shrinks = _bit(op, "shrink_axis_mask", position)
            yield _Axis(
                position=position,
                size=shape[axis],
                shrinks=shrinks,
                begin=None if _bit(op, "begin_mask", position) and not shrinks else int(begin[position]),
                end=None if _bit(op, "end_mask", position) or shrinks else int(end[position]),
            )
            axis += 1


def _bit(op: tf.Operation, name: str, position: int) -> bool:
    return bool(op.get_attr(name) >> position & 1)


def _constant(op: tf.Operation, number: int) -> npt.NDArray[Any] | None:
    value = tf.get_static_value(op.inputs[number])
    return None if value is None else np.array(value)
