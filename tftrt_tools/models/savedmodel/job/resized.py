"""Resizes of pictures: written as products with constant weights, and kept out of engines that would answer wrongly.

Of ResizeBilinear TF-TRT 2.14 takes the form with align_corners alone, and it takes neither ResizeBicubic nor ResizeArea. It takes every
ResizeNearestNeighbor, but tells TensorRT neither of half_pixel_centers nor of the rounding of align_corners. Such an engine is built and
takes other pixels, unless each pixel is repeated (seen with TensorRT 8.5.3 on an H100).

All four ops are linear, and treat height and width apart. So with known sizes each is

    result = rows * picture * columns

in every channel, where rows and columns are constant. Their numbers are what TensorFlow's own op answers for pictures of a single 1, so
that nothing of the four ops is repeated here. The nearest neighbours of a resize are rows and columns that a GatherV2 picks.
"""

from __future__ import annotations

import itertools
from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, dimensions, indexed, inferred
from tftrt_tools.models.savedmodel.preparation import NEAREST, Resized

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

_FLOAT, _INT32 = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
OPS = frozenset({"ResizeBilinear", "ResizeBicubic", "ResizeArea", NEAREST})
REASON = "TF-TRT takes it, and the engine takes other pixels than TensorFlow; with known sizes it becomes GatherV2"
# The types of pictures that TF-TRT takes.
_TAKEN = (tf.float32.as_datatype_enum, tf.float16.as_datatype_enum)
# The most bytes of weights that one resize may add.
_MOST_BYTES = 64 << 20
_CHANNELS_FIRST, _CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def rewrite(
    graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()
) -> tuple[tuple[Resized, ...], tuple[str, ...]]:
    """Write the resizes that TF-TRT refuses, or would compute wrongly, as products, in place. Those of open sizes, and those inside
    functions and loops, stay as they are.

    Args: graph_def: frozen. kept: names of nodes to leave as they are.
    Returns: (Resized for each that was written, in the graph's order; the names of others that TF-TRT takes, and that an engine may compute
      wrongly).
    """
    sites = [node for node in graph_def.node if node.op in OPS and node.name not in kept]
    if not sites:
        return (), ()
    shapes, loops = inferred.shapes(graph_def), control_flow.in_loops(graph_def)
    writer, written, wrong = _Writer(graph_def), [], []
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if _is_right(op):
            continue
        before, behind = _sizes(op.inputs[0]), _result(op)
        # A constant inside a loop would need an Enter node.
        if (
            before is not None
            and behind is not None
            and node.name not in loops
            and op.inputs[0].dtype == tf.float32
            and 4 * sum(size * result for size, result in zip(before, behind, strict=True)) <= _MOST_BYTES
        ):
            written.append(writer.write(node, before, behind))
        elif node.op == NEAREST and node.attr["T"].type in _TAKEN:
            wrong.append(node.name)
    return tuple(written), tuple(wrong)


def without_half_pixels(graph_def: graph_pb2.GraphDef) -> int:
    """Nearest-neighbour resizes that repeat each pixel as often: half_pixel_centers says nothing there, and is taken off, in place.

    TensorRT 8.5's parser refuses what tf2onnx makes of it. Returns: how many.
    """
    sites = [node for node in graph_def.node if node.op == NEAREST and node.attr["half_pixel_centers"].b]
    if not sites:
        return 0
    shapes = inferred.shapes(graph_def)
    repeated = [node for node in sites if _repeats(shapes.get_operation_by_name(node.name))]
    for node in repeated:
        node.attr["half_pixel_centers"].b = False
    return len(repeated)


def takes_other_pixels(op: tf.Operation) -> bool:
    """Whether an engine surely computes a resize otherwise than TensorFlow. Args: op: of NEAREST, in a graph of inferred shapes."""
    known = _sizes(op.inputs[0]) is not None and _result(op) is not None
    return not _is_right(op) and (known or bool(op.get_attr("align_corners")))


def _is_right(op: tf.Operation) -> bool:
    """Whether TF-TRT takes a resize, and its engine answers as TensorFlow does at every size."""
    if op.type != NEAREST:
        return op.type == "ResizeBilinear" and bool(op.get_attr("align_corners"))
    before, behind = _sizes(op.inputs[0]), _result(op)
    if before is not None and before == behind:
        return True
    return not op.get_attr("align_corners") and (not op.get_attr("half_pixel_centers") or _repeats(op))


def _repeats(op: tf.Operation) -> bool:
    """Whether each pixel is repeated, as often as all others, at every size."""
    before, behind = _sizes(op.inputs[0]), _result(op)
    if before is not None and behind is not None:
        return all(size and result and not result % size for size, result in zip(before, behind, strict=True))
    return factors(op) is not None


def factors(op: tf.Operation) -> tuple[int, int] | None:
    """How many times the height and the width of a picture a resize gives, at every size; None where that is no whole constant."""
    product, picture = op.inputs[1].op, dimensions.of(op.inputs[0])
    while product.type in ("Identity", "Cast"):
        product = product.inputs[0].op
    if product.type != "Mul" or picture is None:
        return None
    for sizes, times in itertools.permutations(product.inputs):
        counts = tf.get_static_value(times)
        whole = counts is not None and np.all(counts >= 1) and np.all(counts == np.floor(counts))
        if whole and dimensions.of_shape(sizes) == picture[1:3]:
            height, width = np.broadcast_to(counts, 2).tolist()
            return int(height), int(width)
    return None


