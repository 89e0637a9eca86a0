"""Counts floating point operations of a converted graph from the shapes that TensorFlow infers. Nothing is run.

TensorFlow has statistics of its own (tf.compat.v1.profiler). These refuse NCHW, count BatchMatMul with adj_x wrongly, and know no Einsum
and no transposed Conv3D (TF 2.14.1); where both count, they agree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools.savedmodel.engine_op import ENGINE_OP
from tftrt_tools.savedmodel.flops import Flops
from tftrt_tools.savedmodel.job import graph, inferred, inline

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2

_CONVOLUTIONS = frozenset({"Conv2D", "Conv3D"})
_DEPTHWISE = frozenset({"DepthwiseConv2dNative"})
_TRANSPOSED = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2"})
_PRODUCTS = {"MatMul": "transpose_a", "BatchMatMul": "adj_x", "BatchMatMulV2": "adj_x", "BatchMatMulV3": "adj_x"}
OPS = _CONVOLUTIONS | _DEPTHWISE | _TRANSPOSED | frozenset(_PRODUCTS) | {"Einsum"}


def count(before: graph_pb2.GraphDef, after: graph_pb2.GraphDef, sizes: dict[str, tuple[int | None, ...] | None]) -> Flops:
    """The operations of one call.

    Args: before: the frozen graph. after: what the pass made of it; nodes kept their names. sizes: {placeholder: shape} of the call.
    """
    native = [node for node in after.node if node.op in OPS]
    inside = [node for one in graph.native_segments(after).values() for node in one.function.node_def if node.op in OPS]
    hidden = _hidden(after)
    if not native and not inside:
        return Flops(unknown=hidden)
    known = _inferred(before, sizes)
    found = {node.name: _flops(node.name, known) for node in (*native, *inside)}
    unknown = tuple(name for name, flops in found.items() if flops is None)
    looping = _in_loops(before)
    return Flops(sum(found[node.name] or 0 for node in inside), sum(flops or 0 for flops in found.values()),
                 (*unknown, *hidden), tuple(name for name in found if name in looping))


def _inferred(graph_def: graph_pb2.GraphDef, sizes: dict[str, tuple[int | None, ...] | None]) -> Any:
    try:
        return inferred.shapes(graph_def, sizes, first_round=True)
    except ValueError:
        # The graph may refuse a batch of one.
        return inferred.shapes(graph_def, first_round=True)


def _hidden(graph_def: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Names of the native nodes that call a function which holds such ops: XLA's, and loops that stayed functions."""
    functions = graph.library(graph_def)
    calls = [node for node in graph_def.node if node.op != ENGINE_OP]
    return tuple(node.name for node in calls if any(inner.op in OPS for name in inline.reached([node], functions)
                                                    for inner in functions[name].node_def))


def _in_loops(graph_def: graph_pb2.GraphDef) -> set[str]:
    """{names of the nodes of loops}: what Enter leads to, up to Exit."""
    readers: dict[str, list[node_def_pb2.NodeDef]] = {}
    waiting: list[node_def_pb2.NodeDef] = []
    found: set[str] = set()
    for node in graph_def.node:
        for source in node.input:
            readers.setdefault(source.lstrip("^").split(":")[0], []).append(node)
        waiting += [node] if node.op == "Enter" else []
    while waiting:
        for reader in readers.get(waiting.pop().name, ()):
            if reader.op != "Exit" and reader.name not in found:
                found.add(reader.name)
                waiting.append(reader)
    return found


def _flops(name: str, known: Any) -> int | None:
    """Operations of one node, or None if a size is open or the pass made the node."""
    try:
        operation = known.get_operation_by_name(name)
    except KeyError:
        return None
    if operation.type not in OPS:
        return None
    result = operation.inputs[2] if operation.type in _TRANSPOSED else operation.outputs[0]
    sizes: list[int | None] = [result.shape.num_elements() if result.shape.is_fully_defined() else None, *_summed(operation)]
    known_sizes = [size for size in sizes if size is not None]
    return 2 * math.prod(known_sizes) if len(known_sizes) == len(sizes) else None


def _summed(operation: tf.Operation) -> list[int | None]:
    """Sizes whose product is the number of multiplications for an element of the result; of a transposed convolution, of its input."""
    kind = operation.type
    if kind == "Einsum":
        return _einsum(operation)
    first, second = (tensor.shape for tensor in operation.inputs[:2])
    if first.rank is None or second.rank is None:
        return [None]
    if kind in _PRODUCTS:
        return [first[-2 if operation.get_attr(_PRODUCTS[kind]) else -1]]
    # A filter is (sizes…, input channels, output channels), for a transposed convolution (sizes…, output channels, input channels).
    return list(second[:-2] if kind in _DEPTHWISE else second[:-1])


def _einsum(operation: Any) -> list[int | None]:
    """Sizes of the labels that are summed over. A single operand is not multiplied."""
    given, result = operation.get_attr("equation").decode().replace(" ", "").split("->")
    if len(operation.inputs) == 1:
        return [0]
    found: dict[str, int | None] = {}
    for labels, tensor in zip(given.split(","), operation.inputs, strict=True):
        if tensor.shape.rank is None:
            return [None]
        left, _, right = labels.partition("...")
        sizes = list(tensor.shape)
        found.update(zip(left, sizes, strict=False))
        found.update(zip(right[::-1], sizes[::-1], strict=False))
    return [size for label, size in found.items() if label not in result]
