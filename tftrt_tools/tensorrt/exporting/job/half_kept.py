"""Which nodes of an ONNX graph FP16 would harm, and why: decided for all nodes before any is written.

Five things are looked at: what a node is, with its constants; the values that its tensors had on data; what the constants say of values
that no data has shown (log(max(x, 1e-12)) of silence); spectra that a logarithm reads; and the way of numbers that are only moved, as ids
and times are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

from tftrt_tools.tensorrt.exporting.job import spectra
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes, inner_graphs, name_of

LARGEST = float(np.finfo(np.float16).max)
# Below that, FP16 has fewer digits the smaller a number is; below the other number it has at most six bits.
SMALLEST = float(np.finfo(np.float16).tiny)
_COARSE = SMALLEST / 16
_FLOAT, _HALF = "tensor(float)", "tensor(float16)"
# Ops that stay as they are: their type is an attribute, or the numbers that they count with are integers.
_AS_THEY_ARE = frozenset(
    {
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "EyeLike",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "QuantizeLinear",
        "DequantizeLinear",
    }
)
# Sums of many values, orders that rounding changes, and an epsilon of 1e-9 that is part of the op.
_SENSITIVE = frozenset({"CumSum", "TopK", "Range", "MeanVarianceNormalization"})
# {op: why its constants stay}: builtin_op_importers.cpp of onnx-tensorrt at release/8.5-GA and release/8.6-GA.
_WIDE_CONSTANTS = {"InstanceNormalization": "TensorRT 8's parser reads its scales as FP32, whatever they are"}
# They ask for a tensor's form alone, in whatever type it is there.
FORMS = frozenset({"Shape", "Size"})
# {op: the inputs that are added to its result}.
_BIASES = {"Conv": (2,), "ConvTranspose": (2,), "Gemm": (2,), "BatchNormalization": (2, 3)}
_WITH_GRAPHS = frozenset({"If", "Loop", "Scan"})
# Ops whose output holds numbers of their inputs, and no others.
MOVES = frozenset(
    {
        "Identity",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Gather",
        "GatherElements",
        "GatherND",
        "Concat",
        "Split",
        "Pad",
        "Expand",
        "Tile",
        "Where",
        "DepthToSpace",
        "SpaceToDepth",
        "ReverseSequence",
        "Compress",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Trilu",
        "CenterCropPad",
        "Dropout",
    }
)
# They copy numbers in this mode.
_RESIZES = frozenset({"Resize", "Upsample"})
# {op: its inputs at which a number next to zero decides the result}.
_DIVISIONS = {"Log": (0,), "Reciprocal": (0,), "Sqrt": (0,), "Pow": (0,), "Div": (1,), "Mod": (1,)}
# Inputs whose smallest number counts, not the largest alone.
_BOUNDS = {**_DIVISIONS, "Max": None, "Clip": (1, 2)}
# Arithmetic with which graphs count.
_COUNTS = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Mod",
        "Floor",
        "Ceil",
        "Round",
        "Max",
        "Min",
        "Neg",
        "Abs",
        "Clip",
        "Sin",
        "Cos",
        "Sum",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
    }
)
# Integers that FP16 may not hold; those of 8 bits it holds.
_COUNTERS = frozenset(
    {
        TensorProto.INT16,
        TensorProto.UINT16,
        TensorProto.INT32,
        TensorProto.UINT32,
        TensorProto.INT64,
        TensorProto.UINT64,
    }
)
# Between a square and the bound below it.
_SUMS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "Add", "Sum", "MatMul", "Gemm", "Sqrt", *MOVES})
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
_KEEP_VALUES = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "Relu", "Abs", *_POOLS, *MOVES})
_SCALED = _KEEP_VALUES | {"Mul"}

# How far a chain of nodes is followed.
_DEEPEST = 12

# (number of its graph, name).
_Tensor = tuple[int, str]
# The way to a node: its number in the graph, the number of the graph within it, …
Key = tuple[int, ...]


@dataclasses.dataclass(eq=False, kw_only=True)
class _Scope:
    """A graph. outer: the graph around it; floats: names of its tensors that are float32; values: {constant: its values}."""

    number: int
    graph: onnx.GraphProto
    outer: _Scope | None
    floats: frozenset[str]
    values: dict[str, npt.NDArray[Any]]
    names: set[str]

    def holder(self, name: str) -> _Scope | None:
        """The scope that has a tensor, None if none has."""
        if name in self.names:
            return self
        return self.outer.holder(name) if self.outer else None


@dataclasses.dataclass(eq=False, kw_only=True)
class _Place:
    """A node. half: whether its result can be in FP16 at all; reason: why it stays in FP32, or ""."""

    key: Key
    node: onnx.NodeProto
    scope: _Scope
    outputs: list[str]
    computes: bool
    reason: str = ""

    @property
    def wide(self) -> bool:
        """Whether it reads and gives FP32."""
        return bool(self.reason) or not self.computes


class Kept:
    """The nodes that stay in FP32. reasons: {the way to a node that computes floats: why it stays, or ""}; constants: those that FP16 does
    not hold, a line each."""

    def __init__(
        self, model: onnx.ModelProto, named: Collection[str], largest: Mapping[str, float], moved: bool = True
    ) -> None:
        """Args: named: nodes that the user keeps. largest: {tensor: the largest |x| on the data}. moved: look at numbers that are only
        moved, too."""
        self._opsets = {one.domain: one.version for one in model.opset_import}
        self._largest = largest
        self._stay = {**spectra.nodes(Facts(model)), **dict.fromkeys(named, "--fp32_nodes names it")}
        self.constants: dict[str, None] = {}
        self._scopes: list[_Scope] = []
        # {the way to a graph: its scope}.
        self._inner: dict[Key, _Scope] = {}
        self._places: list[_Place] = []
        self._makers: dict[_Tensor, _Place] = {}
        self._readers: dict[_Tensor, list[tuple[_Place, int]]] = {}
        # {what a branch gives: what its conditional gives}.
        self._given: dict[_Tensor, _Tensor] = {}
        # {tensor: a number that it may have, by what the constants say}.
        self._edges: dict[_Tensor, float] = {}
        self._walk(model.graph, None, ())
        for place in self._places:
            place.reason = self._reason(place) if place.computes else ""
        for place in self._places:
            self._look_at_edges(place)
        for place in self._places:
            self._look_at_counts(place)
        if moved:
            self._look_at_moves()
        self.reasons = {place.key: place.reason for place in self._places if place.computes}

    # The graph ------------------------------------------------------------------------------------------------------------------------

    def _walk(self, graph: onnx.GraphProto, outer: _Scope | None, key: Key) -> None:
        scope = _Scope(
            number=len(self._scopes),
            graph=graph,
            outer=outer,
            floats=frozenset(floats(graph)),
            values={},
            names={one.name for one in graph.input},
        )
        self._scopes.append(scope)
        self._inner[key] = scope
        for tensor in graph.initializer:
            self._constant(scope, tensor.name, tensor)
        for index, node in enumerate(graph.node):
            scope.names.update(node.output)
            if constant := constant_of(node):
                self._constant(scope, node.output[0], constant)
            for number, inner in enumerate(inner_graphs(node)):
                way = (*key, index, number)
                self._walk(inner, scope, way)
                if node.op_type == "If":
                    pairs = zip(node.output, inner.output, strict=False)
                    self._given.update(
                        {(self._inner[way].number, theirs.name): (scope.number, ours) for ours, theirs in pairs}
                    )
            outputs = [name for name in node.output if name in scope.floats]
            place = _Place(
                key=(*key, index),
                node=node,
                scope=scope,
                outputs=outputs,
                computes=bool(outputs) and node.op_type != "Constant",
            )
            self._places.append(place)
            self._makers.update({(scope.number, name): place for name in node.output if name})
            for number, name in enumerate(node.input):
                if name:
                    self._readers.setdefault(self._tensor(scope, name), []).append((place, number))

    def _constant(self, scope: _Scope, name: str, tensor: TensorProto) -> None:
        scope.names.add(name)
        if tensor.data_type == TensorProto.FLOAT:
            scope.values[name] = numpy_helper.to_array(tensor)

    def _tensor(self, scope: _Scope, name: str) -> _Tensor:
        holder = scope.holder(name)
        return (holder or self._scopes[0]).number, name

    def _values(self, place: _Place, index: int) -> npt.NDArray[Any] | None:
        """The values of a constant that a node reads; None for another tensor."""
        if len(place.node.input) <= index:
            return None
        holder = place.scope.holder(place.node.input[index])
        return holder.values.get(place.node.input[index]) if holder else None

    def _number(self, place: _Place, index: int) -> float | None:
        values = self._values(place, index)
        return float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None

    def _inputs(self, place: _Place) -> Iterator[tuple[int, _Tensor]]:
        """(index, tensor) of the inputs that may be FP16."""
        for index, name in enumerate(place.node.input):
            if name and either(self.schema(place.node), index, outputs=False):
                yield index, self._tensor(place.scope, name)

    def _outputs(self, place: _Place) -> list[_Tensor]:
        return [(place.scope.number, name) for name in place.outputs]

    def schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        """ONNX's definition of a node's op; None where it has none."""
        version = self._opsets.get(node.domain, 0)
        return (
            onnx.defs.get_schema(node.op_type, version, node.domain)
            if onnx.defs.has(node.op_type, version, node.domain)
            else None
        )

    # What the node is -----------------------------------------------------------------------------------------------------------------

    def _reason(self, place: _Place) -> str:
        """Why a node stays in FP32 for itself, or ""."""
        node = place.node
        if stays := self._stay.get(name_of(node)):
            return stays
        if node.op_type in _WITH_GRAPHS:
            return "its inner graphs have their own casts"
        if node.op_type in _AS_THEY_ARE or node.domain not in ("", "ai.onnx"):
            return "its type is its own"
        if node.op_type in _SENSITIVE:
            return "FP16 counts or orders too roughly"
        if node.op_type in _WIDE_CONSTANTS:
            return _WIDE_CONSTANTS[node.op_type]
        schema = self.schema(node)
        given = [index for index, name in enumerate(node.output) if name in place.outputs]
        if schema is None or not any(either(schema, index, outputs=True) for index in given):
            return "ONNX has it in FP32 alone"
        for index, _ in self._inputs(place):
            values = self._values(place, index)
            if values is not None and (lost := _lost(values, self._least(place, index, values))):
                self.constants[f"constant {node.input[index]}: {lost}"] = None
                return f"its constant {node.input[index]} {lost}"
        beyond = [name for name in (*node.input, *place.outputs) if self._largest.get(name, 0.0) > LARGEST]
        return f"{beyond[0]} reaches {self._largest[beyond[0]]:.3g} on the data" if beyond else ""

    def _least(self, place: _Place, index: int, values: npt.NDArray[Any]) -> float:
        """The number of a constant that must not be too small for FP16; 0 where all may be."""
        op, magnitudes = place.node.op_type, np.abs(values[np.isfinite(values) & (values != 0)])
        if not magnitudes.size or index in _BIASES.get(op, ()):
            return 0.0
        if op == "Add" and values.size > 1:
            # A bias may be next to nothing; what keeps from zero may not.
            return float(magnitudes.min()) if self._is_divided_by(place, MOVES) else 0.0
        bounds = _BOUNDS.get(op, ())
        return float(magnitudes.min() if bounds is None or index in bounds else magnitudes.max())

    def _is_divided_by(self, place: _Place, through: Collection[str]) -> bool:
        """Whether a node behind this one, and behind ops that are looked through, divides by its result or takes its logarithm or root."""
        waiting, seen = [place], {place.key}
        while waiting:
            for reader, index in self._behind(waiting.pop()):
                if index in _DIVISIONS.get(reader.node.op_type, ()):
                    return True
                if reader.node.op_type in through and reader.key not in seen:
                    seen.add(reader.key)
                    waiting.append(reader)
        return False

    def _behind(self, place: _Place) -> list[tuple[_Place, int]]:
        """(reader, index of its input) of a node's results, also of those that a branch gives its conditional."""
        tensors = self._outputs(place)
        tensors += [self._given[one] for one in tensors if one in self._given]
        return [reader for tensor in tensors for reader in self._readers.get(tensor, ())]

    # What the constants say of the values ------------------------------------------------------------------------------------------------

    def _look_at_edges(self, place: _Place) -> None:
        """Note which number beyond FP16 a node may give, and keep it where it reads one that FP16 turns into another result."""
        if not place.computes or place.node.op_type in _WITH_GRAPHS:
            return
        given = {index: self._edges[tensor] for index, tensor in self._inputs(place) if tensor in self._edges}
        edge = self._edge(place, given)
        beyond = {index: one for index, one in given.items() if _beyond(one)}
        for index, one in beyond.items():
            decides = (
                index in _DIVISIONS.get(place.node.op_type, ())
                or abs(one) > LARGEST
                or edge is not None
                and _beyond(edge)
            )
            if decides and not place.reason:
                place.reason = f"{place.node.input[index]} may be {one:.3g}, which FP16 does not hold"
        if edge is not None and (given or place.reason):
            outputs = self._outputs(place)
            self._edges.update(
                dict.fromkeys([*outputs, *(self._given[one] for one in outputs if one in self._given)], edge)
            )
            if not given and 0 < abs(edge) < _COARSE and self._is_divided_by(place, _SCALED):
                self._keep_squares(place)

    def _edge(self, place: _Place, given: Mapping[int, float]) -> float | None:
        """The number that a node gives for `given` numbers of its inputs, or, for its constant beyond FP16, next to zero."""
        op, listed = place.node.op_type, range(len(place.node.input))
        constants = {index: self._bound(place, index) for index in listed if self._values(place, index) is not None}
        known = {**constants, **given}
        if op == "ConstantOfShape":
            filled = _filled(place.node)
            return filled if _beyond(filled) else None
        if not given and not any(_beyond(one) for one in constants.values()):
            return None
        if op in ("Max", "Add", "Sum"):
            return (max if op == "Max" else sum)(known.values())
        if op == "Min":
            return min(known.values()) if given else None
        if op == "Clip":
            return max(given.get(0, 0.0), constants.get(1, -math.inf)) if given or constants.get(1, 0.0) > 0 else None
        if op == "Where":
            return next((one for index, one in known.items() if index and _beyond(one)), None)
        if op == "Mul":
            return math.prod(known.values()) if len(known) == len(listed) or not given else None
        if op == "Sub":
            return known.get(0, 0.0) - known.get(1, 0.0)
        if op == "Div":
            return known[0] / known[1] if 0 in known and known.get(1) else None
        if op == "Pow":
            return _power(given[0], constants[1]) if 0 in given and 1 in constants else None
        if op in _KEEP_VALUES or self._copies(place.node):
            return (
                next(iter(given.values()), None)
                if given
                else next((one for one in constants.values() if _beyond(one)), None)
            )
        return _function(op, given[0]) if 0 in given else None

    def _bound(self, place: _Place, index: int) -> float:
        """The number of a constant that is the farthest beyond FP16, else any."""
        values = self._values(place, index)
        assert values is not None
        finite = values[np.isfinite(values) & (values != 0)]
        if not finite.size:
            return 0.0
        large, small = (float(finite.reshape(-1)[one(np.abs(finite))]) for one in (np.argmax, np.argmin))
        return large if abs(large) > LARGEST else small

    def _keep_squares(self, place: _Place) -> None:
        """Keep what squares numbers in front of a bound where FP16 is coarse: the squares may be as small."""
        for _, tensor in self._inputs(place):
            for one in self._squares(tensor, 0):
                one.reason = (
                    one.reason
                    or f"{name_of(place.node)} keeps its squares from zero, with a number where FP16 is coarse"
                )

    def _squares(self, tensor: _Tensor, depth: int) -> list[_Place]:
        """The square that a tensor is a sum of, with what lies between; [] without one. What is squared may be a root of squares itself, as
        the magnitude of a spectrum is, and then all of it is in front of the bound."""
        place = self._makers.get(tensor)
        if place is None or not place.computes or depth > _DEEPEST:
            return []
        if self._is_square(place):
            (_, squared), *_ = self._inputs(place)
            return [place, *self._squares(squared, depth + 1)]
        if place.node.op_type not in _SUMS:
            return []
        found = [one for _, given in self._inputs(place) for one in self._squares(given, depth + 1)]
        return [place, *found] if found else []

    def _is_square(self, place: _Place) -> bool:
        node = place.node
        return (
            node.op_type in ("ReduceSumSquare", "ReduceL2")
            or node.op_type == "Mul"
            and node.input[0] == node.input[1]
            or node.op_type == "Pow"
            and (self._number(place, 1) or 0.0) >= 2
        )

    # Numbers that count ----------------------------------------------------------------------------------------------------------------

    def _look_at_counts(self, place: _Place) -> None:
        """Keep arithmetic whose numbers all come from integers: 2049 would become 2048."""
        if place.reason or not place.computes or place.node.op_type not in _COUNTS:
            return
        given = [self._tensor(place.scope, name) for name in place.node.input if name]
        computed = [tensor for tensor in given if not self._is_constant(tensor)]
        if computed and all(map(self._is_count, computed)):
            place.reason = "it counts: its numbers come from integers"

    def _is_constant(self, tensor: _Tensor) -> bool:
        return tensor[1] in self._scopes[tensor[0]].values or tensor not in self._makers and not self._is_input(tensor)

    def _is_input(self, tensor: _Tensor) -> bool:
        return any(one.name == tensor[1] for one in self._scopes[tensor[0]].graph.input)

    def _is_count(self, tensor: _Tensor, depth: int = 0) -> bool:
        place = self._makers.get(tensor)
        if place is None or depth > _DEEPEST:
            return False
        node = place.node
        if node.op_type == "Cast":
            return self._type(self._tensor(place.scope, node.input[0])) in _COUNTERS
        if node.op_type == "Range" or place.reason.startswith("it counts"):
            return True
        return (
            node.op_type in MOVES
            and bool(node.input)
            and self._is_count(self._tensor(place.scope, node.input[0]), depth + 1)
        )

    def _type(self, tensor: _Tensor) -> int:
        graph = self._scopes[tensor[0]].graph
        values = (*graph.value_info, *graph.input, *graph.output)
        return next((one.type.tensor_type.elem_type for one in values if one.name == tensor[1]), 0)

    # Numbers that are only moved -------------------------------------------------------------------------------------------------------

    def _look_at_moves(self) -> None:
        """Keep nodes that only move numbers which FP32 gives to what reads FP32."""
        fresh = {
            (scope.number, one.name) for scope in self._scopes for one in scope.graph.input if one.name in scope.floats
        }
        fresh |= {
            (scope.number, name)
            for scope in self._scopes
            for name, values in scope.values.items()
            if _are_whole(values)
        }
        for place in self._places:
            if place.wide or self._moves(place) and any(tensor in fresh for _, tensor in self._inputs(place)):
                fresh.update(self._outputs(place))
        wanted = {(scope.number, one.name) for scope in self._scopes for one in scope.graph.output}
        for place in reversed(self._places):
            given = dict(self._inputs(place))
            wanted.update(
                self._tensor(place.scope, name)
                for index, name in enumerate(place.node.input)
                if name and index not in given and place.node.op_type not in FORMS
            )
            passed = self._moves(place) and any(tensor in wanted for tensor in self._outputs(place))
            if place.node.op_type not in FORMS and (place.wide or passed):
                wanted.update(given.values())
            if passed and not place.reason and any(tensor in fresh for tensor in given.values()):
                place.reason = "it only moves numbers, from FP32 to FP32"

    def _moves(self, place: _Place) -> bool:
        return place.computes and (place.node.op_type in MOVES or self._copies(place.node))

    def _copies(self, node: onnx.NodeProto) -> bool:
        return node.op_type in _RESIZES and attributes(node).get("mode", b"nearest") == b"nearest"


