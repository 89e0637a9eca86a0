"""Finds convolutions that keep their engine from being built, at any shape and on any GPU. Needs no GPU.

TF-TRT's segmenter looks at types and attributes alone. The build of the engine needs the number of a convolution's channels. A reshape
before it may take its sizes from a tensor (as Keras' LayerNormalization of the default epsilon does); then no shape tells that number, the
build ends with "Channel dimension must be static", and the segment runs natively for ever (seen: TF 2.14.1 on an H200).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.savedmodel.inspection import Finding
from tftrt_tools.savedmodel.job import graph, segment

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.savedmodel.engine_op import EngineOp
    from tftrt_tools.savedmodel.job.graph import Segment

# The convolutions of tf2tensorrt's ConvertConv2DHelper, and which of their inputs is convolved.
_INPUT = {"Conv2D": 0, "DepthwiseConv2dNative": 0, "Conv2DBackpropInput": 2}


def find(graph_def: graph_pb2.GraphDef) -> tuple[Finding, ...]:
    """Findings on the engine ops of a converted graph, about each by its name. Only explicit batch mode is concerned: in the other one
    TF-TRT takes no node of which a size is open."""
    found = []
    for name, one in graph.native_segments(graph_def).items():
        if not one.engine.implicit_batch and any(node.op in _INPUT for node in one.function.node_def):
            nodes = _open(one)
            found += [_finding(name, one.engine, nodes)] if nodes else []
    return tuple(found)


def _finding(name: str, engine: EngineOp, ops: Sequence[Any]) -> Finding:
    more = f" (and of {len(ops) - 1} more)" if len(ops) > 1 else ""
    pattern = "|".join(re.escape(op.name) for op in ops)
    return Finding(name, f"no GPU builds it, and its {engine.compute_ops} ops run in TensorFlow: TensorRT has to know how many channels a "
                   f"convolution reads, and those of {ops[0].name} ({ops[0].type}){more} depend on a tensor",
                   f"--keep_native_nodes='{pattern}' leaves out of the engine what keeps it from being built")


def _open(one: Segment) -> list[Any]:
    """tf.Operations of a segment: convolutions of unknown channels."""
    body, _ = segment.to_graph(one.function)
    return [op for op in segment.imported(body, one.shapes).get_operations() if op.type in _INPUT and not _channels(op)]


def _channels(op: Any) -> bool:
    shape = op.inputs[_INPUT[op.type]].shape
    return shape.rank is not None and shape[1 if op.get_attr("data_format") == b"NCHW" else -1] is not None
