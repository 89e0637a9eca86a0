"""Follows the inputs of an ONNX file to the ops that take them as an index, and reads the limits from there: from the file's bytes, as
`file` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.wire import fields, varints
from tftrt_tools.models.kinds.onnx import file
from tftrt_tools.models.savedmodel.limits import (
    NOTHING,
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
from tftrt_tools.models.savedmodel.shapes import InputSpec

# {op: the inputs whose values it passes on}; of all that it has for ().
_MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
            "Pad",
            "ReduceMax",
            "ReduceMin",
            "Slice",
            "Split",
            "Tile",
            "TopK",
            "Unique",
        ),
        (0,),
    ),
    "Where": (1, 2),
    "Concat": (),
}
# Ops that pass on the values and the shape of their first input.
_SAME = frozenset({"Cast", "CastLike", "DequantizeLinear", "Identity", "QuantizeLinear"})
# Ops that change the values of their first input, but keep its shape; an index stays an index.
_SAME_SHAPE = frozenset({"Abs", "Ceil", "Clip", "Floor", "Mod", "Relu", "ReverseSequence", "Round"})
# Ops whose result has the shape of their first input.
_SHAPED = frozenset(
    {
        "BatchNormalization",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "Neg",
        "PRelu",
        "Selu",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Sqrt",
        "Tanh",
    }
)
_ARITHMETIC: dict[str, Operation] = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_RECURRENT = ("LSTM", "GRU", "RNN")
_DEEPEST, _MOST_NODES, _MOST_ELEMENTS = 50, 500_000, 4096
# TensorProto.DataType: (NumPy's type, number of the field with its values).
_NUMBERS: dict[int, tuple[Any, int]] = {1: (np.float32, 4), 6: (np.int32, 5), 7: (np.int64, 7), 11: (np.float64, 10)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a graph. numbers: its integer attributes; lists: those of several integers; tensors, graphs: the others, raw."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, int]
    lists: Mapping[str, Sequence[int]]
    tensors: Mapping[str, memoryview]
    graphs: Mapping[str, memoryview]


class _TooLarge(Exception):
    """The graph has too many nodes to follow."""


def find(path: str, inputs: Sequence[InputSpec]) -> dict[str, Limit]:
    """{input: its Limit} of inputs that become an index of something whose size is known. Args: inputs: of the file."""
    try:
        with file.opened(path) as model:
            return _Reader(model).limits(inputs)
    except (errors.TftrtError, _TooLarge, ValueError, IndexError):
        # Whoever runs a damaged file reports it.
        return {}


def limited(path: str, inputs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """The inputs, with their limits, and their places: a file has them in order."""
    found = find(path, inputs)
    return tuple(one.knowing(found.get(one.name), place) for place, one in enumerate(inputs))


class _Reader:
    """Follows inputs through the graph of a file, and the graphs and functions in it."""

    def __init__(self, model: file.Fields) -> None:
        self._graph = file.only(model, 7)
        self._functions = {
            (file.text(function, 10), file.text(function, 1)): function
            for function in map(file.fields_of, model.get(25, ()))
        }
        self._found, self._visited = Found(), 0

    def limits(self, inputs: Sequence[InputSpec]) -> dict[str, Limit]:
        """As `find`."""
        values: dict[str, Value] = {}
        for tensor in inputs:
            dims = (
                None
                if tensor.shape is None
                else tuple(Size(tensor.name, axis) if dim is None else dim for axis, dim in enumerate(tensor.shape))
            )
            values[tensor.name] = Value(traces=(Trace(tensor.name),), dims=dims)
        self._walk(self._graph, values, 0)
        return self._found.limits()

    def _walk(self, graph: file.Fields, values: dict[str, Value], depth: int) -> None:
        """Read a graph's nodes, which stand in order. Args: values: {name: Value} of the tensors from outside; gets those of the nodes."""
        if depth > _DEEPEST:
            raise _TooLarge
        for raw in graph.get(5, ()):
            name, value = _tensor(raw)
            values.setdefault(name, value)
        self._nodes(graph.get(1, ()), values, depth)

    def _nodes(self, nodes: Iterable[memoryview], values: dict[str, Value], depth: int) -> None:
        for raw in nodes:
            self._visited += 1
            if self._visited > _MOST_NODES:
                raise _TooLarge
            node, domain = _node(raw)
            inputs = [values.get(name, NOTHING) for name in node.inputs]
            function = self._functions.get((domain, node.op))
            answers = self._called(function, inputs, depth) if function else self._within(node, inputs, values, depth)
            values.update(zip(node.outputs, answers, strict=False))

    def _called(self, function: file.Fields, inputs: Sequence[Value], depth: int) -> list[Value]:
        inner = dict(zip((str(one, "utf-8") for one in function.get(4, ())), inputs, strict=False))
        self._nodes(function.get(7, ()), inner, depth + 1)
        return [inner.get(str(one, "utf-8"), NOTHING) for one in function.get(5, ())]

    def _within(self, node: Node, inputs: list[Value], values: Mapping[str, Value], depth: int) -> Sequence[Value]:
        if node.op in _DEMANDS and len(inputs) > 1:
            _DEMANDS[node.op](self._found, node, inputs)
        if not node.graphs:
            return _passed(node, inputs)
        # A loop's graph begins with the number of the round and the condition; the graphs of the others see what is around them.
        fed = [NOTHING, NOTHING, *inputs[2:]] if node.op == "Loop" else inputs if node.op == "Scan" else []
        answers: list[list[Value]] = []
        for raw in node.graphs.values():
            graph, inner = file.fields_of(raw), dict(values)
            inner.update(
                zip((file.text(tensor, 1) for tensor in map(file.fields_of, graph.get(11, ()))), fed, strict=False)
            )
            self._walk(graph, inner, depth + 1)
            answers.append(
                [inner.get(file.text(tensor, 1), NOTHING) for tensor in map(file.fields_of, graph.get(12, ()))]
            )
        return [
            joined(each)
            for each in zip(*(answer[1:] if node.op == "Loop" else answer for answer in answers), strict=False)
        ]


