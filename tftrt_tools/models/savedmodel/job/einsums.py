"""Einsum as TF-TRT takes it. With dynamic shapes it takes two operands, but no ellipsis; in implicit batch mode it takes none.

An ellipsis becomes letters, where the graph proves that it stands for the same sizes in each operand: letters repeat nothing. In implicit
batch mode one product becomes

    result = transposed([rows, batch…, left, summed] * [rows, batch…, summed, right])

where letters of a kind are one axis, and the first axis of data and result are the rows. Weights have no rows, and are transposed here.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import added_nodes, control_flow, dimensions, equation, folding, inferred

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

    from tftrt_tools.models.savedmodel.job.dimensions import Dimension
    from tftrt_tools.models.savedmodel.job.equation import Equation

OP = "Einsum"
_FLOAT, _INT32 = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
# Products of matrices, of which BatchMatMulV2 repeats the other axes as an ellipsis does.
_PRODUCT = re.compile(r"\.\.\.([a-zA-Z])([a-zA-Z]),\.\.\.([a-zA-Z])([a-zA-Z])->\.\.\.([a-zA-Z])([a-zA-Z])")


def rewrite(
    graph_def: graph_pb2.GraphDef,
    kept: Container[str] = frozenset(),
    explicit: bool = True,
    room: int = 1 << 31,
    fetched: Container[str] = frozenset(),
) -> tuple[str, ...]:
    """Write in place what TF-TRT refuses; what is inside functions and loops stays.

    Args: graph_def: frozen. kept: names of nodes to leave as they are. explicit: for explicit batch mode. room: the bytes by which the
      weights may grow. fetched: names of nodes that the graph returns. Returns: the names of those that were written.
    """
    sites = [
        node
        for node in graph_def.node
        if node.op == OP
        and node.name not in kept
        and node.attr["T"].type == _FLOAT
        and (not explicit or equation.ELLIPSIS in _text(node))
    ]
    if not sites:
        return ()
    shapes, loops, written = inferred.shapes(graph_def), control_flow.in_loops(graph_def), []
    nodes = {node.name: node for node in graph_def.node}
    writer = _Writer(added_nodes.Writer(graph_def, nodes), nodes, _Weights(graph_def, nodes, room, fetched))
    for node in sites:
        op = shapes.get_operation_by_name(node.name)
        if node.name not in loops and (writer.explicit(node, op) if explicit else writer.implicit(node, op)):
            written.append(node.name)
    return tuple(written)


def reason(node: node_def_pb2.NodeDef, explicit: bool) -> str:
    """Why one stays in TensorFlow, "" where TF-TRT may take it."""
    if not explicit:
        return "TF-TRT takes no Einsum in implicit batch mode; one product of known sizes, with the rows in front, becomes BatchMatMulV2"
    if equation.ELLIPSIS in _text(node):
        return "TF-TRT takes no Einsum with an ellipsis; letters stand for it where its sizes are provably the same in both operands"
    letters = re.split(",|->", _text(node))
    if any(len(set(one)) < len(one) for one in letters):
        return "TF-TRT takes no Einsum with a letter twice in one operand"
    return ""


def _text(node: node_def_pb2.NodeDef) -> str:
    text: str = node.attr["equation"].s.decode().replace(" ", "")
    return text


def _spelled(text: str, op: tf.Operation) -> str | None:
    """An equation with letters for its ellipses, None where these may stand for different sizes."""
    ranks = [operand.shape.rank for operand in op.inputs]
    found = None if None in ranks else equation.spelled(text, ranks)
    if found is None:
        return None
    spelled, counts = found
    sizes = []
    for operand, letters, count in zip(op.inputs, text.split("->")[0].split(","), counts, strict=True):
        if count:
            begin = letters.index(equation.ELLIPSIS)
            sizes.append([dimensions.size_of(operand, axis) for axis in range(begin, begin + count)])
    return spelled if all(one == sizes[0] for one in sizes) else None


class _Writer:
    """Writes the nodes of one graph; the result of each keeps its name."""

    def __init__(self, writer: added_nodes.Writer, nodes: dict[str, node_def_pb2.NodeDef], weights: _Weights) -> None:
        self._writer, self._nodes, self._weights = writer, nodes, weights

    def explicit(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write one with an ellipsis. Returns: whether it can be written."""
        text = _text(node)
        spelled = _spelled(text, op)
        if spelled is not None:
            node.attr["equation"].s = spelled.encode()
            return True
        match = _PRODUCT.fullmatch(text)
        if match is None:
            return False
        rows, columns, turned = match.group(1, 2), match.group(3, 4), match.group(5, 6)
        (summed,) = set(rows) & set(columns) - set(turned) or ("",)
        if not summed or len(set(rows)) != 2 or len(set(columns)) != 2:
            return False
        (left,), (right,) = set(rows) - {summed}, set(columns) - {summed}
        if left == right or turned != (left, right):
            return False
        self._product(node, rows[0] == summed, columns[1] == summed)
        return True

    def implicit(self, node: node_def_pb2.NodeDef, op: tf.Operation) -> bool:
        """Write one product, for implicit batch mode. Returns: whether it can be written."""
        spelled = _spelled(_text(node), op) if len(op.inputs) == 2 else None
        one = equation.parsed(spelled) if spelled is not None else None
        if one is None:
            return False
        operands = [
            _Operand(
                source=source, weights=folding.value(source, self._nodes, folding.FILTERS), shape=dimensions.of(tensor)
            )
            for source, tensor in zip(node.input[:2], op.inputs, strict=True)
        ]
        if operands[0].weights is not None:
            one, operands = one.turned(), operands[::-1]
        plan = _plan(one, *operands)
        if plan is None:
            return False
        if plan.weights is None:
            second = self._grouped(f"{node.name}/second", operands[1].source, one.second, plan.second)
        else:
            order = [one.second.index(letter) for letter in one.batch + one.summed + one.right if letter in one.second]
            constant = self._weights.of(f"{node.name}/weights", operands[1].source, plan.weights, order)
            if constant is None:
                return False
            second = constant
        first = self._grouped(f"{node.name}/first", operands[0].source, one.first, plan.first)
        name = f"{node.name}/product"
        if len(plan.first.letters) > 2:
            source = self._writer.add("BatchMatMulV2", name, [first, second], T=_FLOAT)
            source.attr["adj_x"].b = source.attr["adj_y"].b = False
        else:
            source = self._writer.add("MatMul", name, [first, second], T=_FLOAT)
            source.attr["transpose_a"].b = source.attr["transpose_b"].b = False
        added_nodes.become(node, "Identity", [self._apart(node.name, source.name, plan, one.result)], T=_FLOAT)
        if plan.weights is not None:
            self._weights.drop(operands[1].source)
        return True

    def _product(self, node: node_def_pb2.NodeDef, turned_first: bool, turned_second: bool) -> None:
        added_nodes.become(node, "BatchMatMulV2", list(node.input[:2]), T=_FLOAT)
        node.attr["adj_x"].b, node.attr["adj_y"].b = turned_first, turned_second

    def _grouped(self, name: str, source: str, letters: str, groups: _Groups) -> str:
        """An operand with one axis for each group of letters. Args: letters: of its axes."""
        source = self._ordered(name, source, letters, "".join(groups.letters))
        return source if groups.plain else self._shaped(f"{name}/grouped", source, groups.sizes)

    def _apart(self, name: str, source: str, plan: _Plan, letters: str) -> str:
        """The product with one axis for each letter, in the order of the result."""
        groups = plan.product
        if not groups.plain:
            sizes = [-1, *(groups.known[letter] for letter in "".join(groups.letters)[1:])]
            source = self._shaped(f"{name}/apart", source, sizes)
        return self._ordered(f"{name}/result", source, "".join(groups.letters), letters)

    def _ordered(self, name: str, source: str, letters: str, wanted: str) -> str:
        if letters == wanted:
            return source
        order = np.array([letters.index(letter) for letter in wanted], np.int32)
        sources = [source, self._writer.constant(f"{name}/order", order)]
        result: str = self._writer.add("Transpose", f"{name}/ordered", sources, T=_FLOAT, Tperm=_INT32).name
        return result

    def _shaped(self, name: str, source: str, sizes: Sequence[int]) -> str:
        sources = [source, self._writer.constant(f"{name}/sizes", np.array(sizes, np.int32))]
        result: str = self._writer.add("Reshape", name, sources, T=_FLOAT, Tshape=_INT32).name
        return result


