"""Follows the inputs of a SavedModel's signatures to the ops that take them as an index, and reads the limits from there. Works on protos
alone; nothing is loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.models.savedmodel.limits import (
    NOTHING,
    Claim,
    Dim,
    Found,
    Limit,
    Operation,
    Size,
    Trace,
    Value,
    computed,
    dimension,
    joined,
)

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, tensor_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

# {op: the inputs whose values it passes on}; of all that it has for ().
_MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "BroadcastTo",
            "Gather",
            "GatherNd",
            "GatherV2",
            "Max",
            "Min",
            "MirrorPad",
            "Pad",
            "PadV2",
            "Slice",
            "SparseReshape",
            "SplitV",
            "TensorListFromTensor",
            "TensorListGetItem",
            "TensorListStack",
            "Tile",
            "TopK",
            "TopKV2",
            "Unpack",
            "Unique",
            "UniqueV2",
        ),
        (0,),
    ),
    "Split": (1,),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "Merge": (),
    "DynamicStitch": (),
    "ParallelDynamicStitch": (),
}
# Ops that pass on the values and the shape of their first input.
_SAME = frozenset(
    {
        "Cast",
        "Enter",
        "EnsureShape",
        "Exit",
        "Identity",
        "NextIteration",
        "PreventGradient",
        "ReadVariableOp",
        "RefEnter",
        "RefExit",
        "RefIdentity",
        "RefSwitch",
        "Snapshot",
        "StopGradient",
        "Switch",
    }
)
# Ops that change the values of their first input, but keep its shape; an index stays an index.
_SAME_SHAPE = frozenset(
    {
        "Abs",
        "Ceil",
        "CheckNumerics",
        "ClipByValue",
        "Floor",
        "FloorMod",
        "Maximum",
        "Minimum",
        "Mod",
        "Relu",
        "Reverse",
        "ReverseSequence",
        "ReverseV2",
        "Rint",
        "Roll",
        "Round",
        "TruncateMod",
    }
)
# Their result has the shape of their first input, or the rows of it.
_SHAPED = frozenset(
    {
        "BiasAdd",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "Neg",
        "Relu6",
        "Rsqrt",
        "Selu",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Sqrt",
        "Square",
        "Tanh",
        "FusedBatchNormV3",
    }
)
# Ops of two inputs of which either may be the constant.
_EITHER = ("Maximum", "Minimum")
_ARITHMETIC: dict[str, Operation] = {
    "Add": "add",
    "AddV2": "add",
    "Sub": "sub",
    "Mul": "mul",
    "FloorDiv": "div",
    "RealDiv": "div",
    "Div": "div",
}
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_TABLES = ("HashTable", "HashTableV2")
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "TRTEngineOp": ("segment_func",),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
_CHOOSES = ("If", "StatelessIf", "Case", "StatelessCase")
_INITIALIZERS = ("InitializeTable", "InitializeTableV2", "LookupTableImport", "LookupTableImportV2")
_LOOKUPS = ("LookupTableFind", "LookupTableFindV2")
# Outputs that are not the first one, by name.
_LATER_OUTPUTS = {"idx": 1, "indices": 1, "output_true": 1, "value_index": 1, "count": 2}
# A graph in which calls lead to more nodes is left alone.
_MOST_NODES, _DEEPEST = 500_000, 50
# Constants of more elements are not decoded, and no more keys are kept.
_MOST_ELEMENTS, MOST_KEYS = 4096, 1000


def find(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, dict[str, Limit]]:
    """{signature: {input: its Limit}} of inputs that become an index of something whose size is known."""
    graph_def = meta_graph.graph_def
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    ops = {node.op for body in bodies for node in body}
    if ops.isdisjoint((*_DEMANDS, *_LOOKUPS, "Assert")):
        return {}
    try:
        keys = _Reader(graph_def, {}).tables() if not ops.isdisjoint(_LOOKUPS) else {}
        return {
            name: _Reader(graph_def, keys).limits(definition)
            for name, definition in signatures.definitions(meta_graph).items()
        }
    except _TooLarge:
        return {}


class _TooLarge(Exception):
    """There are too many nodes to follow."""


class _Reader:
    """Follows inputs through a graph and the functions that it calls. Args: keys: {table: its keys}."""

    def __init__(self, graph_def: graph_pb2.GraphDef, keys: Mapping[str, list[str]]) -> None:
        self._nodes, self._functions = list(graph_def.node), graph.library(graph_def)
        self._keys, self._found, self._visited = keys, Found(), 0
        self._tables: dict[str, list[str]] = {}

    def limits(self, signature: meta_graph_pb2.SignatureDef) -> dict[str, Limit]:
        """The Limits of a signature's inputs."""
        fed = {}
        for name, info in signature.inputs.items():
            shape = graph.shape_of(info.tensor_shape)
            dims = (
                None
                if shape is None
                else tuple(Size(name, axis) if dim is None else dim for axis, dim in enumerate(shape))
            )
            fed[_output(info.name)] = Value(traces=(Trace(name),), dims=dims)
        output_nodes = [
            _node(info.name) for info in signature.outputs.values() if info.WhichOneof("encoding") == "name"
        ]
        self._walk(self._nodes, fed, output_nodes, 0)
        return self._found.limits(
            {name for name, info in signature.inputs.items() if "int" in graph.dtype_name(info.dtype)}
        )

    def tables(self) -> dict[str, list[str]]:
        """{table: its keys} of tables with constant keys."""
        self._walk(self._nodes, {}, [node.name for node in self._nodes], 0)
        return self._tables

    def _walk(
        self,
        nodes: Iterable[node_def_pb2.NodeDef],
        known: dict[tuple[str, int], Value],
        wanted: Iterable[str],
        depth: int,
    ) -> dict[tuple[str, int], Value]:
        """Read the nodes that `wanted` ones depend on. Args: known: {(node, output): Value} of what is fed. Returns: the same of all."""
        by_name, known = {node.name: node for node in nodes}, dict(known)
        fed = {name for name, _ in known}
        for name in _in_order(by_name, wanted):
            if name in fed:
                continue
            self._visited += 1
            if self._visited > _MOST_NODES:
                raise _TooLarge
            node = by_name[name]
            inputs = [known.get(_output(source), NOTHING) for source in node.input if not source.startswith("^")]
            for number, value in enumerate(self._outputs(node, inputs, depth)):
                known[name, number] = value
        return known

    def _outputs(self, node: node_def_pb2.NodeDef, inputs: list[Value], depth: int) -> Sequence[Value]:
        called = self._called(node)
        if called and node.op in _CHOOSES and "ssert" in node.name:
            self._found.asserted(inputs[0], node.name)
        if called:
            return self._call(node, called, inputs[1:] if node.op in _CHOOSES else inputs, depth)
        if node.op in _DEMANDS and len(inputs) > 1:
            _DEMANDS[node.op](self._found, node, inputs)
        if node.op in _LOOKUPS and len(inputs) > 1:
            self._found.keys(inputs[1], self._keys.get(inputs[0].of, []), inputs[0].of)
        if inputs and node.op == "Assert":
            self._found.asserted(inputs[0], node.name)
        if node.op in _INITIALIZERS and len(inputs) > 1 and inputs[1].constant is not None:
            self._tables[inputs[0].of] = [_text(key) for key in inputs[1].constant.reshape(-1)[:MOST_KEYS]]
        return _passed(node, inputs)

    def _called(self, node: node_def_pb2.NodeDef) -> list[str]:
        if node.op in self._functions:
            return [node.op]
        values = [node.attr[key] for key in _CALLS.get(node.op, ()) if key in node.attr]
        names = [function.name for value in values for function in (value.list.func or [value.func])]
        return [name for name in names if name in self._functions]

    def _call(
        self, node: node_def_pb2.NodeDef, names: Sequence[str], inputs: Sequence[Value], depth: int
    ) -> Sequence[Value]:
        if depth > _DEEPEST:
            raise _TooLarge
        answers = [self._function(self._functions[name], inputs, depth + 1) for name in names]
        if node.op in ("While", "StatelessWhile"):
            return [
                joined((before, after), before.dims if before.dims == after.dims else None)
                for before, after in zip(inputs, answers[-1], strict=False)
            ]
        return [joined(each, each[0].dims if len(each) == 1 else None) for each in zip(*answers, strict=False)]

    def _function(self, function: function_pb2.FunctionDef, inputs: Sequence[Value], depth: int) -> list[Value]:
        fed = {(arg.name, 0): value for arg, value in zip(function.signature.input_arg, inputs, strict=False)}
        known = self._walk(function.node_def, fed, [node.name for node in function.node_def], depth)
        return [known.get(_output(function.ret[arg.name]), NOTHING) for arg in function.signature.output_arg]


