"""Normalizations by the statistics of what they get (FusedBatchNorm in training mode, as in Keras 2's LayerNormalization with its default
epsilon), written as means, differences and a square root: TF-TRT takes FusedBatchNorm with constant statistics alone.

With m the mean over all axes but the channels, c = x - m and v the mean of c², the result is c / √(v + ε), times scale, plus offset. In
FP16 the squares of more than 255 are infinite. So for engines in FP16 both sides are divided by s = max(1, largest |c|) first:
(c / s) / √(v / s² + ε / s²). Source of the formula: tf.nn.fused_batch_norm; Ioffe and Szegedy, 2015, algorithm 1.

Keras 2 makes one picture of all rows for it, and rows of the result. Where that is seen, both reshapes go, and the mean is over the last
axes.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, dimensions, inferred

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

OPS = frozenset(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"))
REASON = "TF-TRT takes no normalization by the statistics of what it gets; with dynamic shapes, and not in INT8, it becomes differences"
STAYS = (
    "TF-TRT takes no normalization by the statistics of what it gets; it becomes differences where nobody reads its mean or variance, and, "
    "with the channels in front, where its scales are 1 and its offsets 0"
)
_FLOAT, _INT32 = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
# Of the axes of a picture, those that it takes the statistics over.
_AXES = {b"NHWC": (0, 1, 2), b"NCHW": (0, 2, 3)}
# A product of sizes: the known ones multiplied, and the others.
_Factors = tuple[int, collections.Counter[dimensions.Size]]
_ONE: _Factors = (1, collections.Counter())
# What leaves a size to the Reshape.
_LEFT: _Factors = (-1, collections.Counter())


def rewrite(
    graph_def: graph_pb2.GraphDef,
    kept: Container[str] = frozenset(),
    half: bool = False,
    fetched: Collection[str] = frozenset(),
) -> tuple[str, ...]:
    """Write them in place; those of which somebody reads the statistics, those with scales that are not 1 in front of other axes, and those
    inside functions and loops, stay.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. half: for engines in FP16. fetched: the tensors that are the
      graph's results, "node:0". Returns: the names of those that were written.
    """
    sites = [node for node in graph_def.node if node.name not in kept and of_what_it_gets(node)]
    if not sites:
        return ()
    nodes = {node.name: node for node in graph_def.node}
    loops, others = control_flow.in_loops(graph_def), _with_other_outputs(graph_def, fetched)
    written = []
    readers, shapes = _readers(graph_def), inferred.shapes(graph_def)
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        plain = _are(nodes, node.input[1], 1) and _are(nodes, node.input[2], 0) and not any(map(_waits, op.inputs[1:3]))
        if node.name in loops or node.name in others or not (plain or node.attr["data_format"].s == b"NHWC"):
            continue
        axes: Sequence[int] = _AXES[node.attr["data_format"].s]
        inner = plain and f"{node.name}:0" not in fetched
        rows = _rows(op) if inner else None
        if rows and all(_as_it_was(shapes, reader, rows, node.name) for reader in readers[node.name]):
            node.input[0], axes = rows.source, rows.axes
            for reader in readers[node.name]:
                added_nodes.become(reader, "Identity", [node.name], T=_FLOAT)
        _Normalization(node, added_nodes.Writer(graph_def, nodes), half, axes).write(plain)
        written.append(node.name)
    return tuple(written)


def of_what_it_gets(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node is such a normalization, of float32 and four dimensions."""
    return bool(
        node.op in OPS
        and node.attr["is_training"].b
        and node.attr["T"].type == _FLOAT
        and node.attr["data_format"].s in _AXES
    )


def _with_other_outputs(graph_def: graph_pb2.GraphDef, fetched: Iterable[str]) -> set[str]:
    """Names of nodes of which somebody reads another output than the first."""
    read = (source for node in graph_def.node for source in node.input)
    sources = (source.partition(":") for source in itertools.chain(read, fetched))
    return {name for name, _, port in sources if port not in ("", "0")}


def _are(nodes: Mapping[str, node_def_pb2.NodeDef], source: str, value: float) -> bool:
    """Whether all numbers of a constant, or of a Fill of a constant, are `value`."""
    node = nodes[source.partition(":")[0]]
    while node.op in ("Identity", "Fill"):
        node = nodes[node.input[node.op == "Fill"].partition(":")[0]]
    return node.op == "Const" and bool((tf.make_ndarray(node.attr["value"].tensor) == value).all())


def _readers(graph_def: graph_pb2.GraphDef) -> dict[str, list[node_def_pb2.NodeDef]]:
    """{name of a node: the nodes that read it}; those that only wait for it are none."""
    readers: dict[str, list[node_def_pb2.NodeDef]] = collections.defaultdict(list)
    for node in graph_def.node:
        for source in node.input:
            readers[source.partition(":")[0]].append(node)
    return readers


@dataclasses.dataclass(frozen=True)
class _Rows:
    """What became a picture [1, rows, numbers of a row, 1]."""

    # Its name as an input, its sizes, and the axes of a row.
    source: str
    sizes: Sequence[dimensions.Dimension]
    axes: Sequence[int]


