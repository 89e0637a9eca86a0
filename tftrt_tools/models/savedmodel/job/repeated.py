"""Repeated rows, columns and elements (`tf.repeat`; Keras 3's UpSampling1D, 2D and 3D, RepeatVector), written so that their sizes are seen.

tf.repeat gives its data an axis, tiles it, and takes the axis away by a Reshape of a computed shape. TensorFlow's optimizer writes a part
of that shape as ExpandDims, which inference does not follow, so that TF-TRT knows no size of the result. It then refuses the next
convolution: "Channel dimension must be static".

Rows and columns of pictures become a nearest-neighbour resize, as Keras 2 writes it. Others keep the tile, with a shape that shows each
size that is known.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, dimensions, folding, inferred
from tftrt_tools.models.savedmodel.preparation import NEAREST

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

_INT32 = tf.int32.as_datatype_enum
# The types of pictures whose resize TF-TRT takes.
_PICTURES = (tf.float32, tf.float16)
# Ops that compute how often each axis is tiled.
_COUNTED = frozenset({"Identity", "Cast", "Reshape", "Pack"})
# Ops of a repeat that read its data.
_LEFT = frozenset({"ExpandDims", "Shape"})


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write them in place; those inside functions and loops stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are.
    Returns: the names of (those that are a resize now, others), by the node that gives the result.
    """
    nodes = {node.name: node for node in graph_def.node}
    sites = [node for node in graph_def.node if _ends(node, nodes) and not _is_kept(node, nodes, kept)]
    if not sites:
        return (), ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    found = {}
    for node in sites:
        repeat = _match(shapes.get_operation_by_name(node.name), nodes) if node.name not in loops else None
        if repeat is not None:
            found[node.name] = repeat
    inner = {repeat.source for repeat in found.values() if repeat.is_picture} & {
        name for name, repeat in found.items() if repeat.is_picture
    }
    writer = _Writer(added_nodes.Writer(graph_def, nodes))
    resized, others = [], []
    for name, repeat in found.items():
        if repeat.is_picture:
            whole = repeat
            while whole.source in inner:
                whole = found[whole.source].then(whole)
            writer.resize(nodes[name], whole)
            resized.append(name)
        elif writer.reshape(nodes[name], repeat):
            others.append(name)
    # Of a repeat that another one took in nothing is left but what leads to that one's tile and shape.
    read = {folding.name_of(source) for node in graph_def.node if node.op not in _LEFT for source in node.input}
    return tuple(name for name in resized if name not in inner or name in read), tuple(others)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Repeat:
    """A repeat along an axis, or along height and width."""

    # The name of the data, as a node reads it, and its type.
    source: str
    dtype: tf.DType
    # The sizes of the data, and how often its elements are repeated along each axis.
    sizes: list[dimensions.Dimension]
    times: list[int]

    @property
    def is_picture(self) -> bool:
        """Whether rows and columns alone are repeated, and TF-TRT takes a resize of such data."""
        return len(self.times) == 4 and self.times[0] == self.times[3] == 1 and self.dtype in _PICTURES

    @property
    def is_known(self) -> bool:
        """Whether height and width are known."""
        return all(isinstance(size, int) for size in self.sizes[1:3])

    @property
    def result(self) -> list[int | None]:
        """The sizes of the result, None for those that are open."""
        pairs = zip(self.sizes, self.times, strict=True)
        return [size * times if isinstance(size, int) else None for size, times in pairs]

    def then(self, other: _Repeat) -> _Repeat:
        """This repeat and another one of its result."""
        times = [one * two for one, two in zip(self.times, other.times, strict=True)]
        return dataclasses.replace(self, times=times)


def _ends(node: node_def_pb2.NodeDef, nodes: dict[str, node_def_pb2.NodeDef]) -> bool:
    """Whether a node may be the end of a repeat: a Reshape of a tile of data with one more axis, to a computed shape."""
    names = [folding.name_of(source) for source in node.input[:2]]
    return bool(
        node.op == "Reshape"
        and nodes[names[0]].op == "Tile"
        and nodes[names[1]].op == "ConcatV2"
        and nodes[folding.name_of(nodes[names[0]].input[0])].op == "ExpandDims"
    )


def _is_kept(node: node_def_pb2.NodeDef, nodes: dict[str, node_def_pb2.NodeDef], kept: Container[str]) -> bool:
    tile = nodes[folding.name_of(node.input[0])]
    return any(name in kept for name in (node.name, tile.name, folding.name_of(tile.input[0])))


