"""A native segment as the GraphDef that TF-TRT converts node by node. Works on protos, except for `imported`."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel import engine_op

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape


def to_graph(function: function_pb2.FunctionDef) -> tuple[graph_pb2.GraphDef, dict[str, str]]:
    """The body of a segment's FunctionDef, with its arguments and results as nodes, named and ordered as TF-TRT has them on the GPU.

    Returns: (GraphDef, {its node: the argument's name}).
    """
    body, tensors = tf_private.function_body(function)
    arguments = {arg.name: f"{engine_op.INPUT}{index}" for index, arg in enumerate(function.signature.input_arg)}
    result = graph_pb2.GraphDef(versions=body.versions)
    for index, arg in enumerate(function.signature.input_arg):
        node = result.node.add(name=arguments[arg.name], op="_Arg")
        node.attr["T"].type = arg.type
        node.attr["index"].i = index
        for name, value in function.arg_attr[index].attr.items():
            node.attr[name].CopyFrom(value)
    for node in body.node:
        if node.name not in arguments:
            copy = result.node.add()
            copy.CopyFrom(node)
            copy.input[:] = [_plain(source, arguments) for source in node.input]
    for index, arg in enumerate(function.signature.output_arg):
        node = result.node.add(
            name=f"{engine_op.OUTPUT}{index}", op="_Retval", input=[_plain(tensors[function.ret[arg.name]], arguments)]
        )
        node.attr["T"].type = arg.type
        node.attr["index"].i = index
    return sorted_by_inputs(result), {node: argument for argument, node in arguments.items()}


def _plain(source: str, arguments: Mapping[str, str]) -> str:
    """A reference with the argument's node in place of the argument, and without a port of 0."""
    if source.startswith("^"):
        return f"^{arguments.get(source[1:], source[1:])}"
    name, _, port = source.partition(":")
    name = arguments.get(name, name)
    return f"{name}:{port}" if port not in ("", "0") else name


def sorted_by_inputs(graph_def: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """The same graph in the order in which TensorFlow numbers its nodes: next comes the first node whose inputs all came before."""
    index = {node.name: number for number, node in enumerate(graph_def.node)}
    missing = [len(node.input) for node in graph_def.node]
    readers: list[list[int]] = [[] for _ in graph_def.node]
    for number, node in enumerate(graph_def.node):
        for source in node.input:
            readers[index[source.lstrip("^").partition(":")[0]]].append(number)
    ready = [number for number, count in enumerate(missing) if not count]
    result = graph_pb2.GraphDef(versions=graph_def.versions)
    while ready:
        number = heapq.heappop(ready)
        result.node.add().CopyFrom(graph_def.node[number])
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return result


def imported(graph_def: graph_pb2.GraphDef, shapes: Sequence[Shape]) -> Any:
    """The tf.Graph of `importable`'s copy, in which TensorFlow has inferred all shapes."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(importable(graph_def, shapes), name="")
    return graph


def importable(graph_def: graph_pb2.GraphDef, shapes: Sequence[Shape]) -> graph_pb2.GraphDef:
    """A copy that tf.import_graph_def takes: placeholders of `shapes` (tuples with None, None for an unknown rank, by argument) for
    arguments, identities for results."""
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph_def)
    for node in result.node:
        node.device = ""
        if node.op == "_Arg":
            shape = shapes[node.attr["index"].i]
            dtype = node.attr["T"].type
            node.op = "Placeholder"
            node.attr.clear()
            node.attr["dtype"].type = dtype
            node.attr["shape"].shape.unknown_rank = shape is None
            for size in shape or ():
                node.attr["shape"].shape.dim.add(size=-1 if size is None else size)
        elif node.op == "_Retval":
            node.op = "Identity"
            del node.attr["index"]
    return result
