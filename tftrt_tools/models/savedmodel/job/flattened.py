"""Reshapes that keep the rows (Flatten), written with a constant shape.

Keras 3 and tf.stack([tf.shape(x)[0], n]) compute such a shape from that of the data. In implicit batch mode TF-TRT takes none of these
ops, and the graph is cut in two; with dynamic shapes an engine computes them as shape tensors.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, dimensions, folding, inferred

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2, node_def_pb2


def rewrite(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()) -> tuple[str, ...]:
    """Give each such Reshape a constant shape, in place, but not inside functions and loops.

    The numbers are the same for every shape that the original takes. One with an inferred size refuses a batch of no rows; this takes it.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. Returns: names of the Reshapes that were changed.
    """
    changed: list[str] = []
    # The shape of one Reshape may tell the shape of the next.
    while round_done := _round(graph_def, kept):
        changed += round_done
    return tuple(changed)


def _round(graph_def: graph_pb2.GraphDef, kept: Container[str]) -> list[str]:
    nodes = {node.name: node for node in graph_def.node}
    reshapes = [
        node
        for node in graph_def.node
        if node.op == "Reshape" and node.name not in kept and _is_computed(nodes, node.input[1])
    ]
    if not reshapes:
        return []
    inferred_shapes, loops, changed = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    # A constant inside a loop would need an Enter node.
    for node in [reshape for reshape in reshapes if reshape.name not in loops]:
        op = inferred_shapes.get_operation_by_name(node.name)
        shape = _constant(op)
        if shape is not None:
            values = np.array(shape, op.inputs[1].dtype.as_numpy_dtype)
            node.input[1] = added_nodes.constant(f"{node.name}/shape_of_rows", values, graph_def, nodes)
            changed.append(node.name)
    return changed


def _is_computed(nodes: Mapping[str, node_def_pb2.NodeDef], source: str) -> bool:
    node = nodes.get(folding.name_of(source))
    return node is not None and node.op in ("Pack", "ConcatV2", "StridedSlice", "Identity", "Cast", "Shape")


def _constant(op: tf.Operation) -> list[int] | None:
    """[-1, …] for a Reshape that keeps the rows of its data, else None."""
    data, shape = op.inputs[0], dimensions.of_shape(op.inputs[1])
    if not shape or not data.shape.rank or None in data.shape[1:] or shape[0] != dimensions.size_of(data, 0):
        return None
    others, row = [size for size in shape[1:] if isinstance(size, int)], math.prod(data.shape[1:])
    counted = math.prod(size for size in others if size != -1)
    if len(others) < len(shape) - 1 or others.count(-1) > 1 or min(others, default=1) < -1 or not counted or not row:
        return None
    inferred_size, rest = divmod(row, counted)
    if rest or (inferred_size != 1 and -1 not in others):
        return None
    return [-1, *(inferred_size if size == -1 else size for size in others)]
