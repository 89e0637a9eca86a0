"""Signatures of a MetaGraph that are one function under several names, as Keras' model.export writes "serve" and "serving_default".

Read from the graph, without TensorFlow: their outputs are the same tensors, or calls of functions with the same body on the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import graph

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

_FED = frozenset({"Placeholder", "PlaceholderWithDefault"})


def find(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, str]:
    """{signature: the one that stands for it}, only for signatures that are the same as another; serving_default stands for its twins."""
    definitions = signatures.definitions(meta_graph)
    compared = _Compared(meta_graph.graph_def)
    groups: list[list[str]] = []
    for name in definitions:
        group = next((group for group in groups if compared.same(definitions[group[0]], definitions[name])), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return {name: signatures.leader(group) for group in groups if len(group) > 1 for name in group}


class _Compared:
    """Signatures of one graph, compared."""

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self._nodes = {node.name: node for node in graph_def.node}
        self._functions = graph.library(graph_def)

    def same(self, one: meta_graph_pb2.SignatureDef, other: meta_graph_pb2.SignatureDef) -> bool:
        """Whether two SignatureDefs have the same inputs and outputs, by the same names. Their methods may differ."""
        for kind in ("inputs", "outputs"):
            if graph.specs(getattr(one, kind)) != graph.specs(getattr(other, kind)):
                return False
        fed = {_node(one.inputs[name].name): _node(other.inputs[name].name) for name in one.inputs}
        return all(self._same_tensor(one.outputs[name], other.outputs[name], fed) for name in one.outputs)

    def _same_tensor(
        self, one: meta_graph_pb2.TensorInfo, other: meta_graph_pb2.TensorInfo, fed: Mapping[str, str]
    ) -> bool:
        """Args: fed: {placeholder of the first signature: that of the second}."""
        if one.name == other.name and one.WhichOneof("encoding") == "name":
            return all(first == second for first, second in fed.items())
        first, second = (self._nodes.get(_node(tensor.name)) for tensor in (one, other))
        if (
            first is None
            or second is None
            or one.name.partition(":")[2] != other.name.partition(":")[2]
            or first.op != second.op
        ):
            return False
        if first.op in _FED:
            result: bool = fed.get(first.name) == second.name
            return result
        return self._same_inputs(first, second, fed) and self._same_but_names(first, second)

    @staticmethod
    def _same_inputs(first: node_def_pb2.NodeDef, second: node_def_pb2.NodeDef, fed: Mapping[str, str]) -> bool:
        """Compare the inputs of a call: fed ones, and variables, which are nodes of the graph that both share."""
        return len(first.input) == len(second.input) and all(
            fed.get(_node(ours), _node(ours)) == _node(theirs)
            for ours, theirs in zip(first.input, second.input, strict=True)
        )

    def _same_but_names(self, first: node_def_pb2.NodeDef, second: node_def_pb2.NodeDef) -> bool:
        """Whether two nodes do the same; their names and the names of the functions that they call may differ."""
        calls, bare = [], []
        for node in (first, second):
            copy = type(node)()
            copy.CopyFrom(node)
            copy.name = ""
            del copy.input[:]
            calls.append(_take_functions(copy))
            bare.append(copy.SerializeToString(deterministic=True))
        return bare[0] == bare[1] and len(calls[0]) == len(calls[1]) and all(map(self._same_function, *calls))

    def _same_function(self, one: str, other: str) -> bool:
        if one == other:
            return True
        first, second = self._functions.get(one), self._functions.get(other)
        if first is None or second is None or len(first.node_def) != len(second.node_def):
            return False
        if any(
            list(ours.input) != list(theirs.input) or ours.name != theirs.name or not self._same_but_names(ours, theirs)
            for ours, theirs in zip(first.node_def, second.node_def, strict=True)
        ):
            return False
        return _without_nodes(first) == _without_nodes(second)


def _node(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _take_functions(node: node_def_pb2.NodeDef) -> list[str]:
    """Remove the names of the functions that a node calls from it. Returns: those names."""
    inputs = []
    for key in sorted(node.attr):
        value = node.attr[key]
        for function in [value.func] if value.WhichOneof("value") == "func" else value.list.func:
            inputs.append(function.name)
            function.name = ""
    return inputs


def _without_nodes(function: function_pb2.FunctionDef) -> bytes:
    copy = type(function)()
    copy.CopyFrom(function)
    copy.signature.name = ""
    del copy.node_def[:]
    for attributes in copy.arg_attr.values():
        # TensorFlow makes such names anew for what each function captures.
        attributes.attr.pop("_user_specified_name", None)
    result: bytes = copy.SerializeToString(deterministic=True)
    return result
