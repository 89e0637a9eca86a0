"""A tensor in the opposite order as one Slice that goes backwards.

tf2onnx 1.17.0 writes ReverseV2 (tf.reverse, the backward half of a bidirectional layer) as ReverseSequence, whose lengths it computes from
the shape, between transpositions. TensorRT 8.5's parser refuses a ReverseSequence of computed lengths.
"""

from __future__ import annotations

import numpy as np
from tf2onnx.graph import Graph, Node
from tf2onnx.onnx_opset.tensor import ReverseV2

from tftrt_tools.tensorrt.exporting.job.rewrites.replaced import Replaced

# Before the first element: a Slice that goes backwards ends there. Every parser has numbers of 32 bits for it.
_BEFORE_ALL = np.iinfo(np.int32).min + 1


def write(graph: Graph, node: Node) -> bool:
    """Write a ReverseV2. Returns: whether it became a Slice; tf2onnx wrote it otherwise, because its axes or its rank are not known."""
    axes = node.inputs[1].get_tensor_value(as_list=False) if node.inputs[1].is_const() else None
    shape = graph.get_shape(node.input[0])
    if axes is None or shape is None or not axes.size:
        ReverseV2.version_10(graph, node)
        return False
    positions, data = np.unique(axes.ravel() % len(shape)), node.input[0]
    one = Replaced(graph, node)
    bounds = (np.full_like(positions, fill) for fill in (-1, _BEFORE_ALL, -1))
    begins, ends, steps = (one.constant(bound.astype(np.int64)) for bound in bounds)
    one.give("Slice", [data, begins, ends, one.constant(positions.astype(np.int64)), steps])
    return True
