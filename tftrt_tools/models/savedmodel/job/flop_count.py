"""Counts floating point operations of a converted graph from the shapes that TensorFlow infers. Nothing is run.

TensorFlow has statistics of its own (tf.compat.v1.profiler). These refuse NCHW, count BatchMatMul with adj_x wrongly, and know no Einsum
and no transposed Conv3D (TF 2.14.1); where both count, they agree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP
from tftrt_tools.models.savedmodel.flops import Flops
from tftrt_tools.models.savedmodel.job import control_flow, folding, graph, inferred, inline

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

_CONVOLUTIONS = frozenset({"Conv2D", "Conv3D"})
_DEPTHWISE = frozenset({"DepthwiseConv2dNative"})
_TRANSPOSED = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2"})
_PRODUCTS = {"MatMul": "transpose_a", "BatchMatMul": "adj_x", "BatchMatMulV2": "adj_x", "BatchMatMulV3": "adj_x"}
OPS = _CONVOLUTIONS | _DEPTHWISE | _TRANSPOSED | frozenset(_PRODUCTS) | {"Einsum"}


def count(
    before: graph_pb2.GraphDef,
    after: graph_pb2.GraphDef,
    sizes: Mapping[str, tuple[int | None, ...] | None],
    seen: Mapping[str, int] | None = None,
) -> Flops:
    """The operations of one call.

    Args: before: the frozen graph. after: what the pass made of it; nodes kept their names. sizes: {placeholder: shape} of the call. seen:
      {node of a loop: its operations in all rounds of a call}, where that was looked at.
    """
    native, inside = _counted(after)
    hidden, seen = _hidden(after), seen or {}
    if not native and not inside:
        return Flops(unknown=hidden)
    shapes_graph, constants = _inferred(before, sizes), _constants(after)
    counts = {
        node.name: seen[node.name] if node.name in seen else _flops(node, shapes_graph, constants)
        for node in (*native, *inside)
    }
    unknown = tuple(name for name, flops in counts.items() if flops is None)
    looping = control_flow.in_loops(before)
    return Flops(
        inside=sum(counts[node.name] or 0 for node in inside),
        total=sum(flops or 0 for flops in counts.values()),
        unknown=(*unknown, *hidden),
        loops=tuple(name for name in counts if name in looping and name not in seen),
        rounds=tuple(name for name in counts if name in seen),
    )


def looping(before: graph_pb2.GraphDef, after: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Names of the nodes of loops that `count` counts, without those that the pass made. Args: as of `count`."""
    inner, ops = control_flow.in_loops(before), {node.name: node.op for node in before.node}
    return tuple(
        node.name for nodes in _counted(after) for node in nodes if node.name in inner and ops[node.name] == node.op
    )


def _counted(graph_def: graph_pb2.GraphDef) -> tuple[list[node_def_pb2.NodeDef], list[node_def_pb2.NodeDef]]:
    """(nodes in TensorFlow, nodes in engines) that are counted."""
    return (
        [node for node in graph_def.node if node.op in OPS],
        [
            node
            for native_segment in graph.native_segments(graph_def).values()
            for node in native_segment.function.node_def
            if node.op in OPS
        ],
    )


def _inferred(graph_def: graph_pb2.GraphDef, sizes: Mapping[str, tuple[int | None, ...] | None]) -> Any:
    try:
        return inferred.shapes(graph_def, sizes, first_round=True)
    except ValueError:
        # The graph may refuse a batch of one.
        return inferred.shapes(graph_def, first_round=True)


