"""The names in an engine's INT8 calibration table, and the TensorFlow tensors that they stand for. Needs no GPU.

TensorRT lists every float tensor of the network that TF-TRT makes of a native segment, in the order of its layers. TF-TRT names a
node's outputs after the node, and the engine's inputs and outputs TensorRTInputPH_i and TensorRTOutputPH_i. Tensors that a converter
makes in between keep TensorRT's name, "(Unnamed Layer* 10) [Shuffle]_output", with the number of the layer, which depends on how many
layers the nodes before it became.

The steps are TF-TRT's own, in its order (tf2tensorrt/convert/convert_nodes.cc, ConvertGraphDefToEngine): grappler's layout optimizer,
which turns convolutions to NCHW and puts transpositions around them; grappler's constant folding; the nodes in the order in which
TensorFlow numbers them; the layers of each (layer_rules). Both optimizers are TensorFlow's, run here. Checked for TensorFlow 2.14.1
with TensorRT 8.5.3.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.models.savedmodel.job import segment
from tftrt_tools.tftrt.calibration.job import layer_rules
from tftrt_tools.tftrt.calibration.job.network import Network, Tensor

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework import function_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape
    from tftrt_tools.tftrt.calibration.job.network import Value

_FLOATS = ("float32", "float16")
# Ops that the layout optimizer puts in front of others.
_TURNS = ("Transpose", "Reshape")


@dataclasses.dataclass(frozen=True)
class NamedTensor:
    """One line of a table.

    name: as TensorRT lists it. tensor: the segment's tensor, "node:port" or "argument:0", that holds the same values, up to a
    transposition or reshape; None if there is none (a square root inside Rsqrt, say), so that no range can be measured.
    sure: False for the outputs of an op whose converter is not in layer_rules.
    """

    name: str
    tensor: str | None
    sure: bool


def names(function: function_pb2.FunctionDef, dynamic: bool, input_shapes: Sequence[Shape]) -> list[NamedTensor]:
    """The table's names for the engine of one segment.

    After the first op with an unknown number of layers, no name with a layer's number is given.

    Args:
      function: FunctionDef of the native segment.
      dynamic: explicit batch mode.
      input_shapes: the engine's inputs as it is built with: tuples with None (build_shapes).

    Returns: [NamedTensor], in TensorRT's order.
    """
    converted = _Converted(function, input_shapes)
    return converted.named(converted.order, dynamic)


def holding(
    tensors: Iterable[str], function: function_pb2.FunctionDef, dynamic: bool, input_shapes: Sequence[Shape]
) -> set[str]:
    """The table's names that hold the values of `tensors` of the segment ("node:port", "argument:0"). A tensor that only passes another
    one on, by a reshape to the same shape or a sum with zero, is the same tensor in TensorRT. The other arguments as for `names`.
    Returns: a set.
    """
    converted = _Converted(function, input_shapes)
    passed_on = converted.passed_on(dynamic)
    sources = {passed_on.get(tensor) or tensor for tensor in tensors}
    return {tensor.name for tensor in converted.named(converted.order, dynamic) if tensor.tensor in sources}


def in_other_orders(
    function: function_pb2.FunctionDef, dynamic: bool, input_shapes: Sequence[Shape], count: int
) -> Iterator[list[NamedTensor]]:
    """`names` for `count` other orders of the nodes. The orders are random, but the same in every call; TensorFlow can produce each of
    them. Yields: [NamedTensor]."""
    converted = _Converted(function, input_shapes)
    nodes = sorted(converted.graph_def.node, key=lambda node: node.name)
    rng = random.Random(0)
    for _ in range(count):
        rng.shuffle(nodes)
        shuffled = graph_pb2.GraphDef()
        for node in nodes:
            shuffled.node.add(name=node.name, op=node.op, input=node.input)
        yield converted.named([node.name for node in segment.sorted_by_inputs(shuffled).node], dynamic)


class _Converted:
    """A segment as TF-TRT converts it, imported with its input shapes."""

    def __init__(self, function: function_pb2.FunctionDef, input_shapes: Sequence[Shape]) -> None:
        original, self._arguments = segment.to_graph(function)
        self.graph_def, self._turned = _as_converted(original)
        self._nodes = {node.name for node in original.node} - set(self._arguments) - _others(original, self.graph_def)
        self._graph = segment.imported(self.graph_def, input_shapes)

    @property
    def order(self) -> list[str]:
        """Names of the nodes as TensorFlow numbers them."""
        return [node.name for node in self.graph_def.node]

    def named(self, order: Sequence[str], dynamic: bool) -> list[NamedTensor]:
        """[NamedTensor] where the nodes are converted in `order` (names)."""
        network, _ = self._network(order, dynamic)
        return [
            NamedTensor(tensor.name, self._in_segment(tensor.source), tensor.sure)
            for tensor in network.tensors
            if tensor.dtype in _FLOATS and tensor.listed and tensor.name is not None
        ]

    def passed_on(self, dynamic: bool) -> dict[str | None, str | None]:
        """{tensor of the segment: the tensor with the same values}, for tensors that do not become a layer."""
        _, values = self._network(self.order, dynamic)
        return {
            self._in_segment(name): self._in_segment(value.source)
            for name, value in values.items()
            if isinstance(value, Tensor)
        }

    def _network(self, order: Sequence[str], dynamic: bool) -> tuple[Network, dict[str, Value]]:
        ops = [self._graph.get_operation_by_name(name) for name in order]
        return _network(ops, self._nodes, not dynamic)

    def _in_segment(self, source: str | None) -> str | None:
        """The segment's tensor with the values of a tensor of the converted graph; that graph has more constants and transpositions."""
        name = source.partition(":")[0] if source else None
        if name in self._turned:
            return self._in_segment(self._turned[name])
        if name in self._arguments:
            return f"{self._arguments[name]}:0"
        return source if name in self._nodes else None