def _match(op: tf.Operation, nodes: dict[str, node_def_pb2.NodeDef]) -> _Repeat | None:
    """The repeat of which a Reshape is the end; None where the graph does not prove that it is one."""
    tile = op.inputs[0].op
    expanded, shape = tile.inputs[0].op, op.inputs[1].op
    data, rank = expanded.inputs[0], expanded.inputs[0].shape.rank
    counts = folding.value(nodes[tile.name].input[1], nodes, _COUNTED)
    place = tf.get_static_value(expanded.inputs[1])
    if counts is None or place is None or rank is None or counts.shape != (rank + 1,) or len(shape.inputs) != 4:
        return None
    axis = int(np.ravel(place)[0]) % (rank + 1) - 1
    times = int(counts[axis + 1])
    sizes = [dimensions.size_of(data, one) for one in range(rank)]
    before, middle, behind, joined = shape.inputs
    if (
        axis < 0
        or times < 1
        or math.prod(counts.tolist()) != times
        or tf.get_static_value(joined) != 0
        or dimensions.of_shape(before) != sizes[:axis]
        or dimensions.of_shape(behind) != sizes[axis + 1 :]
        or not _is_product(middle, sizes[axis], times, nodes)
    ):
        return None
    return _Repeat(
        source=nodes[expanded.name].input[0],
        dtype=data.dtype,
        sizes=list(sizes),
        times=[times if one == axis else 1 for one in range(rank)],
    )


def _is_product(
    tensor: tf.Tensor, size: dimensions.Dimension, times: int, nodes: dict[str, node_def_pb2.NodeDef]
) -> bool:
    """Whether a shape of one number is `size` times `times`."""
    if tensor.op.type != "Pack" or len(tensor.op.inputs) != 1 or tensor.op.inputs[0].op.type != "Mul":
        return isinstance(size, int) and dimensions.of_shape(tensor) == [size * times]
    product = tensor.op.inputs[0].op
    for index, other in ((0, product.inputs[1]), (1, product.inputs[0])):
        count = folding.value(nodes[product.name].input[index], nodes, _COUNTED)
        if count is not None and count.size == 1 and int(count.item()) == times:
            return dimensions.of_shape(other) == [size]
    return False


class _Writer:
    """Writes the repeats of one graph; the result of each keeps its name."""

    def __init__(self, writer: added_nodes.Writer) -> None:
        self._writer = writer

    def resize(self, node: node_def_pb2.NodeDef, repeat: _Repeat) -> None:
        """Write one of rows and columns as a nearest-neighbour resize."""
        dtype = node.attr["T"].type
        added_nodes.become(node, NEAREST, [repeat.source, self._size(node.name, repeat, dtype)], T=dtype)
        node.attr["align_corners"].b = False
        # The middle of a pixel is never at the border of two, whatever is rounded on the way.
        node.attr["half_pixel_centers"].b = True

    def reshape(self, node: node_def_pb2.NodeDef, repeat: _Repeat) -> bool:
        """Give the Reshape a shape that shows what is known. Returns: whether it can be."""
        result = repeat.result
        if 0 in result:
            return False
        if result.count(None) <= 1:
            shape = np.array([-1 if size is None else size for size in result], np.int32)
            node.input[1] = self._writer.constant(f"{node.name}/shape_of_repeat", shape)
        else:
            node.input[1] = self._packed(node.name, repeat, node.attr["T"].type)
        node.attr["Tshape"].type = _INT32
        return True

    def _size(self, name: str, repeat: _Repeat, dtype: int) -> str:
        """Height and width of a resize's result: a constant, or so many times those of the picture."""
        if repeat.is_known:
            return self._writer.constant(f"{name}/size", np.array(repeat.result[1:3], np.int32))
        shape = self._writer.add("Shape", f"{name}/shape", [repeat.source], T=dtype, out_type=_INT32)
        size = self._slice(f"{name}/picture", shape.name, 1, 3)
        times = self._writer.constant(f"{name}/times", np.array(repeat.times[1:3], np.int32))
        result: str = self._writer.add("Mul", f"{name}/size", [size.name, times], T=_INT32).name
        return result

    def _packed(self, name: str, repeat: _Repeat, dtype: int) -> str:
        """A shape that is put together of numbers: those that are known are constants."""
        shape = self._writer.add("Shape", f"{name}/shape", [repeat.source], T=dtype, out_type=_INT32)
        parts = []
        for axis, (size, times) in enumerate(zip(repeat.result, repeat.times, strict=True)):
            if size is not None:
                parts.append(self._writer.constant(f"{name}/size_{axis}", np.array(size, np.int32)))
                continue
            part = self._slice(f"{name}/axis_{axis}", shape.name, axis, axis + 1)
            part.attr["shrink_axis_mask"].i = 1
            if times > 1:
                count = self._writer.constant(f"{name}/times_{axis}", np.array(times, np.int32))
                part = self._writer.add("Mul", f"{name}/size_{axis}", [part.name, count], T=_INT32)
            parts.append(part.name)
        packed = self._writer.add("Pack", f"{name}/shape_of_repeat", parts, T=_INT32)
        packed.attr["N"].i, packed.attr["axis"].i = len(parts), 0
        result: str = packed.name
        return result

    def _slice(self, name: str, shape: str, begin: int, end: int) -> node_def_pb2.NodeDef:
        bounds = [
            self._writer.constant(f"{name}/{what}", np.array([number], np.int32))
            for what, number in (("begin", begin), ("end", end), ("steps", 1))
        ]
        node = self._writer.add("StridedSlice", name, [shape, *bounds], T=_INT32, Index=_INT32)
        for mask in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
            node.attr[mask].i = 0
        return node
