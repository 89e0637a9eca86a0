"""What makes each rewrite that is made while tf2onnx converts, under its name in `rewriting.REWRITES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorflow.core.framework import graph_pb2
from tf2onnx.graph import Graph, Node

from tftrt_tools.models.savedmodel.job import dilated, resized
from tftrt_tools.tensorrt.exporting.job.rewrites import combined_nms, einsum, reverse

# {name: (op of TensorFlow, it writes a node of tf2onnx's graph otherwise; False if it leaves that to tf2onnx)}.
CONVERTING: Mapping[str, tuple[str, Callable[[Graph, Node], bool]]] = {
    "nms": ("CombinedNonMaxSuppression", combined_nms.write),
    "einsum": ("Einsum", einsum.write),
    "reverse": ("ReverseV2", reverse.write),
}


def _dilations(graph_def: graph_pb2.GraphDef, outputs: frozenset[str]) -> int:
    # With SAME tf2onnx leaves paddings of open sizes to the runtime, and ONNX Runtime has none beside dilations.
    return len(dilated.rewrite(graph_def, outputs, explicit=True))


# {name: it writes nodes of the frozen graph otherwise, in place, before tf2onnx gets it, and counts them}; with the nodes of the outputs.
BEFORE: Mapping[str, Callable[[graph_pb2.GraphDef, frozenset[str]], int]] = {
    "dilations": _dilations,
    "nearest": lambda graph_def, _: resized.without_half_pixels(graph_def),
}