def _node(raw: memoryview) -> tuple[Node, str]:
    """(the Node, its domain)."""
    node = file.fields_of(raw)
    numbers: dict[str, int] = {}
    lists: dict[str, Sequence[int]] = {}
    tensors: dict[str, memoryview] = {}
    graphs: dict[str, memoryview] = {}
    for attribute in map(file.fields_of, node.get(5, ())):
        name = file.text(attribute, 1)
        if -3 in attribute:
            numbers[name] = file.number(attribute, 3)
        if 8 in attribute or -8 in attribute:
            lists[name] = _whole(attribute, 8)
        if 5 in attribute:
            tensors[name] = attribute[5][-1]
        for place in (6, 11):
            graphs |= {f"{name}{number or ''}": graph for number, graph in enumerate(attribute.get(place, ()))}
    inputs, outputs = (tuple(str(text, "utf-8") for text in node.get(field, ())) for field in (1, 2))
    parsed = Node(
        op=file.text(node, 4),
        name=file.text(node, 3),
        inputs=inputs,
        outputs=outputs,
        numbers=numbers,
        lists=lists,
        tensors=tensors,
        graphs=graphs,
    )
    return parsed, file.text(node, 7)


def _whole(message: file.Fields, field: int) -> list[int]:
    """The integers of a repeated field, single or packed."""
    packed = [int(one) for raw in message.get(field, ()) for one in varints.decode(raw)]
    return [fields.signed(one) for one in (*message.get(-field, ()), *packed)]


