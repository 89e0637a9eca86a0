"""FP16 put into an ONNX graph: weights in FP16, a Cast wherever a tensor goes from FP32 nodes to FP16 nodes or back.

Inputs and outputs of the graph, and of graphs within nodes (the bodies of Loop and If), keep their types. A node is in FP16 if ONNX has it
in FP16, unless something would be lost by it (`half_kept`): a constant, a tensor that grew beyond FP16 on the data, an id that is moved.

Libraries for this (onnxruntime.transformers.float16, which is onnxconverter-common's) clip constants to what FP16 holds without a word, do
not look at values, and put casts at the end of the graph, which onnx.checker refuses (both read and tried, onnxruntime 1.23.2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tftrt_tools.tensorrt.exporting.job import half_kept
from tftrt_tools.tensorrt.exporting.job.graph_facts import (
    free,
    inner_graphs,
    name_of,
    node_names,
    read_inside,
    tensor_names,
)
from tftrt_tools.tensorrt.exporting.precision import NodePrecision

# Behind a tensor's name, that of its copy in FP16.
SUFFIX = "/fp16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """What `convert` made."""

    model: onnx.ModelProto
    # Every node that computes floats, also those of inner graphs.
    nodes: tuple[NodePrecision, ...]
    # Constants that FP16 does not hold, a line each.
    constants: tuple[str, ...]


def convert(
    model: onnx.ModelProto,
    kept: Collection[str],
    largest: Mapping[str, float],
    simulated: bool = False,
    moved: bool = True,
) -> Made:
    """Put FP16 into a model.

    Args: model: with inferred types. kept: names of nodes that stay in FP32. largest: {tensor: the largest |x| on the data}. simulated: let
      every node compute in FP32, with its results rounded to FP16: ONNX Runtime has no FP16 on a CPU, and would leave the rounding out.
      moved: as of half_kept.Kept.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    wide = half_kept.Kept(model, kept, largest, moved)
    writer = _Writer(wide, simulated, tensor_names(model.graph), node_names(model.graph))
    writer.graph(made.graph, None, ())
    return Made(model=made, nodes=tuple(writer.nodes), constants=tuple(wide.constants))


@dataclasses.dataclass(eq=False, kw_only=True)
class _Scope:
    """A graph that is being written. outer: the graph around it; nodes: those written so far; versions: {float tensor: {whether in FP16:
    its name}}; values: {constant: its values}; floats: names of the tensors that are float32."""

    graph: onnx.GraphProto
    outer: _Scope | None
    floats: frozenset[str]
    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    versions: dict[str, dict[bool, str]] = dataclasses.field(default_factory=dict)
    values: dict[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)

    def holder(self, name: str) -> _Scope | None:
        """The scope that has a float tensor, None if none has."""
        if name in self.versions:
            return self
        return self.outer.holder(name) if self.outer else None


