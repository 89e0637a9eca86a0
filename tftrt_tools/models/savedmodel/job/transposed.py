"""Transposed convolutions of three dimensions with an open batch, written as plain ones.

TF-TRT 2.14 takes Conv3DBackpropInputV2 only where the sizes of its result are a constant, the batch among them. With stride s and kernel w,
a transposed convolution computes along each dimension, for q = o + (padding before) and q = b * s + r with 0 <= r < s,

    result[o] = sum over t of x[b - t] * w[r + t * s],

which is a convolution with stride 1 that gives the s values of block b side by side, as channels. So one Conv3D gives all blocks, and a
transposition puts their values in order.
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

OP = "Conv3DBackpropInputV2"
_DIMENSIONS = 3
# How many times a filter may grow: kernels are filled up with zeros to whole strides, and to odd sizes.
_MOST_ZEROS = 16


def rewrite(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()) -> tuple[str, ...]:
    """Write those whose sizes but the batch are known, in place; those inside functions and loops stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. Returns: the names of those that were written.
    """
    sites = [node for node in graph_def.node if node.op == OP and node.name not in kept]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    nodes = {node.name: node for node in graph_def.node}
    for node in sites:
        if node.name in loops or nodes[folding.name_of(node.input[0])].op == "Const":
            continue
        filters = folding.value(node.input[1], nodes, folding.FILTERS)
        sides = _sides(node, shapes.get_operation_by_name(node.name)) if filters is not None else None
        if filters is None or sides is None:
            continue
        spread = _spread(filters, sides)
        if spread.size <= _MOST_ZEROS * filters.size:
            _Writer(graph_def, nodes).write(node, spread, sides)
            written.append(node.name)
    return tuple(written)


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
    def first(self) -> int:
        """The number of the first block that is wanted."""
        return self.before // self.stride

    @property
    def blocks(self) -> int:
        """How many blocks are wanted."""
        return (self.before + self.result - 1) // self.stride - self.first + 1

    @property
    def taps(self) -> int:
        """How many places of the data a block reads."""
        return math.ceil(self.kernel / self.stride)

    @property
    def reach(self) -> int:
        """How far from its own place in the data a block reads, to either side."""
        return max(self.taps - 1 - self.first, self.first)

    @property
    def missing(self) -> int:
        """Places that the data lacks at its end."""
        return max(self.blocks - self.size, 0)

    @property
    def crop(self) -> int:
        """Values before the result in the first block."""
        return self.before - self.first * self.stride


def _sides(node: node_def_pb2.NodeDef, op: tf.Operation) -> list[_Side] | None:
    """Depth, height and width; None where a size is open, or for channels first, dilations, and other types than float32."""
    data, result, kernel = op.inputs[2].shape, op.outputs[0].shape, op.inputs[1].shape
    attributes = {name: list(node.attr[name].list.i) for name in ("strides", "dilations")}
    if (
        node.attr["data_format"].s not in (b"", b"NDHWC")
        or op.inputs[2].dtype != tf.float32
        or any(size != 1 for size in attributes["dilations"])
        or data.rank != 5
        or result.rank != 5
        or None in (*data[1:], *result[1:], *kernel)
    ):
        return None
    sides = []
    for axis in range(1, 1 + _DIMENSIONS):
        size, whole, length, stride = data[axis], result[axis], kernel[axis - 1], attributes["strides"][axis]
        padding = max((size - 1) * stride + length - whole, 0) if node.attr["padding"].s == b"SAME" else 0
        sides.append(_Side(size=size, result=whole, kernel=length, stride=stride, before=padding // 2))
    return sides if all(side.first <= side.taps - 1 for side in sides) else None


def _spread(filters: npt.NDArray[np.float32], sides: Sequence[_Side]) -> npt.NDArray[np.float32]:
    """The filter of the plain convolution. Args: filters: (depth, height, width, channels of the result, channels of the data).

    Returns: (2 * reach + 1 of each side, channels of the data, strides of all sides * channels of the result).
    """
    strides = [side.stride for side in sides]
    spread = np.zeros(
        (*(2 * side.reach + 1 for side in sides), filters.shape[4], *strides, filters.shape[3]), filters.dtype
    )
    for place in np.ndindex(*filters.shape[:_DIMENSIONS]):
        at: list[int | slice] = [slice(None)] * spread.ndim
        for axis, (tap, side) in enumerate(zip(place, sides, strict=True)):
            # Block b reads x[b - t], and its own place in the data is b - first.
            at[axis] = side.reach + side.first - tap // side.stride
            at[_DIMENSIONS + 1 + axis] = tap % side.stride
        spread[tuple(at)] = filters[place].T
    return spread.reshape(*spread.shape[: _DIMENSIONS + 1], -1)


class _Writer:
    """Writes transposed convolutions of one graph. Args: nodes: {name: node}, which gets the new ones."""

    def __init__(self, graph_def: graph_pb2.GraphDef, nodes: dict[str, node_def_pb2.NodeDef]) -> None:
        self._graph_def, self._nodes = graph_def, nodes

    def write(self, node: node_def_pb2.NodeDef, filters: npt.NDArray[np.float32], sides: Sequence[_Side]) -> None:
        """Write one, whose result keeps its name."""
        name, source = node.name, node.input[2]
        controls = [one for one in node.input if one.startswith("^")]
        for axis, side in enumerate(sides, 1):
            if side.missing:
                source = self._longer(f"{name}/longer_{axis}", source, axis, side.missing)
        convolution = self._added(f"{name}/blocks", "Conv3D", [source, self._constant(f"{name}/filter", filters)])
        convolution.attr["strides"].list.i[:] = [1] * 5
        convolution.attr["dilations"].list.i[:] = [1] * 5
        convolution.attr["padding"].s, convolution.attr["data_format"].s = b"SAME", b"NDHWC"
        sizes, strides = ([side.size + side.missing for side in sides], [side.stride for side in sides])
        channels = filters.shape[-1] // math.prod(strides)
        apart = self._of_sizes(f"{name}/apart", "Reshape", convolution.name, [-1, *sizes, *strides, channels])
        turned = self._of_sizes(f"{name}/turned", "Transpose", apart, [0, 1, 4, 2, 5, 3, 6, 7])
        whole = [size * stride for size, stride in zip(sizes, strides, strict=True)]
        together = self._of_sizes(f"{name}/together", "Reshape", turned, [-1, *whole, channels])
        node.op, node.input[:] = "Identity", [together, *controls]
        node.attr.clear()
        node.attr["T"].type = tf.float32.as_datatype_enum
        if any(side.crop or side.result != size for side, size in zip(sides, whole, strict=True)):
            begin = [0, *(side.crop for side in sides), 0]
            end = [0, *(side.crop + side.result for side in sides), 0]
            self._slice(node, together, begin, end, controls)

    def _longer(self, name: str, source: str, axis: int, count: int) -> str:
        """The data with zeros behind it. TF-TRT pads two dimensions at most."""
        zero = self._added(f"{name}/one", "StridedSlice", [])
        begin, end = [0] * 5, [0] * 5
        end[axis] = 1
        self._slice(zero, source, begin, end, [], axis)
        nothing = self._constant(f"{name}/zero", np.zeros((), np.float32))
        zeros = self._added(f"{name}/zeros", "Mul", [zero.name, nothing]).name
        at = self._constant(f"{name}/axis", np.array(axis, np.int32))
        joined = self._added(f"{name}/joined", "ConcatV2", [source, *[zeros] * count, at])
        joined.attr["N"].i, joined.attr["Tidx"].type = count + 1, tf.int32.as_datatype_enum
        result: str = joined.name
        return result

    def _slice(
        self,
        node: node_def_pb2.NodeDef,
        source: str,
        begin: Sequence[int],
        end: Sequence[int],
        controls: Sequence[str],
        axis: int | None = None,
    ) -> None:
        """Make a node a slice of five dimensions, which are whole but for `axis`, or for all sides."""
        bounds = [
            self._constant(f"{node.name}/{what}", np.array(values, np.int32))
            for what, values in (("begin", begin), ("end", end), ("steps", [1] * 5))
        ]
        node.op, node.input[:] = "StridedSlice", [source, *bounds, *controls]
        node.attr["Index"].type = tf.int32.as_datatype_enum
        whole = sum(1 << at for at in range(5) if (at in (0, 4) if axis is None else at != axis))
        node.attr["begin_mask"].i = node.attr["end_mask"].i = whole
        for mask in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
            node.attr[mask].i = 0

    def _of_sizes(self, name: str, kind: str, source: str, sizes: Sequence[int]) -> str:
        node = self._added(name, kind, [source, self._constant(f"{name}/sizes", np.array(sizes, np.int32))])
        node.attr["Tshape" if kind == "Reshape" else "Tperm"].type = tf.int32.as_datatype_enum
        result: str = node.name
        return result

    def _constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        return added_nodes.constant(name, values, self._graph_def, self._nodes)

    def _added(self, name: str, kind: str, sources: Sequence[str]) -> node_def_pb2.NodeDef:
        node = self._graph_def.node.add(name=added_nodes.free(name, self._nodes), op=kind, input=sources)
        node.attr["T"].type = tf.float32.as_datatype_enum
        self._nodes[node.name] = node
        return node
