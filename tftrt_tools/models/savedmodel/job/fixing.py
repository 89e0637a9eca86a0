"""Inputs that take one size for good, but for the batch: the graph behind them then knows sizes that were open.

An EnsureShape behind each input tells TensorFlow and TF-TRT the sizes, and refuses a request of others with an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, folding

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

OP = "EnsureShape"


def fix(graph_def: graph_pb2.GraphDef, placeholders: Mapping[str, Sequence[int | None]]) -> None:
    """Fix the sizes of inputs, in place. Args: placeholders: {node: its shape}."""
    nodes = {node.name: node for node in graph_def.node}
    writer = added_nodes.Writer(graph_def, nodes)
    for name, shape in placeholders.items():
        readers = [
            (node, index)
            for node in graph_def.node
            for index, source in enumerate(node.input)
            if not source.startswith("^") and folding.name_of(source) == name
        ]
        added = writer.add(OP, f"{name}/fixed_sizes", [name], T=nodes[name].attr["dtype"].type)
        added.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
        for node, index in readers:
            node.input[index] = added.name
