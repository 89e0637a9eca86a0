"""CombinedNonMaxSuppression as one NonMaxSuppression and a TopK whose K is a constant.

tf2onnx 1.17.0 counts what was selected in each image with an EyeLike of the batch's size, and computes K; TensorRT 8.5's parser refuses
both. Here the scores that were selected are put into a tensor of all scores, whose sizes are known, and TopK takes the largest.
"""

from __future__ import annotations

import numpy as np
from onnx import helper
from tf2onnx.graph import Graph, Node
from tf2onnx.onnx_opset.tensor import CombinedNonMaxSuppression

from tftrt_tools.tensorrt.exporting.job.rewrites.replaced import BOOL, FLOAT, INT32, INT64, Replaced

_LEAST_OPSET = 13
# Stands where nothing was selected; a score that is not above it is none. FP16 holds it, too: of a lower number TensorRT made this one in
# FP16, and what stood for nothing became a score (seen: a plan of 8.5.3 on an H200).
_NOTHING = float(np.finfo(np.float16).min)


def write(graph: Graph, node: Node) -> bool:
    """Write a node of tf2onnx's graph otherwise, or leave it to tf2onnx. Returns: whether it was written."""
    boxes, scores = (graph.get_shape(one) for one in node.input[:2])
    counts = [int(one.get_tensor_value()) for one in node.inputs[2:4] if one.is_const()]
    known = boxes is not None and scores is not None and boxes[2] == 1 and min(scores[1:]) > 0
    if not known or len(counts) < 2 or graph.opset < _LEAST_OPSET:
        CombinedNonMaxSuppression.version_12(graph, node)
        return False
    _write(graph, node, scores, *counts)
    return True


def _write(graph: Graph, node: Node, sizes: list[int], each: int, total: int) -> None:
    """Args: sizes: of the scores, [batch, boxes, classes]; each, total: how many boxes at most of a class, and in all."""
    batch, boxes, classes = sizes
    clip, short = node.get_attr_value("clip_boxes", True), node.get_attr_value("pad_per_class", False)
    total = min(total, each * classes) if short else total
    taken = min(total, boxes * classes)
    boxes_in, scores_in, _, _, overlap, least = node.input
    one = Replaced(graph, node)
    corners = one.make("Squeeze", [boxes_in, one.constant([2])], shape=[batch, boxes, 4])
    scores = one.make("Transpose", [scores_in], {"perm": [0, 2, 1]}, shape=[batch, classes, boxes])
    selected = one.make(
        "NonMaxSuppression", [corners, scores, one.constant([each]), overlap, least], shape=[-1, 3], dtype=INT64
    )
    lowest = helper.make_tensor("value", FLOAT, [1], [_NOTHING])
    nothing = one.make(
        "ConstantOfShape",
        [one.make("Shape", [scores], shape=[3], dtype=INT64)],
        {"value": lowest},
        shape=[batch, classes, boxes],
    )
    kept = one.make(
        "ScatterND",
        [nothing, selected, one.make("GatherND", [scores, selected], shape=[-1])],
        shape=[batch, classes, boxes],
    )
    flat = one.make("Reshape", [kept, one.constant([0, classes * boxes])], shape=[batch, classes * boxes])
    best, places = one.several("TopK", [flat, one.constant([taken])], {"axis": 1}, [[batch, taken]] * 2, [FLOAT, INT64])
    valid = one.make("Greater", [best, one.constant(np.float32(_NOTHING))], shape=[batch, taken], dtype=BOOL)
    number = one.make("Div", [places, one.constant(np.int64(boxes))], shape=[batch, taken], dtype=INT64)
    behind = one.make("Mul", [number, one.constant(np.int64(boxes))], shape=[batch, taken], dtype=INT64)
    place = one.make(
        "Unsqueeze",
        [one.make("Sub", [places, behind], shape=[batch, taken], dtype=INT64), one.constant([2])],
        shape=[batch, taken, 1],
        dtype=INT64,
    )
    found = one.make("GatherND", [corners, place], {"batch_dims": 1}, shape=[batch, taken, 4])
    zero = one.constant(np.float32(0))
    if clip:
        above = one.make("Max", [found, zero], shape=[batch, taken, 4])
        found = one.make("Min", [above, one.constant(np.float32(1))], shape=[batch, taken, 4])
    there = one.make("Unsqueeze", [valid, one.constant([2])], shape=[batch, taken, 1], dtype=BOOL)
    number = one.make("Cast", [number], {"to": FLOAT}, shape=[batch, taken])
    for output, (condition, tensor, ends) in enumerate(
        ((there, found, [0, total - taken, 0]), (valid, best, [0, total - taken]), (valid, number, [0, total - taken]))
    ):
        if total == taken:
            one.give("Where", [condition, tensor, zero], output=output)
        else:
            inner = one.make("Where", [condition, tensor, zero], shape=[batch, taken, 4][: len(ends)])
            one.give("Pad", [inner, one.constant([0] * len(ends) + ends), zero], output=output)
    counted = one.make(
        "ReduceSum",
        [one.make("Cast", [valid], {"to": FLOAT}, shape=[batch, taken]), one.constant([1])],
        {"keepdims": 0},
        shape=[batch],
    )
    one.give("Cast", [counted], {"to": INT32}, output=3)
