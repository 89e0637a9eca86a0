"""Calls that XLA compiles (`tf.function(jit_compile=True)`), into which TF-TRT does not look: which there are, and a graph in which some of
them are calls like any other, so that TensorFlow puts the function's nodes in their place. Works on protos alone.
"""

from tensorflow.core.framework import graph_pb2

from tftrt_tools.savedmodel import graph, inline

_MARK, _NEVER_INLINED = "_XlaMustCompile", "_noinline"


def calls(graph_def):
    """Names of the calls that XLA compiles and that run without it as well, as they are once the calls around them are replaced by nodes:
    "OUTER/INNER". A function with ops that only XLA knows is not among them.
    """
    functions = graph.library(graph_def)
    return tuple(path for path, _, node in _paths("", graph_def.node, functions)
                 if _is_compiled(node, functions) and not _for_xla_alone(node, functions))


def holding(graph_def, ops):
    """{names of calls in which there is one of `ops`, however deep}."""
    functions = graph.library(graph_def)
    return {path for path, _, node in _paths("", graph_def.node, functions) if _holds(node, functions, ops)}


def opened(graph_def, names):
    """A copy in which calls are not XLA's any more.

    Args: graph_def: left as it is. names: of `calls`. A function's node that is reached as one of them and as another call too stays XLA's.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph_def)
    functions, names = graph.library(result), set(names)
    found = [(path in names, function, node) for path, function, node in _paths("", result.node, functions)]
    compiled = {(function, node.name) for _, function, node in found if _is_compiled(node, functions)}
    kept = {(function, node.name) for chosen, function, node in found if not chosen} & compiled
    for _, function, node in found:
        if (function, node.name) in compiled:
            node.attr[_MARK].b = (function, node.name) in kept
    freed = [functions[node.attr["f"].func.name] for _, function, node in found if (function, node.name) in compiled - kept]
    for name in {one.signature.name for one in freed} | {name for one in freed for name in inline.reached(one.node_def, functions)}:
        for attribute in {_MARK, _NEVER_INLINED} & set(functions[name].attr):
            del functions[name].attr[attribute]
    return result


def inside(call, name):
    """Whether a node is one of those that were put in the place of a call."""
    return name.startswith(f"{call}/")


def _paths(scope, nodes, functions, holder=""):
    """(path, the function that holds the node, node) of all calls, outer ones first."""
    for node in nodes:
        if node.op in inline.CALLS and node.attr["f"].func.name in functions:
            called = node.attr["f"].func.name
            yield scope + node.name, holder, node
            yield from _paths(f"{scope}{node.name}/", functions[called].node_def, functions, called)


def _is_compiled(node, functions):
    holders = (node.attr, functions[node.attr["f"].func.name].attr)
    return any(_MARK in one and one[_MARK].b for one in holders)


def _for_xla_alone(node, functions):
    return any(op.startswith("Xla") for op in _inner_ops(node, functions))


def _holds(node, functions, ops):
    return not _inner_ops(node, functions).isdisjoint(ops)


def _inner_ops(node, functions):
    return {inner.op for name in inline.reached([node], functions) for inner in functions[name].node_def}