class _Weights:
    """The constants that come into a graph: those of several products are one, and what nobody reads any more goes. A graph ends at 2 GiB,
    and may consist of such weights."""

    def __init__(
        self, graph_def: graph_pb2.GraphDef, nodes: dict[str, node_def_pb2.NodeDef], room: int, fetched: Container[str]
    ) -> None:
        """Args: as of `rewrite`. nodes: {name: node} of the graph."""
        self._graph_def, self._nodes, self._room, self._fetched = graph_def, nodes, room, fetched
        self._written: dict[tuple[str, tuple[int, ...], tuple[int, ...]], str] = {}

    def of(self, name: str, source: str, values: npt.NDArray[Any], order: Sequence[int]) -> str | None:
        """A constant, new or of before; None where there is no room. Args: source: what `values` were, with axes in another `order`."""
        key = source, tuple(order), values.shape
        if key not in self._written:
            if values.nbytes > self._room:
                return None
            self._written[key] = added_nodes.constant(name, values, self._graph_def, self._nodes)
            self._room -= values.nbytes
        return self._written[key]

    def drop(self, source: str) -> None:
        """Remove what computes a tensor, as far as nothing else needs it."""
        readers = collections.Counter(folding.name_of(one) for node in self._graph_def.node for one in node.input)
        gone, waiting = set[str](), [folding.name_of(source)]
        while waiting:
            node = self._nodes[waiting.pop()]
            if readers[node.name] or node.name in self._fetched or node.op not in (*folding.FILTERS, "Const"):
                continue
            gone.add(node.name)
            self._room += node.ByteSize() if node.op == "Const" else 0
            before = [folding.name_of(one) for one in node.input]
            readers.subtract(before)
            waiting += set(before)
        for place in reversed(range(len(self._graph_def.node))):
            if self._graph_def.node[place].name in gone:
                del self._graph_def.node[place]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Operand:
    """source: its reference. weights: its numbers, where they are constants. shape: as dimensions.of gives it."""

    source: str
    weights: npt.NDArray[Any] | None
    shape: list[Dimension] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Groups:
    """The axes of a tensor, with the letters that each stands for; the first is the rows. known: sizes of letters."""

    letters: Sequence[str]
    known: Mapping[str, int]

    @property
    def plain(self) -> bool:
        """Whether each axis is one letter."""
        return all(len(letters) == 1 for letters in self.letters)

    @property
    def fits(self) -> bool:
        """Whether a Reshape that it needs can have constant sizes."""
        return self.plain or all(letter in self.known for letter in "".join(self.letters)[1:])

    @property
    def sizes(self) -> list[int]:
        """Of its axes; that of the rows is -1."""
        return [-1, *(math.prod(self.known[letter] for letter in letters) for letters in self.letters[1:])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plan:
    """The operands and the product of a BatchMatMulV2, or of a MatMul of two axes. weights: those of the second, where it has some."""

    first: _Groups
    second: _Groups
    product: _Groups
    weights: npt.NDArray[Any] | None = None


def _plan(one: Equation, tensor: _Operand, other: _Operand) -> _Plan | None:
    """None where an Einsum is no product that implicit batch mode takes."""
    rows, weights = one.result[0], other.weights
    if tensor.weights is not None or tensor.shape is None or other.shape is None or one.first[0] != rows:
        return None
    if len(one.result) == 1:  # a number for each row, which this mode takes nowhere else
        return None
    if weights is None and one.second[0] != rows or weights is not None and rows in one.second:
        return None
    first, second = dict(zip(one.first, tensor.shape, strict=True)), dict(zip(one.second, other.shape, strict=True))
    # A product repeats an axis of size 1 where Einsum refuses it.
    if any(first[letter] != second[letter] for letter in one.batch):
        return None
    batch, left = (letters.replace(rows, "") for letters in (one.batch, one.left))
    # Weights of one matrix leave what is not summed as it is, and its sizes may be open.
    outer = [rows, *left] if weights is not None and not batch else [rows, *batch, left]
    known = [{letter: size for letter, size in sizes.items() if isinstance(size, int)} for sizes in (first, second)]
    plan = _Plan(
        first=_Groups(letters=[*outer, one.summed], known=known[0]),
        second=_Groups(letters=[rows, *batch, one.summed, one.right], known=known[1]),
        product=_Groups(letters=[*outer, one.right], known=known[1] | known[0]),
        weights=None if weights is None else _matrices(weights, one, batch, len(outer) - 1),
    )
    parts = (plan.first, plan.product) if weights is not None else (plan.first, plan.second, plan.product)
    return plan if all(part.fits for part in parts) else None


def _matrices(weights: npt.NDArray[Any], one: Equation, batch: str, rank: int) -> npt.NDArray[Any]:
    """Weights as [1…, batch…, summed, right]. Args: rank: how many axes come before the last two."""
    letters = batch + one.summed + one.right
    sizes = dict(zip(one.second, weights.shape, strict=True))
    matrix = [math.prod(sizes[letter] for letter in part) for part in (one.summed, one.right)]
    moved = np.transpose(weights, [one.second.index(letter) for letter in letters])
    front = [1] * (rank - len(batch))
    return np.ascontiguousarray(moved.reshape([*front, *(sizes[letter] for letter in batch), *matrix]))
