"""What makes each rewrite of an exported graph, under its name in `rewriting.REWRITES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx

from tftrt_tools.tensorrt.exporting.job.rewrites import (
    attention,
    conv_scale,
    defaults,
    gelu,
    hard_swish,
    instance_norm,
    layer_norm,
    loop_count,
    nms_limit,
    pad_pool,
    reverse_sequence,
    shape_part,
    slim,
    wide_conv,
)

# {name: it changes a model in place, for a target, and returns how many nodes it changed}.
IN_GRAPH: Mapping[str, Callable[[onnx.ModelProto, str], int]] = {
    "layer_norm": layer_norm.rewrite,
    "gelu": gelu.rewrite,
    "attention": attention.rewrite,
    "fold": slim.rewrite("constant_folding"),
    "dead_ends": slim.rewrite("dead_node_elimination"),
    "simplify": slim.rewrite("graph_fusion", "subexpression_elimination", "weight_tying"),
    "hard_swish": hard_swish.rewrite,
    "conv_scale": conv_scale.rewrite,
    "pad_pool": pad_pool.rewrite,
    "loop_count": loop_count.rewrite,
    "reverse_sequence": reverse_sequence.rewrite,
    "nms_limit": nms_limit.rewrite,
    "shape_part": shape_part.rewrite,
    "instance_norm": instance_norm.rewrite,
    "defaults": defaults.rewrite,
    "wide_conv": wide_conv.rewrite,
}

# {name: the nodes of a rewritten graph that resemble what it changes, each with why it stayed as it was}.
MISSED: Mapping[str, Callable[[onnx.ModelProto, str], Iterable[tuple[str, str]]]] = {
    "layer_norm": layer_norm.missed,
    "gelu": gelu.missed,
    "loop_count": loop_count.missed,
    "reverse_sequence": reverse_sequence.missed,
}