def floats(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the tensors of a graph that are known to be float32; constants within nodes, too."""
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            yield value.name
    for node in graph.node:
        constant = constant_of(node)
        if constant is not None and constant.data_type == TensorProto.FLOAT:
            yield node.output[0]


def constant_of(node: onnx.NodeProto) -> TensorProto | None:
    """The tensor of a Constant; None for another node."""
    return node.attribute[0].t if node.op_type == "Constant" and node.attribute[0].name == "value" else None


def either(schema: onnx.defs.OpSchema | None, index: int, outputs: bool) -> bool:
    """Whether an input or output of an op may be FP32 or FP16."""
    formal = (schema.outputs if outputs else schema.inputs) if schema else ()
    if schema is None or not formal:
        return False
    kind = formal[min(index, len(formal) - 1)].type_str
    allowed = next(
        (set(one.allowed_type_strs) for one in schema.type_constraints if one.type_param_str == kind), {kind}
    )
    return {_FLOAT, _HALF} <= allowed


def _filled(node: onnx.NodeProto) -> float:
    """The number of a ConstantOfShape."""
    value = attributes(node).get("value")
    return float(numpy_helper.to_array(value).reshape(-1)[0]) if value is not None and any(value.dims) else 0.0


def _beyond(number: float) -> bool:
    """Whether FP16 has another number, or one of fewer digits, in its place."""
    return 0 < abs(number) < SMALLEST or LARGEST < abs(number) < math.inf


def _lost(values: npt.NDArray[Any], least: float) -> str:
    """What FP16 would lose of a constant, or "". Args: least: of Kept._least."""
    most = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if most > LARGEST:
        return f"holds {most:.3g}, and FP16 ends at {LARGEST:.0f}"
    if 0 < least < SMALLEST:
        return f"holds {'nothing above ' if least == most else ''}{least:.3g}, and FP16 has few digits below {SMALLEST:.3g}"
    return ""


def _are_whole(values: npt.NDArray[Any]) -> bool:
    """Whether a constant holds whole numbers, and FP16 has others in their place."""
    whole: Sequence[bool] = values == np.round(values)
    with np.errstate(over="ignore"):
        return bool(np.all(whole)) and bool(np.any(values.astype(np.float16).astype(np.float32) != values))


def _power(base: float, exponent: float) -> float | None:
    try:
        return base**exponent if base > 0 else None
    except OverflowError:
        return None


def _function(op: str, number: float) -> float | None:
    """A function of one number; None for one that is not known, or has no value."""
    try:
        if op in ("Log", "Sqrt") and number <= 0:
            return None
        functions: dict[str, Callable[[float], float]] = {
            "Log": math.log,
            "Sqrt": math.sqrt,
            "Reciprocal": lambda one: 1 / one,
            "Neg": lambda one: -one,
        }
        return functions[op](number)
    except (KeyError, ZeroDivisionError):
        return None