def _tensor(raw: memoryview) -> tuple[str, Value]:
    """(the name, the Value) of a constant tensor."""
    tensor = file.fields_of(raw)
    name, dims = file.text(tensor, 8), tuple(file.dims(tensor))
    count = int(np.prod(dims, dtype=np.int64))
    small = count <= _MOST_ELEMENTS and file.number(tensor, 14) != 1
    return name, Value(dims=dims, constant=_decoded(tensor, dims, count) if small else None, of=name)


def _decoded(tensor: file.Fields, dims: Sequence[int], count: int) -> npt.NDArray[Any] | None:
    """The array of a tensor of the usual numbers, None for other types."""
    kind, field = _NUMBERS.get(file.number(tensor, 2), (None, 0))
    if kind is None:
        return None
    if 9 in tensor:
        values = np.frombuffer(fields.joined(tensor[9]), kind)
    elif kind in (np.float32, np.float64):
        values = np.frombuffer(fields.joined(tensor[field]), kind) if field in tensor else np.empty(0, kind)
    else:
        values = np.array(_whole(tensor, field), kind)
    return values.reshape(dims) if values.size == count else None


def _passed(node: Node, inputs: list[Value]) -> Sequence[Value]:
    """The outputs of a node without graphs."""
    first = inputs[0] if inputs else NOTHING
    if node.op == "Constant":
        return [_constant(node)]
    if node.op in _SAME:
        return [first]
    if node.op in ("Min", "Max") or node.op in _SAME_SHAPE:
        return [joined(inputs if node.op in ("Min", "Max") else inputs[:1], first.dims)]
    if node.op in _SHAPED:
        return [Value(dims=first.dims)]
    if node.op in _ARITHMETIC and len(inputs) == 2:
        return [computed(_ARITHMETIC[node.op], *inputs)]
    if node.op in _SPECIAL and inputs:
        return [_SPECIAL[node.op](node, inputs)]
    if node.op not in _MOVES:
        return []
    return [
        joined([inputs[place] for place in _MOVES[node.op] if place < len(inputs)] if _MOVES[node.op] else inputs)
    ] * len(node.outputs)


def _constant(node: Node) -> Value:
    if "value" in node.tensors:
        return dataclasses.replace(_tensor(node.tensors["value"])[1], of=node.outputs[0] if node.outputs else node.name)
    if "value_int" in node.numbers:
        return Value(dims=(), constant=np.array(node.numbers["value_int"]))
    if "value_ints" in node.lists:
        return Value(dims=(len(node.lists["value_ints"]),), constant=np.array(node.lists["value_ints"]))
    return NOTHING


def _transposed(node: Node, inputs: list[Value]) -> Value:
    dims, order = inputs[0].dims, node.lists.get("perm")
    if dims is None or order is not None and sorted(order) != list(range(len(dims))):
        return inputs[0].moved()
    return inputs[0].moved(tuple(dims[axis] for axis in order or reversed(range(len(dims)))))


def _product(node: Node, inputs: list[Value]) -> Value:
    dims = inputs[0].dims
    return Value(dims=(*dims[:-1], None) if dims and not node.numbers.get("transA") else None)


def _shape(node: Node, inputs: list[Value]) -> Value:
    dims = inputs[0].dims
    return Value(
        sizes=None if dims is None else dims[node.numbers.get("start", 0) : node.numbers.get("end", len(dims))]
    )


def _gathered(node: Node, inputs: list[Value]) -> Value:
    """Gather: it takes some of the sizes."""
    sizes, places = inputs[0].elements(), inputs[1].constant if len(inputs) > 1 else None
    whole = places is not None and places.dtype.kind in "iu"
    if (
        sizes is not None
        and places is not None
        and whole
        and all(-len(sizes) <= place < len(sizes) for place in places.flat)
    ):
        return Value(sizes=tuple(sizes[int(place)] for place in places.flat))
    return inputs[0].moved()


