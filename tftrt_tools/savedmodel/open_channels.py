"""Convolutions for whose engine op no engine can be built, at any shape and on any GPU. Needs none.

TF-TRT's segmenter looks at types and attributes; how many channels a convolution has is asked when its engine is built. Where that is
in no shape, because a reshape before it takes its sizes from a tensor (as Keras' LayerNormalization of the default epsilon does), the
build ends with "Channel dimension must be static", and the segment runs natively for ever (seen: TF 2.14.1 on an H200).
"""

import re

from tftrt_tools.savedmodel import graph, segment
from tftrt_tools.savedmodel.inspection import Finding

# The convolutions of tf2tensorrt's ConvertConv2DHelper, and which of their inputs is convolved.
_INPUT = {"Conv2D": 0, "DepthwiseConv2dNative": 0, "Conv2DBackpropInput": 2}


def find(graph_def):
    """Findings on the engine ops of a converted graph, about each by its name. Only explicit batch mode is concerned: in the other one
    TF-TRT takes no node of which a size is open."""
    found = []
    for name, one in graph.native_segments(graph_def).items():
        if not one.engine.implicit_batch and any(node.op in _INPUT for node in one.function.node_def):
            nodes = _open(one)
            found += [_finding(name, one.engine, nodes)] if nodes else []
    return tuple(found)


def _finding(name, engine, ops):
    more = f" (and of {len(ops) - 1} more)" if len(ops) > 1 else ""
    pattern = "|".join(re.escape(op.name) for op in ops)
    return Finding(name, f"no GPU builds it, and its {engine.compute_ops} ops run in TensorFlow: TensorRT has to know how many channels a "
                   f"convolution reads, and those of {ops[0].name} ({ops[0].type}){more} depend on a tensor",
                   f"--keep_native_nodes='{pattern}' leaves out of the engine what keeps it from being built")


def _open(one):
    """tf.Operations of a segment: convolutions of unknown channels."""
    body, _ = segment.to_graph(one.function)
    return [op for op in segment.imported(body, one.shapes).get_operations() if op.type in _INPUT and not _channels(op)]


def _channels(op):
    shape = op.inputs[_INPUT[op.type]].shape
    return shape.rank is not None and shape[1 if op.get_attr("data_format") == b"NCHW" else -1] is not None
