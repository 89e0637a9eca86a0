"""What TensorRT's ONNX parser reads otherwise than a file says, without a word: attributes and inputs that it does not ask for, and
defaults that are not ONNX's.

Of builtin_op_importers.cpp and onnx2trt_utils.cpp of onnx-tensorrt at release/8.5-GA and release/8.6-GA; where `newer` says so, of
onnxOpImporters.cpp at 10.1-GA, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import onnx

from tftrt_tools.tensorrt.exporting.job import opsets
from tftrt_tools.tensorrt.exporting.job.graph_facts import attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import defaults, instance_norm, shape_part
from tftrt_tools.tensorrt.exporting.onnx_graph import Value

_REDUCTIONS = frozenset(
    {
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
    }
)
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
# {op: {an attribute that is not read: its values that change nothing}}.
_UNREAD: dict[str, dict[str, Callable[[Any], bool]]] = {
    "BatchNormalization": {"training_mode": lambda value: not value},
    "LpPool": {"ceil_mode": lambda value: not value, "dilations": lambda value: set(value) <= {1}},
    "Resize": {"antialias": lambda value: not value, "keep_aspect_ratio_policy": lambda value: value == b"stretch"},
}


@dataclasses.dataclass(frozen=True)
class Unread:
    """text: what is read otherwise; "" for a node that is read as it is. newer: whether TensorRT 10 does so, too."""

    text: str = ""
    newer: bool = False


def of(node: onnx.NodeProto, value: Callable[[str], Value]) -> Unread:
    """Of a node. Args: value: what is known of a tensor that it reads."""
    if node.domain not in opsets.OWN:
        return Unread()
    if said := _newer(node):
        return Unread(said, True)
    return Unread(_of_8(node, value))


def _newer(node: onnx.NodeProto) -> str:
    if node.op_type in _RECURRENT and attributes(node).get("layout"):
        return "the parser does not read its layout, and would take the batch for the time"
    left = defaults.left_out(node)
    if left:
        return f"it leaves out {left.name}, which is {left.onnx} then, and the parser takes {left.parser}"
    return ""


def _of_8(node: onnx.NodeProto, value: Callable[[str], Value]) -> str:
    given = attributes(node)
    if node.op_type == "Shape" and shape_part.is_part(node, value(node.input[0]).shape):
        return "of some sizes (start, end) the parser gives all"
    if node.op_type in _SCATTERS and given.get("reduction", b"none") != b"none":
        return f"the parser does not read its reduction ({given['reduction'].decode()}), and would overwrite"
    if node.op_type == instance_norm.OP and instance_norm.is_half(node, {one: value(one).dtype for one in node.input}):
        return "the parser reads its scales as float32, and they are float16"
    if node.op_type in _REDUCTIONS:
        return _of_reduction(node, given, value)
    if node.op_type == "Split":
        return _of_split(node, given, value)
    for name, same in _UNREAD.get(node.op_type, {}).items():
        if name in given and not same(given[name]):
            return f"the parser does not read its {name}"
    return ""


def _of_reduction(node: onnx.NodeProto, given: dict[str, Any], value: Callable[[str], Value]) -> str:
    """Since opset 18 (a sum since 13) the axes are an input; the parser reads that of a sum."""
    axes = value(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    none = axes is None or axes.shape == (0,)
    if "axes" not in given and none and given.get("noop_with_empty_axes"):
        return "the parser does not read noop_with_empty_axes, and would reduce over all axes"
    if none or node.op_type == "ReduceSum":
        return ""
    shape = value(node.input[0]).shape
    if axes is not None and shape is not None and axes.shape == (len(shape),):
        return ""
    return "the parser does not read axes that are an input, and would reduce over all"


def _of_split(node: onnx.NodeProto, given: dict[str, Any], value: Callable[[str], Value]) -> str:
    """The parser rounds the parts down, and ONNX rounds them up (num_outputs, since opset 18)."""
    shape = value(node.input[0]).shape
    if "split" in given or any(node.input[1:]) or not shape:
        return ""
    size, parts = shape[given.get("axis", 0) % len(shape)], len(node.output)
    return f"the parser would leave out a part of {size} in {parts}" if size is not None and size % parts else ""
