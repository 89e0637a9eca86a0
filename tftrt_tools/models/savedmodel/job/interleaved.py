"""Transposed convolutions and bilinear resizes of open sizes whose result is a whole multiple of the picture, for explicit batch mode.

A plain convolution gives the pixels of each block of the result as channels, and DepthToSpace puts them in order. Nothing of it depends on
the size, so that one engine serves all its profiles, and the model every other size.

A bilinear resize takes one neighbour of each pixel, and at an edge the pixel itself in its place. Beyond the edge the convolution reads
zeros, so that the share of what it read is less than 1 there; division by that share gives the same.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import (
    added_nodes,
    control_flow,
    dimensions,
    folding,
    inferred,
    resized,
    transposed,
)

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

_TRANSPOSED, _RESIZE = "Conv2DBackpropInput", "ResizeBilinear"
_FLOAT, _INT32 = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
_LAYOUT = b"NHWC"
# The most that a resize enlarges by; it computes 9 products for each pixel of the result.
_MOST_TIMES = 8


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write them in place; those inside functions and loops stay.

    Args: graph_def: frozen, with those of known sizes written already. kept: names of nodes to leave as they are.
    Returns: the names of (transposed convolutions, resizes) that were written.
    """
    sites = [node for node in graph_def.node if node.op in (_TRANSPOSED, _RESIZE) and node.name not in kept]
    if not sites:
        return (), ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    writer = _Writer(added_nodes.Writer(graph_def, nodes), nodes)
    convolutions, resizes = [], []
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if node.name in loops:
            continue
        if node.op == _TRANSPOSED and writer.convolution(node, op):
            convolutions.append(node.name)
        elif node.op == _RESIZE and writer.resize(node, op):
            resizes.append(node.name)
    return tuple(convolutions), tuple(resizes)


class _Writer:
    """Writes the nodes of one graph; the result of each keeps its name."""

    def __init__(self, writer: added_nodes.Writer, nodes: dict[str, node_def_pb2.NodeDef]) -> None:
        self._writer, self._nodes = writer, nodes

    def convolution(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write a transposed convolution. Returns: whether it can be written."""
        filters = folding.value(node.input[1], self._nodes, folding.FILTERS)
        times = node.attr["strides"].list.i[1]
        data = op.inputs[2].shape
        if (
            filters is None
            or data.rank != 4
            or None not in data[1:3]
            or data[3] is None
            or op.inputs[2].dtype != tf.float32
            or not _enlarges(op, times)
        ):
            return False
        spread = transposed.of_blocks(node, filters)
        if spread is None:
            return False
        constant = self._writer.constant(f"{node.name}/filter", spread)
        blocks = self._convolved("Conv2D", f"{node.name}/blocks", node.input[2], constant)
        self._in_order(node, blocks, times)
        return True

    def resize(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write a bilinear resize. Returns: whether it can be written."""
        picture, times = op.inputs[0].shape, resized.factors(op)
        if (
            op.get_attr("align_corners")
            or op.inputs[0].dtype != tf.float32
            or picture.rank != 4
            or None not in picture[1:3]
            or picture[3] is None
            or times is None
            or len(set(times)) > 1
            or not 1 < times[0] <= _MOST_TIMES
        ):
            return False
        name, channels, half = node.name, picture[3], bool(op.get_attr("half_pixel_centers"))
        one = self._first_channel(name, node.input[0])
        ones = self._writer.add("OnesLike", f"{name}/ones", [one], T=_FLOAT).name
        parts = []
        for what, source, count in (("pixels", node.input[0], channels), ("share", ones, 1)):
            constant = self._writer.constant(f"{name}/{what}/filter", _neighbours(times[0], half, count))
            blocks = self._convolved("DepthwiseConv2dNative", f"{name}/{what}/blocks", source, constant)
            blocks = self._by_place(f"{name}/{what}", blocks, count, times[0] ** 2) if count > 1 else blocks
            ordered = self._writer.add("DepthToSpace", f"{name}/{what}", [blocks], T=_FLOAT)
            ordered.attr["block_size"].i, ordered.attr["data_format"].s = times[0], _LAYOUT
            parts.append(ordered.name)
        added_nodes.become(node, "RealDiv", parts, T=_FLOAT)
        return True

    def _convolved(self, op: str, name: str, source: str, filters: str) -> str:
        node = self._writer.add(op, name, [source, filters], T=_FLOAT)
        node.attr["strides"].list.i[:] = node.attr["dilations"].list.i[:] = [1] * 4
        node.attr["padding"].s, node.attr["data_format"].s = b"SAME", _LAYOUT
        result: str = node.name
        return result

    def _in_order(self, node: node_def_pb2.NodeDef, blocks: str, times: int) -> None:
        if times == 1:
            added_nodes.become(node, "Identity", [blocks], T=_FLOAT)
            return
        added_nodes.become(node, "DepthToSpace", [blocks], T=_FLOAT)
        node.attr["block_size"].i, node.attr["data_format"].s = times, _LAYOUT

    def _by_place(self, name: str, source: str, channels: int, places: int) -> str:
        """Channels in the order of DepthToSpace: the place in the block first; a depthwise convolution gives the channel first."""
        order = np.arange(channels * places, dtype=np.int32).reshape(channels, places).T.ravel()
        sources = [source, self._writer.constant(f"{name}/order", order), self._axis(name, 3)]
        node = self._writer.add("GatherV2", f"{name}/by_place", sources, Tparams=_FLOAT, Tindices=_INT32, Taxis=_INT32)
        node.attr["batch_dims"].i = 0
        result: str = node.name
        return result

    def _first_channel(self, name: str, source: str) -> str:
        number = self._writer.constant(f"{name}/first", np.zeros(1, np.int32))
        sources = [source, number, self._axis(name, 3)]
        node = self._writer.add("GatherV2", f"{name}/one", sources, Tparams=_FLOAT, Tindices=_INT32, Taxis=_INT32)
        node.attr["batch_dims"].i = 0
        result: str = node.name
        return result

    def _axis(self, name: str, axis: int) -> str:
        return self._writer.constant(f"{name}/axis", np.array(axis, np.int32))


def _enlarges(op: tf.Operation, times: int) -> bool:
    """Whether height and width of a transposed convolution's result are `times` those of its data, at every size."""
    sizes, picture = op.inputs[0].op, dimensions.of(op.inputs[2])
    if sizes.type != "Pack" or len(sizes.inputs) != 4 or picture is None:
        return False
    return all(dimensions.multiple(sizes.inputs[axis]) == (picture[axis], times) for axis in (1, 2))


def _neighbours(times: int, half: bool, channels: int) -> npt.NDArray[np.float32]:
    """(3, 3, channels, times * times): the share that each pixel of a block has of a pixel and its neighbours."""
    places = np.arange(times)
    moved = (places + 0.5) / times - 0.5 if half else places / times
    shares = np.stack([np.maximum(-moved, 0), 1 - np.abs(moved), np.maximum(moved, 0)])
    together = np.einsum("ar,bs->abrs", shares, shares).reshape(3, 3, 1, times * times)
    return np.ascontiguousarray(np.repeat(together, channels, 2), np.float32)
