"""Nodes that stay as they are only because their sizes are open: with known ones they are written otherwise, and go into engines."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.models.savedmodel.job import control_flow, cumulated, indexed, inferred, resized, slices, transposed

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

_OPS = resized.OPS | indexed.OPS | transposed.OPS.keys() | {cumulated.OP, slices.OP}


def nodes(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()) -> tuple[str, ...]:
    """Their names, in the graph's order; some of them TF-TRT may take as they are. Args: graph_def: frozen, and rewritten. kept: names of
    nodes that the user leaves as they are."""
    sites = [node for node in graph_def.node if node.op in _OPS and node.name not in kept]
    if not sites:
        return ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    return tuple(
        node.name for node in sites if node.name not in loops and _is_open(shapes.get_operation_by_name(node.name))
    )


def _is_open(op: tf.Operation) -> bool:
    if op.type == cumulated.OP:
        axis = cumulated.axis_of(op)
        return axis is not None and op.inputs[0].shape[axis] is None and op.inputs[0].dtype in cumulated.TYPES
    if op.type == slices.OP:  # TF-TRT takes those that add no axis, and the build fixes them
        return bool(op.get_attr("new_axis_mask") and (slices.begins_from_open_end(op) or slices.ends_from_open_end(op)))
    data = op.inputs[-1 if op.type in transposed.OPS else 0]
    shapes = (data.shape, op.outputs[0].shape)
    return (
        data.dtype == tf.float32
        and all(shape.rank is not None for shape in shapes)
        and any(None in shape[1:] for shape in shapes)
    )
