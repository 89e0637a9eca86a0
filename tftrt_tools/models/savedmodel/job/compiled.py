"""Calls that XLA compiles (`tf.function(jit_compile=True)`). TF-TRT does not look into them. This module lists them and opens them: it
makes them ordinary calls, which TensorFlow replaces by the function's nodes. Works on protos alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2

from tftrt_tools.models.savedmodel.job import graph, inline

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, node_def_pb2

MARK, _NEVER_INLINED = "_XlaMustCompile", "_noinline"


def calls(graph_def: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Names of the calls that XLA compiles and that also run without XLA; a function with XLA's own ops does not.

    The name is that of the call after the calls around it are replaced by nodes: "OUTER/INNER".
    """
    functions = graph.library(graph_def)
    return tuple(
        path
        for path, _, node in _paths("", graph_def.node, functions)
        if _is_compiled(node, functions) and not _for_xla_alone(node, functions)
    )


def holding(graph_def: graph_pb2.GraphDef, ops: Collection[str]) -> set[str]:
    """{names of calls in which there is one of `ops`, however deep}."""
    functions = graph.library(graph_def)
    return {path for path, _, node in _paths("", graph_def.node, functions) if _holds(node, functions, ops)}


def opened(graph_def: graph_pb2.GraphDef, names: Iterable[str]) -> graph_pb2.GraphDef:
    """A copy in which XLA does not compile these calls any more.

    Args: graph_def: left as it is. names: of `calls`. XLA still compiles a node of a function that another call reaches too.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph_def)
    functions, names = graph.library(result), set(names)
    reached = [(path in names, function, node) for path, function, node in _paths("", result.node, functions)]
    compiled = {(function, node.name) for _, function, node in reached if _is_compiled(node, functions)}
    kept = {(function, node.name) for chosen, function, node in reached if not chosen} & compiled
    for _, function, node in reached:
        if (function, node.name) in compiled:
            node.attr[MARK].b = (function, node.name) in kept
    freed = [
        functions[node.attr["f"].func.name] for _, function, node in reached if (function, node.name) in compiled - kept
    ]
    for name in {freed_function.signature.name for freed_function in freed} | {
        name for freed_function in freed for name in inline.reached(freed_function.node_def, functions)
    }:
        for attribute in {MARK, _NEVER_INLINED} & set(functions[name].attr):
            del functions[name].attr[attribute]
    return result


def inside(call: str, name: str) -> bool:
    """Whether a node is one of the nodes that replaced a call."""
    return name.startswith(f"{call}/")


def _paths(
    scope: str,
    nodes: Iterable[node_def_pb2.NodeDef],
    functions: Mapping[str, function_pb2.FunctionDef],
    holder: str = "",
) -> Iterator[tuple[str, str, node_def_pb2.NodeDef]]:
    """(path, the function that holds the node, node) of all calls, outer ones first."""
    for node in nodes:
        if node.op in inline.CALLS and node.attr["f"].func.name in functions:
            called = node.attr["f"].func.name
            yield scope + node.name, holder, node
            yield from _paths(f"{scope}{node.name}/", functions[called].node_def, functions, called)


def _is_compiled(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef]) -> bool:
    holders = (node.attr, functions[node.attr["f"].func.name].attr)
    return any(MARK in one and one[MARK].b for one in holders)


def _for_xla_alone(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef]) -> bool:
    return any(op.startswith("Xla") for op in _inner_ops(node, functions))


def _holds(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef], ops: Collection[str]) -> bool:
    return not _inner_ops(node, functions).isdisjoint(ops)


def _inner_ops(node: node_def_pb2.NodeDef, functions: Mapping[str, function_pb2.FunctionDef]) -> set[str]:
    return {inner.op for name in inline.reached([node], functions) for inner in functions[name].node_def}
