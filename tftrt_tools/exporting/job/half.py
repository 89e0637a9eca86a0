"""FP16 put into an ONNX graph: weights in FP16, a Cast wherever a tensor goes from FP32 nodes to FP16 nodes or back.

Inputs and outputs of the graph, and of graphs within nodes (the bodies of Loop and If), keep their types. A node is in FP16 if ONNX has it
in FP16, unless something of it would be lost: a constant, or a tensor that grew beyond FP16 on the data.

Libraries for this (onnxruntime.transformers.float16, which is onnxconverter-common's) clip constants to what FP16 holds without a word, do
not look at values, and put casts at the end of the graph, which onnx.checker refuses (both read and tried, onnxruntime 1.23.2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tftrt_tools.exporting.job.graph_facts import free, inner_graphs, name_of, node_names, read_inside, tensor_names
from tftrt_tools.exporting.precision import NodePrecision

# Behind a tensor's name, that of its copy in FP16.
SUFFIX = "/fp16"
LARGEST = float(np.finfo(np.float16).max)
# Below that, FP16 has fewer digits the smaller a number is, and none below 2^-25.
SMALLEST = float(np.finfo(np.float16).tiny)
_FLOAT, _HALF = "tensor(float)", "tensor(float16)"
# Ops that stay as they are: their type is an attribute, or the numbers that they count with are integers.
_AS_THEY_ARE = frozenset({"Cast", "CastLike", "Constant", "ConstantOfShape", "EyeLike", "RandomNormal", "RandomNormalLike", "RandomUniform",
                          "RandomUniformLike", "Multinomial", "Bernoulli", "QuantizeLinear", "DequantizeLinear"})
# Sums of many values, and orders that rounding changes.
_SENSITIVE = frozenset({"CumSum", "TopK", "Range"})
# They ask for a tensor's form alone, in whatever type it is there.
_FORMS = frozenset({"Shape", "Size"})
# {op: the inputs that are added to its result}.
_BIASES = {"Conv": (2,), "ConvTranspose": (2,), "Gemm": (2,), "BatchNormalization": (2, 3)}
_WITH_GRAPHS = frozenset({"If", "Loop", "Scan"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """What `convert` made."""

    model: onnx.ModelProto
    # Every node that computes floats, also those of inner graphs.
    nodes: tuple[NodePrecision, ...]
    # Constants that FP16 does not hold, a line each.
    constants: tuple[str, ...]


def convert(model: onnx.ModelProto, kept: Collection[str], largest: Mapping[str, float], simulated: bool = False) -> Made:
    """Put FP16 into a model.

    Args: model: with inferred types. kept: names of nodes that stay in FP32. largest: {tensor: the largest |x| on the data}. simulated: let
      every node compute in FP32, with its results rounded to FP16: ONNX Runtime has no FP16 on a CPU, and would leave the rounding out.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    writer = _Writer({one.domain: one.version for one in model.opset_import}, kept, largest, simulated, tensor_names(model.graph),
                     node_names(model.graph))
    writer.graph(made.graph, None)
    return Made(model=made, nodes=tuple(writer.nodes), constants=tuple(writer.constants))


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

    def __init__(self, opsets: Mapping[str, int], kept: Collection[str], largest: Mapping[str, float], simulated: bool,
                 tensors: Collection[str], named: Collection[str]) -> None:
        self._opsets, self._kept, self._largest, self._simulated = opsets, kept, largest, simulated
        # Names that the model has: of its tensors, and of its nodes.
        self._tensors, self._named = tensors, named
        self.nodes: list[NodePrecision] = []
        self.constants: dict[str, None] = {}

    def graph(self, graph: onnx.GraphProto, outer: _Scope | None) -> None:
        """Rewrite a graph, in place."""
        listed = [onnx.NodeProto.FromString(one.SerializeToString()) for one in graph.node]
        scope = _Scope(graph=graph, outer=outer, floats=frozenset(_floats(graph)))
        for tensor in graph.initializer:
            self._constant(scope, tensor.name, tensor)
        for value in graph.input:
            if value.name in scope.floats and value.name not in scope.values:
                scope.versions[value.name] = {False: value.name}
        for node in listed:
            self._node(scope, node)
        for value in graph.output:
            self._version(scope, value.name, half=False)
        del graph.node[:], graph.value_info[:]
        graph.node.extend(scope.nodes)
        _prune(graph)

    def _constant(self, scope: _Scope, name: str, tensor: TensorProto) -> None:
        if tensor.data_type == TensorProto.FLOAT:
            scope.versions[name], scope.values[name] = {False: name}, numpy_helper.to_array(tensor)

    def _node(self, scope: _Scope, node: onnx.NodeProto) -> None:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            self._constant(scope, node.output[0], node.attribute[0].t)
        for inner in inner_graphs(node):
            self.graph(inner, scope)
        outputs = [name for name in node.output if name in scope.floats]
        half = self._half(scope, node, outputs)
        for index, name in enumerate(node.input):
            if node.op_type in _FORMS:
                node.input[index] = self._any(scope, name)
            else:
                node.input[index] = self._version(scope, name, half=half and _either(self._schema(node), index, outputs=False))
        scope.nodes.append(node)
        for index, name in enumerate(node.output):
            if name not in scope.floats or name in scope.values:
                continue
            if half and _either(self._schema(node), index, outputs=True):
                scope.versions[name] = {True: self._rounded(scope, node, index)}
            else:
                scope.versions[name] = {False: name}

    def _half(self, scope: _Scope, node: onnx.NodeProto, outputs: list[str]) -> bool:
        """Whether a node is in FP16; notes the reason if not."""
        if not outputs or node.op_type == "Constant":
            return False
        reason = self._reason(scope, node, outputs)
        self.nodes.append(NodePrecision(name=name_of(node), op=node.op_type, precision="FP32" if reason else "FP16", reason=reason))
        return not reason

    def _reason(self, scope: _Scope, node: onnx.NodeProto, outputs: list[str]) -> str:
        """Why a node stays in FP32, or ""."""
        if name_of(node) in self._kept:
            return "--fp32_nodes names it"
        if node.op_type in _WITH_GRAPHS:
            return "its inner graphs have their own casts"
        if node.op_type in _AS_THEY_ARE or node.domain not in ("", "ai.onnx"):
            return "its type is its own"
        if node.op_type in _SENSITIVE:
            return "FP16 counts or orders too roughly"
        schema = self._schema(node)
        if schema is None or not any(_either(schema, index, outputs=True) for index, name in enumerate(node.output)
                                     if name in outputs):
            return "ONNX has it in FP32 alone"
        for index, name in enumerate(node.input):
            holder = scope.holder(name)
            if holder and name in holder.values and _either(schema, index, outputs=False):
                if lost := _lost(holder.values[name], summand=_summand(node, index, holder.values[name])):
                    self.constants[f"constant {name}: {lost}"] = None
                    return f"its constant {name} {lost}"
        beyond = [name for name in (*node.input, *outputs) if self._largest.get(name, 0.0) > LARGEST]
        return f"{beyond[0]} reaches {self._largest[beyond[0]]:.3g} on the data" if beyond else ""

    def _schema(self, node: onnx.NodeProto) -> Any:
        version = self._opsets.get(node.domain, 0)
        return onnx.defs.get_schema(node.op_type, version, node.domain) if onnx.defs.has(node.op_type, version, node.domain) else None

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
                holder.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32) if self._simulated else array,
                                                                        versions[True]))
            elif half:
                versions[True] = self._cast(holder, versions[False], free(name + SUFFIX, self._tensors))
            else:
                versions[False] = name
                kind, options = ("Identity", {}) if self._simulated else ("Cast", {"to": TensorProto.FLOAT})
                holder.nodes.append(helper.make_node(kind, [versions[True]], [name], name=free(f"{name}/to_fp32", self._named), **options))
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
        scope.nodes.append(helper.make_node("Cast", [given], [target], name=free(target + "/to_fp16", self._named), to=TensorProto.FLOAT16))
        if self._simulated:
            scope.nodes.append(helper.make_node("Cast", [target], [name], name=free(name + "/back", self._named), to=TensorProto.FLOAT))
        return name


