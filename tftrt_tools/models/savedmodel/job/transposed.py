"""Transposed convolutions with an open batch, written as plain ones.

TF-TRT 2.14 takes Conv2DBackpropInput and Conv3DBackpropInputV2 only where the sizes of the result are a constant, the batch among them, and
Keras' layers compute them. With stride s, kernel w and a padding of p in front, a transposed convolution computes along each dimension

    result[b * s + r] = sum of x[b - t] * w[p + t * s + r] over all t for which w has that place, with 0 <= r < s.

This is a convolution with stride 1. It gives the s values of block b side by side, as channels, and a transposition puts them in order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, folding, inferred

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

# {op: the plain convolution, its layout of channels last}.
OPS = {"Conv2DBackpropInput": ("Conv2D", b"NHWC"), "Conv3DBackpropInputV2": ("Conv3D", b"NDHWC")}
_FLOAT, _INT32 = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
# How many times a filter may grow: kernels are filled up with zeros to whole strides, and to odd sizes.
_MOST_ZEROS = 16


def rewrite(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset(), slices: bool = True) -> tuple[str, ...]:
    """Write those whose sizes but the batch are known, in place; those inside functions and loops stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. slices: write those, too, whose result is no multiple of the data;
      in implicit batch mode TF-TRT takes no such slice. Returns: the names of those that were written.
    """
    sites = [node for node in graph_def.node if node.op in OPS and node.name not in kept]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    nodes = {node.name: node for node in graph_def.node}
    writer = added_nodes.Writer(graph_def, nodes)
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        # TensorFlow makes a constant of sizes that it can tell, those of a fixed batch, and TF-TRT takes them.
        if node.name in loops or tf.get_static_value(op.inputs[0]) is not None:
            continue
        filters = folding.value(node.input[1], nodes, folding.FILTERS)
        sides = _sides(node, op) if filters is not None else None
        if (
            filters is None
            or sides is None
            or not (slices or all(side.result == side.size * side.stride for side in sides))
        ):
            continue
        spread = _spread(filters, sides)
        if spread.size <= _MOST_ZEROS * filters.size:
            _write(node, spread, sides, writer)
            written.append(node.name)
    return tuple(written)


def of_blocks(node: node_def_pb2.NodeDef, filters: npt.NDArray[np.float32]) -> npt.NDArray[np.float32] | None:
    """The filter of the plain convolution for a transposed one of open height and width, whose result is the strides times as large.

    Args: node: a Conv2DBackpropInput. filters: (height, width, channels of the result, of the data). Returns: None where the result is
      otherwise, for two strides, channels first, dilations, and where the filter would grow too much.
    """
    attributes = {name: list(node.attr[name].list.i) for name in ("strides", "dilations")}
    padding, (height, width) = node.attr["padding"].s, filters.shape[:2]
    stride = attributes["strides"][1]
    if (
        node.attr["data_format"].s not in (b"", OPS[node.op][1])
        or any(size != 1 for size in attributes["dilations"])
        or attributes["strides"] != [1, stride, stride, 1]
        or not (padding == b"SAME" or (padding == b"VALID" and max(height, width) <= stride))
    ):
        return None
    # The zeros in front do not depend on the size.
    sides = [
        _Side(size=1, result=stride, kernel=kernel, stride=stride, before=max(kernel - stride, 0) // 2)
        for kernel in (height, width)
    ]
    spread = _spread(filters, sides)
    return spread if spread.size <= _MOST_ZEROS * filters.size else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Side:
    """One dimension of a transposed convolution."""

    # Sizes of the data, the result and the kernel.
    size: int
    result: int
    kernel: int
    stride: int
    # Zeros that the forward convolution has in front.
    before: int

    @property
    def reach(self) -> int:
        """How far from its own place in the data a block reads, to either side."""
        return max(-(-self.before // self.stride), (self.kernel - 1 - self.before) // self.stride)

    @property
    def missing(self) -> int:
        """Places that the data lacks at its end."""
        return max(math.ceil(self.result / self.stride) - self.size, 0)


def _sides(node: node_def_pb2.NodeDef, op: tf.Operation) -> list[_Side] | None:
    """[Depth,] height and width; None where a size is open, or for channels first, dilations, and other types than float32."""
    data, result, kernel = op.inputs[2].shape, op.outputs[0].shape, op.inputs[1].shape
    attributes = {name: list(node.attr[name].list.i) for name in ("strides", "dilations")}
    _, layout = OPS[node.op]
    if (
        node.attr["data_format"].s not in (b"", layout)
        or node.attr["padding"].s not in (b"SAME", b"VALID")
        or op.inputs[2].dtype != tf.float32
        or any(size != 1 for size in attributes["dilations"])
        or data.rank != len(layout)
        or result.rank != len(layout)
        or None in (*data[1:], *result[1:], *kernel)
    ):
        return None
    sides = []
    for axis in range(1, data.rank - 1):
        size, whole, length, stride = data[axis], result[axis], kernel[axis - 1], attributes["strides"][axis]
        padding = max((size - 1) * stride + length - whole, 0) if node.attr["padding"].s == b"SAME" else 0
        sides.append(_Side(size=size, result=whole, kernel=length, stride=stride, before=padding // 2))
    return sides


def _spread(filters: npt.NDArray[np.float32], sides: Sequence[_Side]) -> npt.NDArray[np.float32]:
    """The filter of the plain convolution. Args: filters: (sizes, channels of the result, channels of the data).

    Returns: (2 * reach + 1 of each side, channels of the data, strides of all sides * channels of the result).
    """
    strides, count = [side.stride for side in sides], len(sides)
    of_result, of_data = filters.shape[count:]
    spread = np.zeros((*(2 * side.reach + 1 for side in sides), of_data, *strides, of_result), filters.dtype)
    for place in np.ndindex(*filters.shape[:count]):
        at: list[int | slice] = [slice(None)] * spread.ndim
        for axis, (tap, side) in enumerate(zip(place, sides, strict=True)):
            moved, at[count + 1 + axis] = divmod(tap - side.before, side.stride)
            at[axis] = side.reach - moved
        spread[tuple(at)] = filters[place].T
    return spread.reshape(*spread.shape[: count + 1], -1)


def _write(
    node: node_def_pb2.NodeDef, filters: npt.NDArray[np.float32], sides: Sequence[_Side], writer: added_nodes.Writer
) -> None:
    """Write one, whose result keeps its name. Args: filters: of the plain convolution. writer: of the node's graph."""
    name, source, (plain, layout) = node.name, node.input[2], OPS[node.op]
    for axis, side in enumerate(sides, 1):
        if side.missing:
            source = _longer(f"{name}/longer_{axis}", source, axis, side.missing, len(layout), writer)
    convolution = writer.add(plain, f"{name}/blocks", [source, writer.constant(f"{name}/filter", filters)], T=_FLOAT)
    convolution.attr["strides"].list.i[:] = [1] * len(layout)
    convolution.attr["dilations"].list.i[:] = [1] * len(layout)
    convolution.attr["padding"].s, convolution.attr["data_format"].s = b"SAME", layout
    sizes, strides = ([side.size + side.missing for side in sides], [side.stride for side in sides])
    channels, count = filters.shape[-1] // math.prod(strides), len(sides)
    pairs = [place for axis in range(1, 1 + count) for place in (axis, axis + count)]
    whole = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    source = convolution.name
    for what, op, numbers, attribute in (
        ("apart", "Reshape", [-1, *sizes, *strides, channels], "Tshape"),
        ("turned", "Transpose", [0, *pairs, 2 * count + 1], "Tperm"),
        ("together", "Reshape", [-1, *whole, channels], "Tshape"),
    ):
        operand = writer.constant(f"{name}/{what}/sizes", np.array(numbers, np.int32))
        source = writer.add(op, f"{name}/{what}", [source, operand], **{"T": _FLOAT, attribute: _INT32}).name
    if any(side.result != size for side, size in zip(sides, whole, strict=True)):
        end = [0, *(side.result for side in sides), 0]
        bounds = _bounds(name, [0] * len(end), end, writer)
        added_nodes.become(node, "StridedSlice", [source, *bounds], T=_FLOAT, Index=_INT32)
        _mask(node, [0, count + 1])
    else:
        added_nodes.become(node, "Identity", [source], T=_FLOAT)


