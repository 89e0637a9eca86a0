"""Reads the graph of each signature of a SavedModel: functions that it calls, and the native segments of engine ops, in place of the calls.

Works on protos alone. Constants, variables and ops that only pass values on are left out; a loop or conditional is one node.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import graph, protos

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, node_def_pb2

# (name, op, engine, names of what it reads).
Row = tuple[str, str, str, list[str]]
# The names of the rows that compute a tensor.
_Sources = frozenset[str]
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# The most nodes that are read: nobody could look at a larger graph.
_MOST_NODES = 4000


def read(path: str | os.PathLike[str]) -> dict[str, list[Row]]:
    """{signature: rows, each after those that it reads}; a graph that is too large is left out."""
    meta = protos.meta_graph(protos.read(path), ())
    functions = graph.library(meta.graph_def)
    graphs = {}
    for name, signature in signatures.definitions(meta).items():
        walk = _Walk(functions)
        outputs = [info.name for info in signature.outputs.values()]
        walk.body("", "", {node.name: node for node in meta.graph_def.node}, {}, outputs)
        if len(walk.rows) <= _MOST_NODES:
            graphs[name] = list(walk.rows.values())
    return graphs


class _Walk:
    def __init__(self, functions: Mapping[str, function_pb2.FunctionDef]) -> None:
        self._functions = functions
        self.rows: dict[str, Row] = {}

    def body(
        self,
        scope: str,
        engine: str,
        nodes: Mapping[str, node_def_pb2.NodeDef],
        arguments: Mapping[str, _Sources],
        wanted: Sequence[str],
    ) -> list[_Sources]:
        """Add the rows of a graph or function. Args: scope: put before names; arguments: what computes each argument; wanted: tensors.

        Returns: what computes each of `wanted`.
        """
        done: dict[str, list[_Sources]] = {}

        def sources(tensor: str) -> _Sources:
            name, port = _parts(tensor)
            if name in arguments:
                return arguments[name]
            outputs = done.get(name, [frozenset[str]()])
            return outputs[port] if port < len(outputs) else frozenset[str]().union(*outputs)

        for name in _ordered(nodes, wanted):
            node = nodes[name]
            done[name] = self._node(scope, engine, node, [sources(tensor) for tensor in _data(node.input)])
        return [sources(tensor) for tensor in wanted]

    def _node(self, scope: str, engine: str, node: node_def_pb2.NodeDef, inputs: Sequence[_Sources]) -> list[_Sources]:
        """Add the rows of a node. Returns: what computes each of its outputs."""
        called = self._called(node)
        if called is not None:
            inside = graph.engine_name(node.name) if node.op == graph.ENGINE_OP else engine
            # Segments keep the names that their nodes had; the scope of the first call is that of the signature itself.
            within = "/" if node.op == graph.ENGINE_OP or not scope else f"{scope}{node.name}/"
            nodes = {inner.name: inner for inner in called.node_def}
            arguments = {arg.name: source for arg, source in zip(called.signature.input_arg, inputs, strict=False)}
            return self.body(
                within, inside, nodes, arguments, [called.ret[arg.name] for arg in called.signature.output_arg]
            )
        together = frozenset[str]().union(*inputs)
        if node.op in graph.PASSIVE_OPS:
            return [together]
        name = f"{scope}{node.name}".lstrip("/")
        inside = graph.engine_name(node.name) if node.op == graph.ENGINE_OP else engine
        self.rows[name] = (name, node.op, inside, sorted(together))
        return [frozenset({name})]

    def _called(self, node: node_def_pb2.NodeDef) -> function_pb2.FunctionDef | None:
        """The function that takes the place of a node; None for one that stays."""
        key = "segment_func" if node.op == graph.ENGINE_OP else "f"
        if node.op in _CALLS or node.op == graph.ENGINE_OP:
            return self._functions.get(node.attr[key].func.name if key in node.attr else "")
        return self._functions.get(node.op)


def _data(tensors: Iterable[str]) -> list[str]:
    return [tensor for tensor in tensors if not tensor.startswith("^")]


def _parts(tensor: str) -> tuple[str, int]:
    """(node or argument, output number) of "node", "node:1" or "node:output:1"."""
    name, *rest = tensor.split(":")
    return name, int(rest[-1]) if rest and rest[-1].isdigit() else 0


def _ordered(nodes: Mapping[str, Any], wanted: Iterable[str]) -> list[str]:
    """The nodes that `wanted` needs, each after those that it reads."""
    order: dict[str, None] = {}
    waiting = [(_parts(tensor)[0], False) for tensor in wanted]
    begun: set[str] = set()
    while waiting:
        name, ready = waiting.pop()
        if ready:
            order[name] = None
        elif name in nodes and name not in begun:
            begun.add(name)
            waiting.append((name, True))
            waiting += [(_parts(tensor)[0], False) for tensor in _data(nodes[name].input)]
    return list(order)