class _Writer:
    """Writes graphs anew, node by node."""

    def __init__(self, kept: half_kept.Kept, simulated: bool, tensors: Collection[str], named: Collection[str]) -> None:
        self._kept, self._simulated = kept, simulated
        # Names that the model has: of its tensors, and of its nodes.
        self._tensors, self._named = tensors, named
        self.nodes: list[NodePrecision] = []

    def graph(self, graph: onnx.GraphProto, outer: _Scope | None, key: half_kept.Key) -> None:
        """Rewrite a graph, in place. Args: key: the way to it."""
        listed = [onnx.NodeProto.FromString(one.SerializeToString()) for one in graph.node]
        scope = _Scope(graph=graph, outer=outer, floats=frozenset(half_kept.floats(graph)))
        for tensor in graph.initializer:
            self._constant(scope, tensor.name, tensor)
        for value in graph.input:
            if value.name in scope.floats and value.name not in scope.values:
                scope.versions[value.name] = {False: value.name}
        for index, node in enumerate(listed):
            self._node(scope, node, (*key, index))
        for value in graph.output:
            self._version(scope, value.name, half=False)
        del graph.node[:], graph.value_info[:]
        graph.node.extend(scope.nodes)
        _prune(graph)

    def _constant(self, scope: _Scope, name: str, tensor: TensorProto) -> None:
        if tensor.data_type == TensorProto.FLOAT:
            scope.versions[name], scope.values[name] = {False: name}, numpy_helper.to_array(tensor)

    def _node(self, scope: _Scope, node: onnx.NodeProto, key: half_kept.Key) -> None:
        if constant := half_kept.constant_of(node):
            self._constant(scope, node.output[0], constant)
        for number, inner in enumerate(inner_graphs(node)):
            self.graph(inner, scope, (*key, number))
        half, schema = self._half(node, key), self._kept.schema(node)
        for index, name in enumerate(node.input):
            if node.op_type in half_kept.FORMS:
                node.input[index] = self._any(scope, name)
            else:
                node.input[index] = self._version(
                    scope, name, half=half and half_kept.either(schema, index, outputs=False)
                )
        scope.nodes.append(node)
        for index, name in enumerate(node.output):
            if name not in scope.floats or name in scope.values:
                continue
            if half and half_kept.either(schema, index, outputs=True):
                scope.versions[name] = {True: self._rounded(scope, node, index)}
            else:
                scope.versions[name] = {False: name}

    def _half(self, node: onnx.NodeProto, key: half_kept.Key) -> bool:
        """Whether a node is in FP16; notes it, with the reason if not."""
        reason = self._kept.reasons.get(key)
        if reason is None:
            return False
        self.nodes.append(
            NodePrecision(name=name_of(node), op=node.op_type, precision="FP32" if reason else "FP16", reason=reason)
        )
        return not reason

    def _any(self, scope: _Scope, name: str) -> str:
        """The name of a tensor in the type that it has."""
        holder = scope.holder(name)
        return next(iter(holder.versions[name].values())) if holder else name

    def _version(self, scope: _Scope, name: str, half: bool) -> str:
        """The name of a tensor in FP16 or FP32, for float tensors; with a Cast where it is made, if that is missing."""
        holder = scope.holder(name)
        if holder is None:
            return name
        versions = holder.versions[name]
        if half not in versions:
            if half and name in holder.values:
                array = holder.values[name].astype(np.float16)
                versions[True] = free(name + SUFFIX, self._tensors)
                holder.graph.initializer.append(
                    numpy_helper.from_array(array.astype(np.float32) if self._simulated else array, versions[True])
                )
            elif half:
                versions[True] = self._cast(holder, versions[False], free(name + SUFFIX, self._tensors))
            else:
                versions[False] = name
                kind, options = ("Identity", {}) if self._simulated else ("Cast", {"to": TensorProto.FLOAT})
                holder.nodes.append(
                    helper.make_node(
                        kind, [versions[True]], [name], name=free(f"{name}/to_fp32", self._named), **options
                    )
                )
        return versions[half]

    def _rounded(self, scope: _Scope, node: onnx.NodeProto, index: int) -> str:
        """The name of an output in FP16."""
        name = node.output[index]
        rounded = free(name + SUFFIX, self._tensors)
        # The node is in the list already: its output gets another name there; simulated, the rounded one has the name of FP16's.
        node.output[index] = free(f"{name}/fp32", self._tensors) if self._simulated else rounded
        return self._cast(scope, node.output[index], rounded) if self._simulated else rounded

    def _cast(self, scope: _Scope, given: str, name: str) -> str:
        """A Cast to FP16; simulated, one that goes back, too."""
        target = free(f"{name}/bits", self._tensors) if self._simulated else name
        scope.nodes.append(
            helper.make_node(
                "Cast", [given], [target], name=free(target + "/to_fp16", self._named), to=TensorProto.FLOAT16
            )
        )
        if self._simulated:
            scope.nodes.append(
                helper.make_node("Cast", [target], [name], name=free(name + "/back", self._named), to=TensorProto.FLOAT)
            )
        return name


def _prune(graph: onnx.GraphProto) -> None:
    """Take out constants that nothing reads any more."""
    read = {one.name for one in graph.output}.union(*((*node.input, *read_inside(node)) for node in graph.node))
    for tensor in list(graph.initializer):
        if tensor.name not in read:
            graph.initializer.remove(tensor)
    for node in list(graph.node):
        if node.op_type == "Constant" and node.output[0] not in read:
            graph.node.remove(node)
