"""A convolution of few channels with a long kernel: the kernel's long dimension becomes the channels.

Spectrograms and other signals have one channel, and a kernel may reach over most of a dimension. TensorRT 8.5 computed those that were
seen in FP32, one of them at 0.3 TFLOP/s; tensor cores multiply channels. Each output place of that dimension becomes a channel, too; its
weights are those of the kernel at its place, and zeros beside it:

    x [N, C, H, W], kernel [O, C, R, S]  ->  x [N, C * W, H, 1], kernel [O * W', C * W, R, 1]  ->  y [N, O, H', W']

It takes W / S times the multiplications.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

_MOST_CHANNELS, _LEAST_KERNEL = 4, 16
# Times the multiplications, and floats of one kernel, that it may cost.
_MOST_WORK, _MOST_WEIGHTS = 3.0, 16_000_000
_RANK, _HEIGHT, _WIDTH = 4, 2, 3
_BIAS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Axis:
    """A dimension of a convolution. size: of the input; 0 for one that is open. kernel, stride, dilation, before, after: of the node."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def places(self) -> int:
        """Of the output."""
        return (self.size + self.before + self.after - self.dilation * (self.kernel - 1) - 1) // self.stride + 1


@dataclasses.dataclass(frozen=True)
class _Found:
    """A convolution to write. kernel: its values. folded: the dimension that becomes channels. axis, other: that one, and the other."""

    kernel: np.ndarray[Any, Any]
    folded: int
    axis: _Axis
    other: _Axis


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        found = _found(facts, node) if node.op_type == "Conv" else None
        if found:
            written.append((node, _written(facts, node, found)))
    editing.replace(model, written)
    return len(written)


def _found(facts: Facts, node: onnx.NodeProto) -> _Found | None:
    """None for a convolution that stays."""
    kernel, shape = facts.constant(node.input[1]), facts.shape(node.input[0])
    given = attributes(node)
    if (
        kernel is None
        or kernel.ndim != _RANK
        or not shape
        or len(shape) != _RANK
        or not facts.is_float(node.input[0])
        or _bias(node)
        and not facts.is_constant(_bias(node))
    ):
        return None
    if (
        kernel.shape[1] > _MOST_CHANNELS
        or given.get("group", 1) != 1
        or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    ):
        return None
    axes = [_axis(given, kernel, shape, which) for which in (0, 1)]
    folded = max((0, 1), key=lambda which: axes[which].kernel)
    axis = axes[folded]
    if axis.kernel < _LEAST_KERNEL or axis.size < axis.kernel or axis.places < 1:
        return None
    weights = kernel.size // axis.kernel * axis.places * axis.size
    if axis.size > _MOST_WORK * axis.kernel or weights > _MOST_WEIGHTS:
        return None
    return _Found(kernel, _HEIGHT + folded, axis, axes[1 - folded])


def _bias(node: onnx.NodeProto) -> str:
    """The tensor of a convolution's bias; "" for none."""
    return node.input[_BIAS] if len(node.input) > _BIAS else ""


def _axis(given: dict[str, Any], kernel: np.ndarray[Any, Any], shape: tuple[int | str, ...], which: int) -> _Axis:
    size = shape[_HEIGHT + which]
    pads = given.get("pads", (0, 0, 0, 0))
    return _Axis(
        size=size if isinstance(size, int) else 0,
        kernel=kernel.shape[_HEIGHT + which],
        before=pads[which],
        after=pads[which + 2],
        stride=given.get("strides", (1, 1))[which],
        dilation=given.get("dilations", (1, 1))[which],
    )


def _written(facts: Facts, node: onnx.NodeProto, found: _Found) -> editing.Writer:
    outputs, channels = found.kernel.shape[:2]
    axis, other, x, writer = found.axis, found.other, node.input[0], editing.Writer(node)
    # [outputs, channels, kernel of the folded dimension, of the other one].
    turned = found.kernel
    if found.folded == _WIDTH:
        turned, x = turned.transpose(0, 1, 3, 2), writer.node("Transpose", [x], "turned", perm=[0, 1, 3, 2])
    channelled = writer.constant("as_channels", [0, channels * axis.size, max(other.size, 0) or -1, 1], np.int64)
    x = writer.node("Reshape", [x, channelled], "folded")
    inputs = [x, writer.constant("kernel", dense(turned, axis))]
    bias = facts.constant(_bias(node))
    if bias is not None:
        inputs.append(writer.constant("bias", np.repeat(bias, axis.places)))
    y = writer.node(
        "Conv",
        inputs,
        "conv",
        named=True,
        kernel_shape=[other.kernel, 1],
        strides=[other.stride, 1],
        dilations=[other.dilation, 1],
        pads=[other.before, 0, other.after, 0],
    )
    places = writer.constant("as_places", [0, outputs, axis.places, other.places if other.size > 0 else -1], np.int64)
    if found.folded == _HEIGHT:
        writer.node("Reshape", [y, places], "unfolded", last=True, named=False)
    else:
        y = writer.node("Reshape", [y, places], "unfolded")
        writer.node("Transpose", [y], "turned_back", last=True, named=False, perm=[0, 1, 3, 2])
    return writer


def dense(kernel: np.ndarray[Any, Any], axis: _Axis) -> np.ndarray[Any, Any]:
    """The kernel at each place of the output, and zeros beside it.

    Args: kernel: [outputs, channels, folded, other]. Returns: float32 [outputs * places, channels * size, other, 1].
    """
    outputs, channels, length, other = kernel.shape
    found = np.zeros((outputs, axis.places, channels, axis.size, other), np.float32)
    for place in range(axis.places):
        for tap in range(length):
            source = place * axis.stride + tap * axis.dilation - axis.before
            if 0 <= source < axis.size:
                found[:, place, :, source] = kernel[:, :, tap]
    return found.reshape(outputs * axis.places, channels * axis.size, other, 1)