def _rows(op: tf.Operation) -> _Rows | None:
    """What a normalization gets as such a picture, where its last sizes are known, and nothing waits or is checked in between."""
    picture = op.inputs[0].op
    if op.get_attr("data_format") != b"NCHW" or picture.type != "Reshape":
        return None
    if picture.control_inputs or _waits(picture.inputs[1]):
        return None
    data, made = picture.inputs[0], picture.inputs[1].op
    # Another normalization may get other sizes than it has here.
    if not data.shape.rank or made.type != "Pack" or data.op.type in OPS:
        return None
    if len(made.inputs) != 4 or any(_factors(made.inputs[place]) != _ONE for place in (0, 3)):
        return None
    sizes = dimensions.of(data) or ()
    for first in reversed(range(1, data.shape.rank)):
        numbers = _multiplied(sizes[first:])
        if numbers is not None and numbers[0] and not numbers[1] and _factors(made.inputs[2]) == numbers:
            counted = _factors(made.inputs[1]) in (_multiplied(sizes[:first]), _LEFT)
            return _Rows(data.name.removesuffix(":0"), sizes, range(first, data.shape.rank)) if counted else None
    return None


def _waits(sizes: tf.Tensor) -> bool:
    """Whether something that computes sizes waits for another node, such as a check, which would be lost with it."""
    left, seen = [sizes.op], set()
    while left:
        op = left.pop()
        if op.control_inputs:
            return True
        if op.name not in seen and op.type not in ("Shape", "ShapeN", "Size"):
            left += [one.op for one in op.inputs]
        seen.add(op.name)
    return False


def _factors(number: tf.Tensor) -> _Factors | None:
    """Those of a number of a computed shape, which may be a product of sizes."""
    return _multiplied(dimensions.of_shape(number.op.inputs[0] if number.op.type == "Prod" else number))


def _multiplied(sizes: Sequence[dimensions.Dimension] | None) -> _Factors | None:
    """The product of sizes; None where one is not known."""
    if not sizes or None in sizes:
        return None
    return (
        math.prod(size for size in sizes if isinstance(size, int)),
        collections.Counter(size for size in sizes if isinstance(size, dimensions.Size)),
    )


def _as_it_was(shapes: tf.Graph, reader: node_def_pb2.NodeDef, rows: _Rows, name: str) -> bool:
    """Whether a node gives a normalized picture, by its name, the shape that its rows had."""
    if reader.op != "Reshape" or reader.input[0].removesuffix(":0") != name:
        return False
    shape = shapes.get_operation_by_name(reader.name).inputs[1]
    sizes = None if _waits(shape) else dimensions.of_shape(shape)
    return sizes is not None and None not in sizes and list(sizes) == list(rows.sizes)


class _Normalization:
    """Writes one."""

    def __init__(self, node: node_def_pb2.NodeDef, writer: added_nodes.Writer, half: bool, axes: Sequence[int]) -> None:
        self._node, self._writer, self._half = node, writer, half
        self._axes = writer.constant(f"{node.name}/axes", np.array(axes, np.int32))

    def write(self, plain: bool) -> None:
        """Write it; its result keeps its name. Args: plain: its scales are 1 and its offsets 0."""
        node, (source, scale, offset) = self._node, self._node.input[:3]
        centered = self._op("Sub", "centered", source, self._over("Mean", source))
        epsilon = self._number("epsilon", node.attr["epsilon"].f)
        if self._half:
            largest = self._over("Max", self._op("Abs", "size", centered))
            size = self._op("Maximum", "at_least_one", largest, self._number("one", 1.0))
            centered = self._op("RealDiv", "smaller", centered, size)
            epsilon = self._op("RealDiv", "epsilon_of_smaller", self._op("RealDiv", "divided", epsilon, size), size)
        variance = self._over("Mean", self._op("Mul", "squares", centered, centered))
        inverse = self._op("Rsqrt", "inverse", self._op("AddV2", "positive", variance, epsilon))
        if plain:
            added_nodes.become(node, "Mul", [centered, inverse], T=_FLOAT)
            return
        scaled = self._op("Mul", "scaled", self._op("Mul", "normal", centered, inverse), scale)
        added_nodes.become(node, "AddV2", [scaled, offset], T=_FLOAT)

    def _op(self, op: str, name: str, *sources: str) -> str:
        result: str = self._writer.add(op, f"{self._node.name}/{name}", sources, T=_FLOAT).name
        return result

    def _over(self, op: str, source: str) -> str:
        """A reduction over the axes of the statistics, which stay as 1."""
        sources: Sequence[str] = [source, self._axes]
        name = f"{self._node.name}/{op.lower()}"
        node = self._writer.add(op, name, sources, T=_FLOAT, Tidx=_INT32)
        node.attr["keep_dims"].b = True
        result: str = node.name
        return result

    def _number(self, name: str, value: float) -> str:
        return self._writer.constant(f"{self._node.name}/{name}", np.array(value, np.float32))
