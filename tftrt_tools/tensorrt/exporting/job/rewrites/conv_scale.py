"""A constant scale or shift around a convolution, of each channel or of all: in the convolution's weights and bias.

Exporters merge batch normalizations, and leave learned scales and shifts beside a convolution (PP-OCRv4 has 62 convolutions and 86
products). TensorRT 8.5 makes each a part of a chain of pointwise ops, and compiles kernels for that.

    (w * x + b) · s + t  =  (w · s) * x + (b · s + t)
    w * (x · s + t) + b  =  (w · s) * x + (w * t + b)

In front, a shift is taken where the convolution pads nothing: it does not shift the zeros of a padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

_OPS = ("Mul", "Div", "Add", "Sub")
_KERNEL, _BIAS = 1, 2
_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Found:
    """Of a convolution. input: what it reads; last: the node whose output it gives; taken: first outputs of the other nodes that go.
    kernel: float64 [outputs, inputs of a group, …]; bias: float64 [outputs]."""

    conv: onnx.NodeProto
    input: str
    last: onnx.NodeProto
    taken: tuple[str, ...]
    kernel: _Floats
    bias: _Floats


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many convolutions."""
    facts = Facts(model)
    given = [one for node in model.graph.node if node.op_type == "Conv" and (one := _found(facts, node))]
    behind = [_behind(facts, one) for one in given]
    taken = {name for one in behind for name in one.taken}
    found = [one for one in (_in_front(facts, one, taken) for one in behind) if one.taken and _fits(one)]
    written = []
    for one in found:
        writer = editing.Writer(one.last, one.conv)
        inputs = [one.input, writer.constant("kernel", one.kernel), writer.constant("bias", one.bias)]
        writer.node("Conv", inputs, "conv", last=True, **attributes(one.conv))
        written.append((one.last, writer))
    editing.replace(model, written)
    return len(written)


def _found(facts: Facts, node: onnx.NodeProto) -> _Found | None:
    """A convolution as it is; None for one whose weights are not known, or not float32."""
    kernel = facts.constant(node.input[_KERNEL])
    has_bias = len(node.input) > _BIAS and bool(node.input[_BIAS])
    bias = facts.constant(node.input[_BIAS]) if has_bias else None
    if kernel is None or kernel.dtype != np.float32 or has_bias and bias is None:
        return None
    floats = np.zeros(len(kernel)) if bias is None else bias.astype(np.float64)
    return _Found(conv=node, input=node.input[0], last=node, taken=(), kernel=kernel.astype(np.float64), bias=floats)


def _behind(facts: Facts, found: _Found) -> _Found:
    """With all that it can take behind it."""
    while (node := facts.alone(found.last.output[0])) is not None:
        scale, shift = _affine(facts, node, found.last.output[0], found.kernel.ndim, len(found.kernel))
        if scale is None or shift is None:
            break
        kernel = found.kernel * scale.reshape(-1, *[1] * (found.kernel.ndim - 1))
        bias = found.bias * scale + shift
        taken = (*found.taken, found.last.output[0], node.output[0])
        found = dataclasses.replace(found, last=node, kernel=kernel, bias=bias, taken=taken)
    return found


def _in_front(facts: Facts, found: _Found, others: Collection[str]) -> _Found:
    """With all that it can take in front of it. Args: others: outputs of nodes that another convolution takes."""
    group, inner = attributes(found.conv).get("group", 1), found.kernel.shape[1]
    rank, each = found.kernel.ndim, len(found.kernel) // group
    while (node := facts.producers.get(found.input)) is not None:
        tensor = next((one for one in node.input if not facts.is_constant(one)), "")
        if facts.alone(found.input) is None or node.output[0] in others:
            break
        scale, shift = _affine(facts, node, tensor, rank, group * inner)
        shape = facts.shape(tensor)
        # A constant may spread one channel, or fewer dimensions, to those that the convolution reads.
        if not shape or len(shape) != rank or shape[1] != group * inner:
            break
        if scale is None or shift is None or shift.any() and _pads(found.conv):
            break
        # Of each output its group's input channels: [outputs, inner, 1, …].
        scales, shifts = (
            np.repeat(one.reshape(group, inner), each, axis=0).reshape(-1, inner, *[1] * (rank - 2))
            for one in (scale, shift)
        )
        bias = found.bias + (found.kernel * shifts).reshape(len(found.kernel), -1).sum(1)
        found = dataclasses.replace(
            found, input=tensor, kernel=found.kernel * scales, bias=bias, taken=(*found.taken, node.output[0])
        )
    return found


def _pads(node: onnx.NodeProto) -> bool:
    given = attributes(node)
    return any(given.get("pads", ())) or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")


def _affine(
    facts: Facts, node: onnx.NodeProto, tensor: str, rank: int, channels: int
) -> tuple[_Floats, _Floats] | tuple[None, None]:
    """(scale, shift), float64 [channels] each, of a node that gives tensor · scale + shift; (None, None) of another node."""
    if node.op_type not in _OPS or list(node.input).count(tensor) != 1:
        return None, None
    first = node.input[0] == tensor
    values = _channels(facts.constant(node.input[1 if first else 0]), rank, channels)
    if values is None or node.op_type == "Div" and not (first and values.all()):
        return None, None
    ones, zeros = np.ones(channels), np.zeros(channels)
    if node.op_type == "Add":
        return ones, values
    if node.op_type == "Sub":
        return (ones, -values) if first else (-ones, values)
    return (1 / values if node.op_type == "Div" else values), zeros


def _channels(values: np.ndarray[Any, Any] | None, rank: int, channels: int) -> _Floats | None:
    """A constant as a number for each channel: float64 [channels]; None if it differs within a channel, or has more dimensions than what
    it is added to."""
    if values is None or values.dtype != np.float32 or values.ndim > rank:
        return None
    sizes = [1] * (rank - values.ndim) + list(values.shape)
    if sizes[1] not in (1, channels) or max([*sizes[:1], *sizes[2:]]) > 1:
        return None
    return np.broadcast_to(values.reshape(-1).astype(np.float64), (channels,)).copy()


def _fits(found: _Found) -> bool:
    """Whether all of it is finite in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return all(bool(np.isfinite(one.astype(np.float32)).all()) for one in (found.kernel, found.bias))