def _either(schema: Any, index: int, outputs: bool) -> bool:
    """Whether an input or output of an op may be FP32 or FP16."""
    formal = schema.outputs if outputs else schema.inputs
    if not formal:
        return False
    kind = formal[min(index, len(formal) - 1)].type_str
    allowed = next((set(one.allowed_type_strs) for one in schema.type_constraints if one.type_param_str == kind), {kind})
    return {_FLOAT, _HALF} <= allowed


def _summand(node: onnx.NodeProto, index: int, values: npt.NDArray[Any]) -> bool:
    """Whether a constant is a bias, which may well be next to nothing; a single number that is added may be there to keep from zero."""
    return index in _BIASES.get(node.op_type, ()) or (node.op_type == "Add" and values.size > 1)


def _lost(values: npt.NDArray[Any], summand: bool) -> str:
    """What FP16 would lose of a constant, or "". Args: summand: it may be tiny."""
    magnitudes = np.abs(values[np.isfinite(values)])
    most = float(magnitudes.max(initial=0.0))
    if most > LARGEST:
        return f"holds {most:.3g}, and FP16 ends at {LARGEST:.0f}"
    if 0 < most < SMALLEST and not summand:
        return f"holds nothing above {most:.3g}, and FP16 has few digits below {SMALLEST:.3g}"
    return ""


def _floats(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the tensors of a graph that are known to be float32; constants within nodes, too."""
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            yield value.name
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value" and node.attribute[0].t.data_type == TensorProto.FLOAT:
            yield node.output[0]


def _prune(graph: onnx.GraphProto) -> None:
    """Take out constants that nothing reads any more."""
    read = {one.name for one in graph.output}.union(*((*node.input, *read_inside(node)) for node in graph.node))
    for tensor in list(graph.initializer):
        if tensor.name not in read:
            graph.initializer.remove(tensor)
    for node in list(graph.node):
        if node.op_type == "Constant" and node.output[0] not in read:
            graph.node.remove(node)