def _longer(name: str, source: str, axis: int, count: int, rank: int, writer: added_nodes.Writer) -> str:
    """The data with zeros behind it. TF-TRT pads two dimensions at most."""
    bounds = _bounds(f"{name}/one", [0] * rank, [int(other == axis) for other in range(rank)], writer)
    one = writer.add("StridedSlice", f"{name}/one", [source, *bounds], T=_FLOAT, Index=_INT32)
    _mask(one, [other for other in range(rank) if other != axis])
    nothing = writer.constant(f"{name}/zero", np.zeros((), np.float32))
    zeros = writer.add("Mul", f"{name}/zeros", [one.name, nothing], T=_FLOAT).name
    at = writer.constant(f"{name}/axis", np.array(axis, np.int32))
    joined = writer.add("ConcatV2", f"{name}/joined", [source, *[zeros] * count, at], T=_FLOAT, Tidx=_INT32)
    joined.attr["N"].i = count + 1
    result: str = joined.name
    return result


def _bounds(name: str, begin: Sequence[int], end: Sequence[int], writer: added_nodes.Writer) -> list[str]:
    """Constants of a slice in steps of one."""
    values = {"begin": begin, "end": end, "steps": [1] * len(begin)}
    return [writer.constant(f"{name}/{what}", np.array(numbers, np.int32)) for what, numbers in values.items()]


def _mask(node: node_def_pb2.NodeDef, whole: Sequence[int]) -> None:
    """Set the masks of a slice. Args: whole: the axes that stay as they are."""
    node.attr["begin_mask"].i = node.attr["end_mask"].i = sum(1 << axis for axis in whole)
    for mask in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        node.attr[mask].i = 0