def build_shapes(
    declared: Sequence[Shape], profiles: Sequence[Sequence[Shape]], dynamic: bool, strategy: str | None
) -> Sequence[Shape]:
    """The input shapes that TF-TRT builds an engine with: they decide how many layers there are.

    Args: declared: the engine op's input_shapes; profiles: the distinct input shapes ([[tuple]]) it is built for; strategy: of its
      profiles. In implicit batch mode and with a single "Optimal" profile TF-TRT takes the shapes themselves, else the declared ones.
    """
    if not dynamic or (strategy == "Optimal" and len(profiles) == 1):
        return profiles[0]
    return declared


def _as_converted(graph_def: graph_pb2.GraphDef) -> tuple[graph_pb2.GraphDef, dict[str, str]]:
    """Returns: (GraphDef as TF-TRT converts it; {constant that the layout optimizer turned: the tensor that it was before}). The turned one
    has the name of the node that was added for it, which constant folding computes."""
    results = [node.name for node in graph_def.node if node.op == "_Retval"]
    own = {node.name for node in graph_def.node}
    laid_out = tf_private.optimized_as_on_gpu(graph_def, "layout", results)
    added = {node.name: node.input[0] for node in laid_out.node if node.op in _TURNS and node.name not in own}
    folded = tf_private.optimized_as_on_gpu(laid_out, "constfold", results)
    turned = {node.name: added[node.name] for node in folded.node if node.op == "Const" and node.name in added}
    return (
        segment.sorted_by_inputs(folded),
        {name: source if ":" in source else f"{source}:0" for name, source in turned.items()},
    )


def _others(original: graph_pb2.GraphDef, converted: graph_pb2.GraphDef) -> set[str]:
    """Nodes of the segment that hold other values now: constant folding gives a sum of two constants the name of a node that computed."""
    constant: set[str] = set()
    for node in segment.sorted_by_inputs(original).node:
        if node.op == "Const" or (node.input and constant.issuperset(map(_name, node.input))):
            constant.add(node.name)
    return {node.name for node in converted.node if node.op == "Const"} - constant


def _name(source: str) -> str:
    return source.removeprefix("^").partition(":")[0]


def _network(ops: Iterable[tf.Operation], nodes: AbstractSet[str], implicit: bool) -> tuple[Network, dict[str, Value]]:
    """Returns: (Network of the ops, in the order of their conversion; {name of a tf.Tensor: what it became}). nodes: the segment's own."""
    network = Network(implicit)
    values: dict[str, Value] = {}
    results: list[Any] = []
    for op in ops:
        if op.name.startswith(engine_op.INPUT):
            values[op.outputs[0].name] = network.input(op.name, op.outputs[0])
        elif op.name.startswith(engine_op.OUTPUT):
            results.append(op)
        else:
            outputs: Sequence[Any] = layer_rules.convert(network, op, [values.get(source.name) for source in op.inputs])
            for port, (output, value) in enumerate(zip(op.outputs, outputs, strict=False)):
                _rename(value, op.name if port == 0 else f"{op.name}:{port}")
                values[output.name] = value
            if op.type == "Transpose" and op.name not in nodes:
                # Added by the layout optimizer; it has its input's values.
                outputs[0].source = values[op.inputs[0].name].source
    for op in sorted(results, key=lambda op: int(op.name.removeprefix(engine_op.OUTPUT))):
        _name_result(network, op.name, values[op.inputs[0].name])
    return network, values


def _rename(value: Value, name: str) -> None:
    """A tensor takes the name of the last node that passes it on; an engine's input keeps its own."""
    if isinstance(value, Tensor) and not (value.name or "").startswith(engine_op.INPUT):
        value.name = name


def _name_result(network: Network, name: str, value: Tensor | Any) -> None:
    if (value.name or "").startswith((engine_op.INPUT, engine_op.OUTPUT)):
        # It already has the name of another input or output of the engine: TF-TRT copies it.
        value = network.add("Shuffle", value.dims, value.dtype, value.source)
    value.name = name