def _in_order(by_name: Mapping[str, node_def_pb2.NodeDef], wanted: Iterable[str]) -> list[str]:
    """Names of the wanted nodes and of all that they depend on, each behind those that it reads. A loop is entered where it begins."""
    order: list[str] = []
    seen: set[str] = set()
    for first in wanted:
        waiting = [(first, False)]
        while waiting:
            name, done = waiting.pop()
            if done:
                order.append(name)
            elif name not in seen and name in by_name:
                seen.add(name)
                waiting.append((name, True))
                waiting += [(_node(source), False) for source in reversed(by_name[name].input)]
    return order


def _node(source: str) -> str:
    return source.removeprefix("^").partition(":")[0]


def _output(source: str) -> tuple[str, int]:
    """(node, number of its output) of "node", "node:1" and, in a function, "node:output:1"."""
    name, *rest = source.split(":")
    if not rest:
        return name, 0
    number = int(rest[-1]) if rest[-1].isdigit() else 0
    return name, _LATER_OUTPUTS.get(rest[0], 0) + number if len(rest) > 1 else number


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _passed(node: node_def_pb2.NodeDef, inputs: list[Value]) -> Sequence[Value]:
    """The outputs of a node that is no call."""
    first = inputs[0] if inputs else NOTHING
    if node.op == "Const":
        return [_constant(graph.attribute(node, "value").tensor, node.name)]
    if node.op in _VARIABLES or node.op in _TABLES:
        shape = graph.shape_of(graph.attribute(node, "shape").shape) if "shape" in node.attr else None
        return [Value(dims=shape, of=node.name)]
    if node.op == "IdentityN":
        return inputs
    if node.op in _SAME:
        return [first] * 2
    if node.op in _SAME_SHAPE:
        return [joined(inputs, first.dims) if node.op in _EITHER else first.moved(first.dims)]
    if node.op in _SHAPED:
        return [Value(dims=first.dims)]
    if node.op in _ARITHMETIC and len(inputs) == 2:
        return [computed(_ARITHMETIC[node.op], *inputs)]
    return _SPECIAL[node.op](node, inputs) if node.op in _SPECIAL and inputs else _moved(node, inputs)


