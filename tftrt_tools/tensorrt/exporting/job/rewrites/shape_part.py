"""The sizes of some dimensions: all sizes, and a Slice of them.

Since opset 15 a Shape may give a part alone (start, end), as PyTorch's exporter writes it. onnx-tensorrt for TensorRT 8 reads neither
attribute (builtin_op_importers.cpp at release/8.2-GA to release/8.6-GA): it gives all sizes. 10.0 reads both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

# The end of a Slice that takes all: TensorRT 8.5 has no larger number.
_ALL = np.iinfo(np.int32).max


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        if is_part(node, facts.shape(node.input[0])):
            given, writer = attributes(node), editing.Writer(node)
            sizes = writer.node("Shape", list(node.input), "all")
            bounds = {"start": given.get("start", 0), "end": given.get("end", _ALL)}
            ends = [writer.constant(name, [value], np.int64) for name, value in bounds.items()]
            writer.node("Slice", [sizes, *ends], "part", last=True)
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


def is_part(node: onnx.NodeProto, shape: Sequence[object] | None) -> bool:
    """Whether a node gives the sizes of some dimensions, or may. Args: shape: of its input; None if it is not known."""
    if node.op_type != "Shape":
        return False
    given = attributes(node)
    if shape is None:
        return bool(given.get("start", 0)) or "end" in given
    every = range(len(shape))
    return every[given.get("start", 0) : given.get("end", len(shape))] != every
