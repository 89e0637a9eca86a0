"""Inner tensors of a frozen graph, also those inside engine ops, and their marking: a copy of the graph from which they can be fetched.

A tensor has the name that it had before the conversion: TF-TRT keeps the names of nodes, in the graph and in the native segments of its
engine ops. A marked tensor inside an engine becomes an output of its segment. The engine op then has another name, so that TF-TRT builds
its engine anew, with that output, in the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP, MARKED, OUTPUT, PASSIVE_OPS
from tftrt_tools.models.savedmodel.job import control_flow, graph

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2

_FLOATS = (tf.float16, tf.float32, tf.float64)
# Ops that pass on their input.
_ALIASES = frozenset({"Identity", "StopGradient", "Snapshot"})


class Computed(NamedTuple):
    """A tensor of floats that a graph computes."""

    op: str
    # Of its node, as bytes, such as strides and the data format; without those that say nothing of what is computed.
    attributes: Mapping[str, bytes]
    # Names of the tensors that its node reads, without constants, in alphabetical order.
    reads: tuple[str, ...]
    # DataType number.
    dtype: int
    # "node:port" in the graph; within an engine, a reference in its segment.
    place: str
    # Node of the engine op that it is in; "" outside of engines.
    engine: str = ""
    # The number of the engine's output; -1 for a tensor that no output has.
    output: int = -1

    def alike(self, other: Computed) -> bool:
        """Whether a tensor of this name in another graph is the same one.

        Rewrites keep names: grappler makes x * (y * c) of (x * y) * c, and a dilated convolution is one where it was three nodes.
        """
        both = self.attributes.keys() & other.attributes.keys()
        return (self.op, self.reads) == (other.op, other.reads) and all(
            self.attributes[name] == other.attributes[name] for name in both
        )


def computed(graph_def: graph_pb2.GraphDef, prefix: str = "") -> dict[str, Computed]:
    """{name: tensor} in an order in which they are computed, without constants and what loops and conditionals compute.

    Args: graph_def: a frozen graph. prefix: what its nodes' names begin with, and those of the model before the conversion do not.
    """
    left = control_flow.in_loops(graph_def) | control_flow.in_branches(graph_def)
    functions = graph.library(graph_def)
    inner: dict[str, Computed] = {}
    outer_names: dict[str, str] = {}
    for op in _imported(graph_def):
        reads = _reads(op, outer_names)
        if op.type == ENGINE_OP:
            segment = functions.get(op.get_attr("segment_func").name)
            for name, marked in _inside(op, segment, outer_names) if segment else ():
                outer_names.update({f"{op.name}:{marked.output}": name} if marked.output >= 0 else {})
                if op.name not in left:
                    inner[name] = marked
        elif reads is not None:
            outer_names.update(_names(op, reads, prefix))
            for tensor in _floats(op) if op.name not in left else ():
                inner[outer_names[tensor.name]] = Computed(
                    op.type, _attributes(op), reads, tensor.dtype.as_datatype_enum, tensor.name
                )
    return inner


def _imported(graph_def: graph_pb2.GraphDef) -> list[tf.Operation]:
    """The ops of a graph, each behind those that it reads."""
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(graph_def, name="")
    operations: list[tf.Operation] = imported.get_operations()
    return operations


def _reads(op: tf.Operation, known: Mapping[str, str]) -> tuple[str, ...] | None:
    """Names of the tensors that an op reads, without constants; None for a constant. Args: known: {tensor in the graph: name}."""
    found = tuple(sorted(known[tensor.name] for tensor in op.inputs if tensor.name in known))
    return found if found or op.type.startswith("Placeholder") else None


def _names(op: tf.Operation, reads: Sequence[str], prefix: str = "") -> dict[str, str]:
    """{tensor in the graph: name} of what an op gives. Args: reads: of `_reads`; prefix: as of `computed`."""
    return {tensor.name: reads[0] if op.type in _ALIASES else tensor.name.removeprefix(prefix) for tensor in op.outputs}


def _inside(
    engine: tf.Operation, segment: function_pb2.FunctionDef, outside: Mapping[str, str]
) -> Iterator[tuple[str, Computed]]:
    """(name, tensor) of what a segment computes. Args: outside: {tensor in the graph: name}."""
    body, places = tf_private.function_body(segment)
    references = {tensor: place for place, tensor in places.items()}
    outputs = {segment.ret[argument.name]: number for number, argument in enumerate(segment.signature.output_arg)}
    given = zip(segment.signature.input_arg, engine.inputs, strict=True)
    outer_names = {f"{argument.name}:0": outside.get(tensor.name, tensor.name) for argument, tensor in given}
    for op in _imported(body):
        reads = _reads(op, outer_names)
        if not reads:
            continue
        outer_names.update(_names(op, reads))
        for tensor in _floats(op):
            place = references[tensor.name]
            # A further output that nobody reads, such as the mean of a batch normalization, has no tensor in TensorRT.
            if place in outputs or tensor.consumers():
                yield (
                    tensor.name,
                    Computed(
                        op.type,
                        _attributes(op),
                        reads,
                        tensor.dtype.as_datatype_enum,
                        place,
                        engine.name,
                        outputs.get(place, -1),
                    ),
                )


def _floats(op: tf.Operation) -> list[tf.Tensor]:
    return [] if op.type in PASSIVE_OPS else [tensor for tensor in op.outputs if tensor.dtype in _FLOATS]


def _attributes(op: tf.Operation) -> dict[str, bytes]:
    return {
        name: value.SerializeToString(deterministic=True)
        for name, value in op.node_def.attr.items()
        if not name.startswith("_")
    }


def mark(graph_def: graph_pb2.GraphDef, tensors: Mapping[str, Computed], number: int = 0) -> dict[str, str]:
    """Make tensors of a graph available, in place.

    Args: tensors: of `computed`. number: part of the engine ops' new names: ops of another number have other engines.
    Returns: {name: "node:port" to fetch}.
    """
    nodes = {node.name: node for node in graph_def.node}
    functions = graph.library(graph_def)
    inner = [tensor for tensor in tensors.values() if tensor.engine and tensor.output < 0]
    further: dict[tuple[str, str], int] = {}
    suffix = f"{MARKED}{number}"
    for engine in dict.fromkeys(tensor.engine for tensor in inner):
        node, segment = nodes[engine], graph_def.library.function.add()
        segment.CopyFrom(functions[node.attr["segment_func"].func.name])
        segment.signature.name += suffix
        for marked in (marked for marked in inner if marked.engine == engine):
            further[engine, marked.place] = port = len(node.attr["OutT"].list.type)
            # TF-TRT knows outputs by these names.
            argument = segment.signature.output_arg.add(name=f"{OUTPUT.lower()}{port}", type=marked.dtype)
            segment.ret[argument.name] = marked.place
            node.attr["OutT"].list.type.append(marked.dtype)
            if "output_shapes" in node.attr:
                node.attr["output_shapes"].list.shape.add(unknown_rank=True)
        node.attr["segment_func"].func.name = segment.signature.name
        node.attr["serialized_segment"].s = b""
        node.attr["_allow_build_at_runtime"].b = True
    renamed = {tensor.engine: tensor.engine + suffix for tensor in inner}
    graph.rename(graph_def, renamed, {})
    return {
        name: f"{renamed.get(tensor.engine, tensor.engine)}:{further.get((tensor.engine, tensor.place), tensor.output)}"
        if tensor.engine
        else tensor.place
        for name, tensor in tensors.items()
    }