def _sliced(node: Node, inputs: list[Value]) -> Value:
    sizes = inputs[0].elements()
    bounds = [bound.constant for bound in inputs[1:3]]
    if sizes is None or len(bounds) < 2 or len(inputs) > 4 or any(bound is None or bound.size != 1 for bound in bounds):
        return inputs[0].moved()
    begin, end = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
    return Value(traces=inputs[0].traces, sizes=sizes[begin:end])


def _reshaped(node: Node, inputs: list[Value]) -> Value:
    """Reshape, Squeeze and Unsqueeze: sizes stay sizes."""
    sizes = inputs[1].elements() if node.op == "Reshape" and len(inputs) > 1 else None
    dims = None if sizes is None else tuple(None if size in (-1, 0) else size for size in sizes)
    return Value(
        traces=inputs[0].traces,
        dims=dims,
        constant=inputs[0].constant if node.op != "Reshape" else None,
        sizes=inputs[0].elements(),
        of=inputs[0].of,
    )


def _concatenated(node: Node, inputs: list[Value]) -> Value:
    elements = [one.elements() for one in inputs]
    if all(one is not None for one in elements):
        return Value(sizes=tuple(size for one in elements for size in one or ()))
    return joined(inputs)


_SPECIAL: dict[str, Callable[[Node, list[Value]], Value]] = {
    "Transpose": _transposed,
    "MatMul": _product,
    "Gemm": _product,
    "Shape": _shape,
    "Gather": _gathered,
    "Slice": _sliced,
    "Reshape": _reshaped,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Concat": _concatenated,
}


def _gather(found: Found, node: Node, inputs: list[Value]) -> None:
    found.index(inputs[1], dimension(inputs[0].dims, node.numbers.get("axis", 0)), inputs[0].of or node.name or node.op)


def _gather_nd(found: Found, node: Node, inputs: list[Value]) -> None:
    """GatherND and ScatterND: within the smallest size each coordinate is in range."""
    dims, deep = inputs[0].dims, dimension(inputs[1].dims, -1)
    reached = dims[:deep] if dims and isinstance(deep, int) else dims
    lengths = [dim for dim in reached or () if isinstance(dim, int)]
    sizes = [dim for dim in reached or () if isinstance(dim, Size)]
    of = inputs[0].of or node.name or node.op
    if lengths and len(lengths) + len(sizes) == len(reached or ()):
        found.index(inputs[1], min(lengths), of)
    if reached and None not in reached:
        for size in sizes:
            found.index(inputs[1], size, of)


def _one_hot(found: Found, node: Node, inputs: list[Value]) -> None:
    depth = inputs[1].elements()
    found.index(inputs[0], depth[0] if depth and len(depth) == 1 else None, node.name or node.op)


def _lengths(found: Found, node: Node, inputs: list[Value]) -> None:
    """Lengths of rows are at most the size of the tensor."""
    recurrent = node.op in _RECURRENT
    lengths = (inputs[4] if len(inputs) > 4 else NOTHING) if recurrent else inputs[1]
    axis = node.numbers.get("layout", 0) if recurrent else node.numbers.get("time_axis", 0)
    found.index(lengths, dimension(inputs[0].dims, axis), node.name or node.op, low=1, plus=1)


def _embedded(found: Found, node: Node, inputs: list[Value]) -> None:
    """ONNX Runtime's EmbedLayerNormalization: words, segments, and the two tables."""
    for ids, table in ((0, 2), (1, 4), (8, 3)):
        if max(ids, table) < len(inputs):
            found.index(inputs[ids], dimension(inputs[table].dims, 0), inputs[table].of or node.name)


_DEMANDS: dict[str, Callable[[Found, Node, list[Value]], None]] = {
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements", "Scatter"), _gather),
    **dict.fromkeys(("GatherND", "ScatterND"), _gather_nd),
    "OneHot": _one_hot,
    "EmbedLayerNormalization": _embedded,
    **dict.fromkeys(("ReverseSequence", *_RECURRENT), _lengths),
}