def _hidden(graph_def: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Names of the native nodes that call a function which holds such ops: XLA's, and loops that stayed functions."""
    functions = graph.library(graph_def)
    calls = [node for node in graph_def.node if node.op != ENGINE_OP]
    return tuple(
        node.name
        for node in calls
        if any(inner.op in OPS for name in inline.reached([node], functions) for inner in functions[name].node_def)
    )


def _constants(graph_def: graph_pb2.GraphDef) -> dict[str, tf.TensorShape]:
    """{constant: its shape} of a graph and its engines."""
    engines = [
        node
        for native_segment in graph.native_segments(graph_def).values()
        for node in native_segment.function.node_def
    ]
    return {
        node.name: tf.TensorShape(node.attr["value"].tensor.tensor_shape)
        for node in (*graph_def.node, *engines)
        if node.op == "Const"
    }


@dataclasses.dataclass(frozen=True)
class _Made:
    """A node that the pass put where another one was, such as the product of a convolution and a constant: grappler multiplies the filter
    instead, and keeps the product's name."""

    node: node_def_pb2.NodeDef

    @property
    def type(self) -> str:
        result: str = self.node.op
        return result

    def get_attr(self, name: str) -> Any:
        value = self.node.attr[name]
        return value.s if value.WhichOneof("value") == "s" else value.b


def _flops(node: node_def_pb2.NodeDef, shapes_graph: tf.Graph, constants: Mapping[str, tf.TensorShape]) -> int | None:
    """Operations of one node, or None if a size is open. Args: constants: as of _constants."""
    before = _tensor(node.name, shapes_graph)
    if before is None:
        return None
    if before.op.type == node.op:
        return of_sizes(before.op, [tensor.shape for tensor in before.op.inputs], before.shape)
    inputs = []
    for name in (folding.name_of(source) for source in node.input if not source.startswith("^")):
        tensor = _tensor(name, shapes_graph) if name not in constants else None
        inputs.append(constants.get(name, tf.TensorShape(None) if tensor is None else tensor.shape))
    return of_sizes(_Made(node), inputs, before.shape)


def _tensor(name: str, shapes_graph: tf.Graph) -> tf.Tensor | None:
    """The first result of a node, None for a node that is not in the graph or has no result."""
    try:
        return next(iter(shapes_graph.get_operation_by_name(name).outputs), None)
    except KeyError:
        return None


def of_sizes(operation: tf.Operation | _Made, inputs: Sequence[tf.TensorShape], output: tf.TensorShape) -> int | None:
    """The operations of one of OPS for such shapes; None where a size is open."""
    result = inputs[2] if operation.type in _TRANSPOSED else output
    sizes: list[int | None] = [
        result.num_elements() if result.is_fully_defined() else None,
        *_summed(operation, inputs),
    ]
    known_sizes = [size for size in sizes if size is not None]
    return 2 * math.prod(known_sizes) if len(known_sizes) == len(sizes) else None


def _summed(operation: tf.Operation | _Made, inputs: Sequence[tf.TensorShape]) -> list[int | None]:
    """Sizes whose product is the number of multiplications for an element of the result; of a transposed convolution, of its input."""
    kind = operation.type
    if kind == "Einsum":
        return _einsum(operation, inputs)
    first, second = inputs[:2]
    if kind in _PRODUCTS:
        if first.rank is not None:
            return [first[-2 if operation.get_attr(_PRODUCTS[kind]) else -1]]
        # This size is also one of the other factor.
        turned = operation.get_attr(_PRODUCTS[kind].replace("_a", "_b").replace("_x", "_y"))
        return [None if second.rank is None else second[-1 if turned else -2]]
    if second.rank is None:
        return [None]
    # A filter is (sizes…, input channels, output channels), for a transposed convolution (sizes…, output channels, input channels).
    return list(second[:-2] if kind in _DEPTHWISE else second[:-1])


def _einsum(operation: tf.Operation | _Made, inputs: Sequence[tf.TensorShape]) -> list[int | None]:
    """Sizes of the labels that are summed over. A single operand is not multiplied."""
    given, result = operation.get_attr("equation").decode().replace(" ", "").split("->")
    if len(inputs) == 1:
        return [0]
    flops: dict[str, int | None] = {}
    for labels, shape in zip(given.split(","), inputs, strict=True):
        if shape.rank is None:
            return [None]
        left, _, right = labels.partition("...")
        sizes = list(shape)
        flops.update(zip(left, sizes, strict=False))
        flops.update(zip(right[::-1], sizes[::-1], strict=False))
    return [size for label, size in flops.items() if label not in result]