def _moved(node: node_def_pb2.NodeDef, inputs: list[Value]) -> Sequence[Value]:
    if node.op not in _MOVES:
        return []
    values = [inputs[number] for number in _MOVES[node.op] if number < len(inputs)] if _MOVES[node.op] else inputs
    value = joined(values)
    # Each output of these has the values of the same input.
    if node.op not in ("Split", "SplitV", "Unpack"):
        return [value]
    return [value] * max(1, graph.attribute(node, "num_split").i, graph.attribute(node, "num").i)


def _constant(tensor: tensor_pb2.TensorProto, name: str) -> Value:
    shape = graph.shape_of(tensor.tensor_shape)
    count = int(np.prod([dim or 0 for dim in shape or ()], dtype=np.int64))
    return Value(
        dims=shape, constant=_decoded(tensor, shape or (), count) if count <= _MOST_ELEMENTS else None, of=name
    )


def _decoded(tensor: tensor_pb2.TensorProto, shape: Sequence[int | None], count: int) -> npt.NDArray[Any] | None:
    """The array of a TensorProto of numbers or strings, None for other types."""
    dtype = graph.dtype_name(tensor.dtype)
    fields = {
        "string": "string_val",
        "int32": "int_val",
        "int16": "int_val",
        "int8": "int_val",
        "uint8": "int_val",
        "int64": "int64_val",
        "float32": "float_val",
        "float64": "double_val",
    }
    if dtype not in fields:
        return None
    kind: Any = object if dtype == "string" else np.dtype(dtype)
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, kind).reshape(shape)  # type: ignore[arg-type]
    values = list(getattr(tensor, fields[dtype]))
    array = np.empty(count, kind)
    if count and values:
        # A shorter list is filled up with its last value.
        array[:] = (values + values[-1:] * count)[:count]
    return array.reshape(shape) if values or not count else None  # type: ignore[arg-type]


