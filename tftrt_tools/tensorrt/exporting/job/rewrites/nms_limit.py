"""A NonMaxSuppression whose limit is beyond the number of boxes: the limit is that number.

PyTorch's exporter writes the largest INT64 for torchvision.ops.nms, which has no limit. TensorRT 8.5 has no such number.
"""

from __future__ import annotations

import numpy as np
import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

# Inputs: [N, boxes, 4] and the most that are taken of each class.
_BOXES, _LIMIT = 0, 2


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        boxes = _count(facts, node) if node.op_type == "NonMaxSuppression" else 0
        if boxes:
            writer = editing.Writer(node)
            limit = writer.constant("limit", [boxes], np.int64)
            inputs = [*node.input[:_LIMIT], limit, *node.input[_LIMIT + 1 :]]
            writer.nodes.append(_copied(node, inputs))
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


def _count(facts: Facts, node: onnx.NodeProto) -> int:
    """How many boxes there are, where that is known and the limit is beyond it; else 0."""
    limit = facts.number(node.input[_LIMIT]) if len(node.input) > _LIMIT else None
    shape = facts.shape(node.input[_BOXES])
    boxes = shape[1] if shape is not None and len(shape) == 3 else ""
    return boxes if limit is not None and isinstance(boxes, int) and 0 < boxes < limit else 0


def _copied(node: onnx.NodeProto, inputs: list[str]) -> onnx.NodeProto:
    return onnx.helper.make_node(node.op_type, inputs, list(node.output), name=node.name, **attributes(node))
