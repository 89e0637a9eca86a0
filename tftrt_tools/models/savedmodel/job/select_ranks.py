"""SelectV2 of pictures and volumes whose operands have fewer dimensions than the result, as in tf.where(mask, picture, 0.5).

TensorFlow's layout optimizer, which TF-TRT runs over each engine's graph, transposes all operands of a SelectV2 beside a convolution, and
fails on one with fewer dimensions. With as many dimensions, of size 1, they mean the same.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, folding, inferred, wider

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

OP = "SelectV2"
# The ranks that have a layout.
_RANKS = (4, 5)
# A condition with more elements is no small constant.
_MOST = 1 << 20


def rewrite(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()) -> tuple[str, ...]:
    """Write the operands in place; nodes inside functions and loops stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. Returns: the names of those whose operands were written.
    """
    sites = [node for node in graph_def.node if node.op == OP and node.name not in kept]
    if not sites:
        return ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    writer = _Writer(added_nodes.Writer(graph_def, nodes), nodes, kept)
    return tuple(
        node.name
        for node in sites
        if node.name not in loops and writer.write(node, shapes.get_operation_by_name(node.name))
    )


class _Writer:
    def __init__(
        self, writer: added_nodes.Writer, nodes: dict[str, node_def_pb2.NodeDef], kept: Container[str]
    ) -> None:
        self._writer, self._nodes = writer, nodes
        self._wider = wider.Wider(writer, nodes, kept)

    def write(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Give the operands of one node the rank of its result. Returns: whether one had another."""
        ranks = [operand.shape.rank for operand in op.inputs]
        rank = op.outputs[0].shape.rank
        if rank not in _RANKS or None in ranks:
            return False
        changed = False
        for place, operand in enumerate(op.inputs):
            if ranks[place] < rank:
                source = self._source(node, node.input[place], operand, rank)
                changed |= source != node.input[place]
                node.input[place] = source
        return changed

    def _source(self, node: node_def_pb2.NodeDef, source: str, operand: tf.Tensor, rank: int) -> str:
        """The operand with `rank` dimensions; itself where nothing writes it so."""
        value = folding.value(source, self._nodes, frozenset({"Identity"}))
        if value is not None and value.size <= _MOST:
            return self._writer.constant(
                f"{node.name}/wide", np.reshape(value, (1,) * (rank - value.ndim) + value.shape)
            )
        if not operand.shape.rank or (operand.dtype not in wider.TYPES and not self._wider.compares(operand)):
            return source
        return self._wider.add(node.name, source, operand, range(rank - operand.shape.rank))
