"""A loop that counts up to a limit: it says how often it runs.

tf2onnx writes a while loop as a Loop that goes on as long as a condition holds, with no number of rounds. TensorRT 8.5 builds it, but what
such a loop gathers, a row in each round, has 1024 rows there, whatever the loop does (seen on an H100, 2026-11-27, with a masked LSTM of
Keras). With the number of rounds as M, and no condition, it has as many rows as there were rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes, name_of
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

_WHOLE = frozenset({TensorProto.INT32, TensorProto.INT64})
# A Cast of whole numbers to them keeps their order; tf2onnx compares floats.
_ORDERED = _WHOLE | {TensorProto.FLOAT, TensorProto.DOUBLE}
# Inputs of a Loop before its own tensors, inputs of its body before them, and outputs of its body before them.
_OF_LOOP, _OF_BODY, _OF_ROUND = 2, 2, 1


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        found = _Loop(facts, node) if node.op_type == "Loop" and node.input[1] else None
        counted = found.counted() if found else None
        if found and counted:
            writer = editing.Writer(node)
            loop = onnx.NodeProto.FromString(node.SerializeToString())
            loop.input[0], loop.input[1] = found.rounds(writer, counted), ""
            writer.nodes.append(loop)
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


@dataclasses.dataclass(frozen=True)
class _Counted:
    """From which number a loop counts up by one, and the tensor that holds its limit."""

    first: int
    limit: str


class _Loop:
    """A Loop that goes on by a condition. Args: facts: of the graph that holds it."""

    def __init__(self, facts: Facts, node: onnx.NodeProto) -> None:
        self._facts, self._node, self._body = facts, node, attributes(node)["body"]
        self._makers = {output: inner for inner in self._body.node for output in inner.output}
        self._inside = {one.name: numpy_helper.to_array(one) for one in self._body.initializer}
        self._names = [one.name for one in self._body.input]
        # That of the most rounds, or "".
        self._most = node.input[0]

    def rounds(self, writer: editing.Writer, counted: _Counted) -> str:
        """The tensor with the number of rounds."""
        limit, most = self._facts.constant(counted.limit), self._most
        if limit is not None:
            # The condition holds at first, so there is a first round.
            rounds = max(int(limit.ravel()[0]) - counted.first, 1)
            bound = self._facts.number(most) if most else None
            if not most or bound is not None:
                return writer.constant("rounds", rounds if bound is None else min(rounds, int(bound)), np.int64)
            name = writer.constant("limit", rounds, np.int64)
        else:
            name = writer.node("Cast", [counted.limit], "limit", to=TensorProto.INT64)
            if counted.first:
                name = writer.node("Sub", [name, writer.constant("first", counted.first, np.int64)], "rounds")
        return writer.node("Min", [name, most], "fewer") if most else name

    def counted(self) -> _Counted | None:
        """How it counts; None for one that goes on by another condition."""
        conditions = [one for one in self._conditions(self._body.output[0].name) if not self._is_bound(one)]
        if len(conditions) != 1 or conditions[0].op_type != "Less":
            return None
        (less,) = conditions
        added = _made_by(self._makers, less.input[0])
        if added is None or added.op_type != "Add":
            return None
        counter = next((one for one in added.input if one in self._names[_OF_BODY:]), None)
        if counter is None:
            return None
        step = self._number(next((one for one in added.input if one != counter), ""))
        if self._body.input[self._names.index(counter)].type.tensor_type.elem_type not in _WHOLE:
            return None
        place = self._names.index(counter) - _OF_BODY
        kept = _source(self._makers, self._body.output[place + _OF_ROUND].name) == added.output[0]
        first = self._number(self._node.input[place + _OF_LOOP])
        limit = self._limit(less.input[1])
        if step != 1 or not kept or first is None or not limit or not self._is_whole(limit):
            return None
        counted = _Counted(int(first), limit)
        return counted if self._begins(counted) else None

    def _conditions(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that decide together whether there is another round."""
        made = _made_by(self._makers, name)
        if made is None or made.op_type != "And":
            return [made] if made is not None else []
        return [one for source in made.input for one in self._conditions(source)]

    def _is_bound(self, condition: onnx.NodeProto) -> bool:
        """Whether a condition says no more than the number of rounds that the Loop has already."""
        if condition.op_type != "Less" or not self._most:
            return False
        number, limit = condition.input
        if _source(self._makers, number) != self._names[0]:
            return False
        bound = self._facts.number(self._most)
        if bound is not None:
            return self._number(limit) == bound
        return _source(self._facts.producers, self._limit(limit)) == _source(self._facts.producers, self._most)

    def _limit(self, name: str) -> str:
        """The tensor outside of the Loop that a limit is; "" where it changes from round to round."""
        name = _source(self._makers, name)
        if name not in self._names:
            return "" if name in self._makers or name in self._inside else name
        place = self._names.index(name) - _OF_BODY
        if place < 0 or _source(self._makers, self._body.output[place + _OF_ROUND].name) != name:
            return ""
        return str(self._node.input[place + _OF_LOOP])

    def _is_whole(self, limit: str) -> bool:
        """Whether a limit outside of the Loop is known to be a whole number: up to 2.5 there are three rounds from 0."""
        constant = self._facts.constant(limit)
        if constant is not None:
            return bool(np.all(constant == np.floor(constant)))
        pairs = zip(self._node.input[_OF_LOOP:], self._body.input[_OF_BODY:], strict=False)
        inner = {outer: one.type.tensor_type.elem_type for outer, one in pairs}
        return self._facts.dtype(limit) in _WHOLE or inner.get(limit) in _WHOLE

    def _begins(self, counted: _Counted) -> bool:
        """Whether the condition before the first round is that of all others: the first number is below the limit."""
        facts = self._facts
        if facts.constant(counted.limit) is not None:
            return facts.number(self._node.input[1]) == 1
        less = _made_by(facts.producers, self._node.input[1])
        if less is None or less.op_type != "Less" or self._most:
            return False
        first, limit = (_source(facts.producers, one) for one in less.input)
        return facts.number(first) == counted.first and limit == _source(facts.producers, counted.limit)

    def _number(self, name: str) -> float | None:
        if name in self._inside:
            return float(self._inside[name].ravel()[0]) if self._inside[name].size == 1 else None
        return self._facts.number(name)


def _source(makers: Mapping[str, onnx.NodeProto], name: str) -> str:
    """The tensor whose values this one has, maybe in another type."""
    while name in makers and _passes_on(makers[name]):
        name = makers[name].input[0]
    return name


def _passes_on(node: onnx.NodeProto) -> bool:
    return node.op_type == "Identity" or (node.op_type == "Cast" and attributes(node)["to"] in _ORDERED)


def _made_by(makers: Mapping[str, onnx.NodeProto], name: str) -> onnx.NodeProto | None:
    return makers.get(_source(makers, name))


def missed(model: onnx.ModelProto, target: str) -> list[tuple[str, str]]:
    """[(node, reason)] of loops whose number of rounds is not known, and that gather rows."""
    return [
        (
            name_of(node),
            "it goes on by a condition of its own, so that what it gathers has another number of rows in TensorRT 8.5",
        )
        for node in model.graph.node
        if node.op_type == "Loop" and node.input[1] and _gathers(node)
    ]


def _gathers(node: onnx.NodeProto) -> bool:
    """Whether a Loop gathers a row in each round, beside the tensors that it passes on."""
    body = attributes(node)["body"]
    return len(body.output) - _OF_ROUND > len(body.input) - _OF_BODY
