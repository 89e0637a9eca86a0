"""Dropouts that drop nothing, because what they keep is the constant 1, taken out.

TF1 writes x / keep * floor(keep + random numbers), later releases select x / keep where random numbers >= 1 - keep. The numbers are in
[0, 1), and 1 plus the largest is still below 2 in each type: the factor is 1, or the condition true, whatever is drawn.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.savedmodel.job import control_flow, dimensions, folding, inferred

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

_RANDOM = frozenset({"RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"})
_SUMS = frozenset({"Add", "AddV2"})
_QUOTIENTS = frozenset({"RealDiv", "Div"})
_SELECTS = frozenset({"Select", "SelectV2"})
# The most ops between the random numbers and the factor or condition.
_DEEPEST = 16


def fold(graph_def: graph_pb2.GraphDef, kept: Container[str] = frozenset()) -> tuple[str, ...]:
    """Let each pass its data on, in place, but not inside functions. Args: graph_def: frozen. kept: names of nodes to leave as they are.
    Returns: names of the nodes that were the ends of dropouts."""
    if not any(node.op in _RANDOM for node in graph_def.node):
        return ()
    view = _View(graph_def)
    passed = {node.name: data for node in graph_def.node if node.name not in kept and (data := view.passed(node))}
    for node in graph_def.node:
        if node.name in passed:
            dtype = node.attr["T"].type
            node.op, node.input[:] = (
                "Identity",
                [passed[node.name], *(source for source in node.input if source.startswith("^"))],
            )
            node.attr.clear()
            node.attr["T"].type = dtype
    return tuple(passed)


class _View:
    """A graph's nodes, its shapes, and what is random in it."""

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self.nodes = {node.name: node for node in graph_def.node}
        self.known = inferred.shapes(graph_def)
        self.branches = control_flow.in_branches(graph_def)

    def passed(self, node: node_def_pb2.NodeDef) -> str | None:
        """The data that a node at the end of a dropout that drops nothing passes on, or None."""
        data = [name for name in node.input if not name.startswith("^")]
        if node.op == "Mul":
            pairs = [(data[1], data[0]), (data[0], data[1])]
        elif node.op in _SELECTS:
            pairs = [(data[0], data[1])]
        else:
            return None
        for factor, source in pairs:
            numbers = self._always(factor)
            # If another branch gives the data, the node must not run where it would not.
            outside = node.name in self.branches and folding.name_of(source) not in self.branches
            if numbers is not None and not outside and self._fits(node, numbers, source):
                return self._undivided(source)
        return None

    def _always(self, source: str) -> node_def_pb2.NodeDef | None:
        """The random numbers behind a factor that is always 1, or a condition that is always true; None for others."""
        for _ in range(_DEEPEST):
            node = self.nodes[folding.name_of(source)]
            if node.op not in ("Identity", "Cast"):
                break
            source = node.input[0]
        if node.op == "Floor":
            return self._random(node.input[0], 1.0)
        if node.op == "GreaterEqual":
            bound = self._number(node.input[1])
            return self._random(node.input[0], 0.0) if bound is not None and bound <= 0 else None
        if node.op == "Less":
            bound = self._number(node.input[1])
            return self._random(node.input[0], 0.0) if bound is not None and bound >= 1 else None
        return None

    def _random(self, source: str, added: float) -> node_def_pb2.NodeDef | None:
        """The random numbers of [0, 1) from which a tensor differs only by `added`, or None."""
        total = 0.0
        for _ in range(_DEEPEST):
            node = self.nodes[folding.name_of(source)]
            if node.op in _RANDOM:
                return node if total == added else None
            if node.op == "Identity":
                source = node.input[0]
                continue
            pair = self._with_number(node) if node.op in _SUMS or node.op == "Mul" else None
            # A sum of more than one number may be rounded.
            if pair is None or (pair[1] != 1 if node.op == "Mul" else pair[1] and total):
                return None
            source = pair[0]
            total += pair[1] if node.op in _SUMS else 0.0
        return None

    def _undivided(self, source: str) -> str:
        """The tensor behind `source`, without divisions by 1 and products with 1."""
        for _ in range(_DEEPEST):
            node = self.nodes[folding.name_of(source)]
            if node.op in _QUOTIENTS and self._number(node.input[1]) == 1:
                source = node.input[0]
            elif node.op == "Mul" and (pair := self._with_number(node)) and pair[1] == 1:
                source = pair[0]
            else:
                break
        return source

    def _with_number(self, node: node_def_pb2.NodeDef) -> tuple[str, float] | None:
        """(the other input, the number) of a node with one input that is a single constant number."""
        for other, source in ((node.input[0], node.input[1]), (node.input[1], node.input[0])):
            if (number := self._number(source)) is not None:
                return other, number
        return None

    def _number(self, source: str) -> float | None:
        value = folding.value(source, self.nodes, folding.FILTERS)
        return float(value) if value is not None and value.shape == () and value.dtype.kind in "fV" else None

    def _fits(self, node: node_def_pb2.NodeDef, numbers: node_def_pb2.NodeDef, source: str) -> bool:
        """Whether a node's result has the shape of its data: no other input has more elements along an axis."""
        expected = dimensions.of(self._tensor(source))
        op = self.known.get_operation_by_name(node.name)
        drawn = dimensions.of_shape(self.known.get_operation_by_name(numbers.name).inputs[0])
        others = [drawn, *([dimensions.of(op.inputs[2])] if node.op in _SELECTS else [])]
        return expected is not None and all(other is not None and _is_repeated(other, expected) for other in others)

    def _tensor(self, source: str) -> Any:
        name, _, port = source.partition(":")
        return self.known.get_tensor_by_name(f"{name}:{port or 0}")


def _is_repeated(one: list[dimensions.Dimension], wanted: list[dimensions.Dimension]) -> bool:
    """Whether a tensor of sizes `one`, repeated where it is smaller, gets those of `wanted`."""
    return len(one) <= len(wanted) and all(
        size is not None and size in (1, other) for size, other in zip(reversed(one), reversed(wanted), strict=False)
    )