def _matmul(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    dims = inputs[0].dims
    turned = graph.attribute(node, "transpose_a").b or graph.attribute(node, "adj_x").b
    return [Value(dims=(*dims[:-1], None) if dims and not turned else None)]


def _compared(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    """Handle a comparison that says that one operand is less than a constant."""
    small, large = (inputs[1], inputs[0]) if node.op.startswith("Greater") else (inputs[0], inputs[1])
    if large.constant is None or large.constant.size != 1 or large.constant.dtype.kind not in "iuf":
        return [Value(dims=small.dims)]
    end = float(large.constant.reshape(-1)[0])
    if not math.isfinite(end):
        return [Value(dims=small.dims)]
    below = math.floor(end) + 1 if node.op.endswith("Equal") else math.ceil(end)
    return [Value(dims=small.dims, claims=(Claim(small.traces, below),))]


def _both(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    """All and LogicalAnd: all that the operands claim."""
    return [Value(claims=tuple(claim for one in inputs for claim in one.claims))]


def _transposed(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    dims, order = inputs[0].dims, inputs[1].elements() if len(inputs) > 1 else None
    known = dims and order and len(dims) == len(order) and all(isinstance(one, int) for one in order)
    return [inputs[0].moved(tuple(dims[one] for one in order) if known else None)]  # type: ignore[index, union-attr]


def _reshaped(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    sizes = inputs[1].elements() if len(inputs) > 1 else None
    if sizes is not None and len(sizes) == 1 and inputs[0].dims is not None and len(inputs[0].dims) <= 1:
        return [inputs[0]]
    dims = None if sizes is None else tuple(None if size == -1 else size for size in sizes)
    return [Value(traces=inputs[0].traces, dims=dims, sizes=inputs[0].elements(), of=inputs[0].of)]


def _shape(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    return [Value(sizes=inputs[0].dims)]


def _sliced(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    """StridedSlice: of sizes it takes one or some, of other tensors some values."""
    sizes = inputs[0].elements()
    bounds = [bound.constant for bound in inputs[1:4]]
    if sizes is None or len(bounds) < 3 or any(bound is None or bound.size != 1 for bound in bounds):
        return [inputs[0].moved()]
    begin, end, step = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    if graph.attribute(node, "shrink_axis_mask").i:
        return [Value(traces=inputs[0].traces, dims=(), sizes=sizes[begin : begin + 1 or None])]
    chosen = slice(
        None if graph.attribute(node, "begin_mask").i else begin,
        None if graph.attribute(node, "end_mask").i else end,
        step,
    )
    return [Value(traces=inputs[0].traces, sizes=sizes[chosen])]


def _gathered(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    """Gather: of sizes it takes some; the rows of a tensor are as many as there are indices."""
    sizes, places = inputs[0].elements(), inputs[1].constant if len(inputs) > 1 else None
    if (
        sizes is not None
        and places is not None
        and places.size
        and places.dtype.kind in "iu"
        and places.max() < len(sizes)
    ):
        return [Value(sizes=tuple(sizes[int(place)] for place in places.reshape(-1)))]
    return [inputs[0].moved()]


def _concatenated(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    values, axis = (inputs[1:], inputs[0]) if node.op == "Concat" else (inputs[:-1], inputs[-1])
    sizes = [value.elements() for value in values]
    if all(size is not None for size in sizes) and axis.constant is not None:
        return [Value(sizes=tuple(size for listed in sizes for size in listed or ()))]
    return [joined(values, _stacked([value.dims for value in values], axis.constant))]


def _stacked(dims: Sequence[tuple[Dim, ...] | None], axis: npt.NDArray[Any] | None) -> tuple[Dim, ...] | None:
    if (
        axis is None
        or not dims
        or dims[0] is None
        or any(dim is None or len(dim) != len(dims[0]) for dim in dims)
        or not len(dims[0])
    ):
        return None
    place = int(axis.reshape(-1)[0]) % len(dims[0])
    lengths = [dim[place] for dim in dims if dim is not None]
    total: Dim = (
        sum(length for length in lengths if isinstance(length, int))
        if all(isinstance(length, int) for length in lengths)
        else None
    )
    return tuple(total if number == place else dim for number, dim in enumerate(dims[0]))


def _packed(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    elements = [one.elements() for one in inputs]
    if all(one is not None and len(one) == 1 for one in elements):
        return [Value(traces=joined(inputs).traces, sizes=tuple(one[0] for one in elements if one))]
    return [joined(inputs)]


def _expanded(node: node_def_pb2.NodeDef, inputs: list[Value]) -> list[Value]:
    return [Value(traces=inputs[0].traces, constant=inputs[0].constant, sizes=inputs[0].elements(), of=inputs[0].of)]


_SPECIAL: dict[str, Callable[[node_def_pb2.NodeDef, list[Value]], Sequence[Value]]] = {
    "MatMul": _matmul,
    "BatchMatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "Transpose": _transposed,
    "Reshape": _reshaped,
    "Shape": _shape,
    "StridedSlice": _sliced,
    "Gather": _gathered,
    "GatherV2": _gathered,
    "Concat": _concatenated,
    "ConcatV2": _concatenated,
    **dict.fromkeys(("Less", "LessEqual", "Greater", "GreaterEqual"), _compared),
    **dict.fromkeys(("All", "LogicalAnd"), _both),
    "Pack": _packed,
    "ExpandDims": _expanded,
    "Squeeze": _expanded,
}


def _axis(value: Value | None) -> int:
    return (
        int(value.constant.reshape(-1)[0])
        if value is not None and value.constant is not None and value.constant.size
        else 0
    )


def _smallest(dims: tuple[Dim, ...] | None) -> Dim:
    """A size within which each coordinate is in range."""
    known = [dim for dim in dims or () if isinstance(dim, int)]
    return min(known) if dims and len(known) == len(dims) else None


def _gather(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    axis = (
        _axis(inputs[2])
        if len(inputs) > 2
        else graph.attribute(node, "batch_dims").i
        if node.op == "ResourceGather"
        else 0
    )
    found.index(inputs[1], dimension(inputs[0].dims, axis), _named(inputs[0], node))


def _gather_nd(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    dims = inputs[0].dims
    deep = dimension(inputs[1].dims, -1)
    found.index(inputs[1], _smallest(dims[:deep] if dims and isinstance(deep, int) else dims), _named(inputs[0], node))


def _depth(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    """OneHot and bin counts: the number of classes is the second input."""
    found.index(inputs[0], _only(inputs[1]), node.name)


def _only(value: Value) -> Dim:
    elements = value.elements()
    return elements[0] if elements and len(elements) == 1 else None


def _placed(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    """Coordinates in a tensor whose shape is an input."""
    shape = inputs[1 if node.op == "SparseToDense" else 2] if len(inputs) > 2 else NOTHING
    found.index(inputs[0], _smallest(shape.elements()), node.name)


def _updated(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    found.index(inputs[1], dimension(inputs[0].dims, 0), _named(inputs[0], node))


def _segments(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    found.index(inputs[1], _only(inputs[2]) if len(inputs) > 2 else None, node.name)


def _rising(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    """Segment numbers that never fall; as many segments as there are rows is the most that they say."""
    sparse = node.op.startswith("Sparse")
    if sparse:
        found.index(inputs[1], dimension(inputs[0].dims, 0), _named(inputs[0], node))
    ids = inputs[2] if sparse and len(inputs) > 2 else inputs[1]
    found.index(ids, dimension(ids.dims, 0), node.name, rising=True)


def _lengths(found: Found, node: node_def_pb2.NodeDef, inputs: list[Value]) -> None:
    """Lengths of rows: at most as long as the tensor."""
    axis = graph.attribute(node, "seq_dim").i if node.op == "ReverseSequence" else 0
    place = 2 if node.op == "CTCLoss" or node.op == "CTCLossV2" else 1
    lengths = inputs[3] if place == 2 and len(inputs) > 3 else inputs[1]
    found.index(lengths, dimension(inputs[0].dims, axis), node.name, low=1, plus=1)


def _named(table: Value, node: node_def_pb2.NodeDef) -> str:
    """The table's name, else the name of the op that takes the index."""
    return table.of or node.name


_DEMANDS: dict[str, Callable[[Found, node_def_pb2.NodeDef, list[Value]], None]] = {
    **dict.fromkeys(("Gather", "GatherV2", "ResourceGather"), _gather),
    **dict.fromkeys(("GatherNd", "ResourceGatherNd"), _gather_nd),
    **dict.fromkeys(("OneHot", "Bincount", "DenseBincount"), _depth),
    **dict.fromkeys(("SparseToDense", "ScatterNd"), _placed),
    **dict.fromkeys(
        ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"),
        _updated,
    ),
    **dict.fromkeys(
        ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"), _segments
    ),
    **dict.fromkeys(
        (
            "SegmentSum",
            "SegmentMean",
            "SegmentMax",
            "SegmentMin",
            "SegmentProd",
            "SegmentSumV2",
            "SegmentMaxV2",
            "SegmentMinV2",
            "SegmentProdV2",
            "SparseSegmentSum",
            "SparseSegmentMean",
            "SparseSegmentSqrtN",
        ),
        _rising,
    ),
    **dict.fromkeys(("ReverseSequence", "CTCLoss", "CTCLossV2", "CTCGreedyDecoder", "CTCBeamSearchDecoder"), _lengths),
}