def _sizes(tensor: tf.Tensor) -> tuple[int, int] | None:
    """(height, width) of pictures, None where one of them is open."""
    if tensor.shape.rank != 4 or None in tensor.shape[1:3]:
        return None
    height, width = tensor.shape[1:3].as_list()
    return height, width


def _result(op: tf.Operation) -> tuple[int, int] | None:
    """(height, width) of a resize's result, None where one of them is open."""
    sizes = _sizes(op.outputs[0])
    if sizes is not None:
        return sizes
    # TensorFlow does not follow what is computed from a shape of which a part is known.
    computed = dimensions.of_shape(op.inputs[1])
    match computed:
        case [int(height), int(width)]:
            return height, width
    return None


class _Writer:
    """Writes the resizes of one graph. Those of the same kind and sizes share their weights."""

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self._writer = added_nodes.Writer(graph_def, {node.name: node for node in graph_def.node})
        # {the kind, the sizes, and the place in the product: the constant's name}.
        self._constants: dict[tuple[object, ...], str] = {}

    def write(self, node: node_def_pb2.NodeDef, before: tuple[int, int], behind: tuple[int, int]) -> Resized:
        """Write one, whose result keeps its name. Args: before, behind: height and width of the picture and of the result."""
        kind, added = node.op, 0
        if before == behind:
            added_nodes.become(node, "Identity", [node.input[0]], T=_FLOAT)
        elif kind == NEAREST:
            added = self._pick(node, before, behind)
        else:
            added = self._multiply(node, before, behind)
        return Resized(name=node.name, type=kind, before=before, behind=behind, added_bytes=added)

    def _pick(self, node: node_def_pb2.NodeDef, before: tuple[int, int], behind: tuple[int, int]) -> int:
        """Write a nearest-neighbour resize as rows and columns that are picked by constant numbers. Returns: bytes of these."""
        orders = [
            (axis, _weights(node, size, result).argmax(1).astype(np.int32))
            for axis, (size, result) in enumerate(zip(before, behind, strict=True), 1)
            if size != result
        ]
        indexed.gather(node, orders, self._writer)
        return sum(order.nbytes for _, order in orders)

    def _multiply(self, node: node_def_pb2.NodeDef, before: tuple[int, int], behind: tuple[int, int]) -> int:
        """Write a resize as products. Returns: bytes of weights that it adds."""
        (height, width), (rows, columns), added = before, behind, 0
        order = self._order(node, "channels_first", _CHANNELS_FIRST)
        name = f"{node.name}/channels_first"
        source = self._writer.add("Transpose", name, [node.input[0], order], T=_FLOAT, Tperm=_INT32).name
        sides = [("rows", height, rows), ("columns", width, columns)]
        if height * width * columns + rows * height * columns < rows * height * width + rows * width * columns:
            sides.reverse()
        for side, size, result in sides:
            if size != result:
                weights, of_weights = self._constant(node, side, size, result)
                added += of_weights
                operands = (weights, source) if side == "rows" else (source, weights)
                product = self._writer.add("BatchMatMulV2", f"{node.name}/{side}", operands, T=_FLOAT)
                product.attr["adj_x"].b = product.attr["adj_y"].b = False
                source = product.name
        order = self._order(node, "channels_last", _CHANNELS_LAST)
        added_nodes.become(node, "Transpose", [source, order], T=_FLOAT, Tperm=_INT32)
        return added

    def _order(self, node: node_def_pb2.NodeDef, what: str, order: tuple[int, ...]) -> str:
        return self._writer.constant(f"{node.name}/{what}/order", np.array(order, np.int32))

    def _constant(self, node: node_def_pb2.NodeDef, side: str, size: int, result: int) -> tuple[str, int]:
        """(name of the weights of one side, bytes that they add)."""
        key = (node.op, *sorted(_attributes(node).items()), side, size, result)
        if key in self._constants:
            return self._constants[key], 0
        weights = _weights(node, size, result)
        values = (weights if side == "rows" else weights.T)[None, None]
        self._constants[key] = self._writer.constant(f"{node.name}/{side}_weights", values)
        return self._constants[key], values.nbytes


def _attributes(node: node_def_pb2.NodeDef) -> dict[str, bool]:
    return {name: node.attr[name].b for name in ("align_corners", "half_pixel_centers") if name in node.attr}


def _weights(node: node_def_pb2.NodeDef, size: int, result: int) -> npt.NDArray[np.float32]:
    """(result, size) of weights: column i is what the op answers for `size` pixels of which number i is 1 and the others are 0."""
    with tf.init_scope(), tf.device("/CPU:0"):
        pictures = tf.reshape(tf.eye(size), (size, size, 1, 1))
        answers = getattr(tf.raw_ops, node.op)(images=pictures, size=[result, 1], **_attributes(node))
        weights: npt.NDArray[np.float32] = np.ascontiguousarray(answers.numpy()[:, :, 0, 0].T)
    return weights
