"""What makes each rewrite that is made while tf2onnx converts, under its name in `rewriting.REWRITES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tf2onnx.graph import Graph, Node

from tftrt_tools.tensorrt.exporting.job.rewrites import combined_nms, einsum

# {name: (op of TensorFlow, it writes a node of tf2onnx's graph otherwise; False if it leaves that to tf2onnx)}.
CONVERTING: Mapping[str, tuple[str, Callable[[Graph, Node], bool]]] = {
    "nms": ("CombinedNonMaxSuppression", combined_nms.write),
    "einsum": ("Einsum", einsum.write),
}
