"""What a model does first to one of its inputs: does it normalize it, does it select rows of a table with it. Works on protos alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP
from tftrt_tools.models.savedmodel.job import graph

if TYPE_CHECKING:
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2

_CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f", ENGINE_OP: "segment_func"}
# Ops that leave an input's values as they are.
_PASSING = frozenset(
    {
        "Identity",
        "Cast",
        "EnsureShape",
        "StopGradient",
        "Snapshot",
        "Transpose",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "PlaceholderWithDefault",
        "PreventGradient",
        "CheckNumerics",
        "Pad",
    }
)
# Ops that only ask for its shape.
_ASIDE = frozenset({"Shape", "ShapeN", "Rank", "Size", "NoOp"})
_WORDS = {
    "Mul": "times",
    "Sub": "minus",
    "Add": "plus",
    "AddV2": "plus",
    "RealDiv": "divided by",
    "Div": "divided by",
    "BiasAdd": "plus",
    "DivNoNan": "divided by",
}
_GATHERS = {"Gather": 1, "GatherV2": 1, "ResourceGather": 1}
_NUMBERS = 4
_STEPS = 12


@dataclasses.dataclass(frozen=True)
class First:
    """steps: arithmetic with constants, in words, in order; rows: of the table that it selects from, None if it is not known."""

    steps: tuple[str, ...]
    rows: int | None


@dataclasses.dataclass(frozen=True)
class _Body:
    """The nodes of the main graph or of a function. given: {argument of the function: (what the caller gives, the caller)}."""

    nodes: Sequence[node_def_pb2.NodeDef]
    given: Mapping[str, tuple[str, Any]]
    returns: Mapping[str, str]

    def consumers(self, name: str) -> list[node_def_pb2.NodeDef]:
        """The nodes that read node or argument `name`."""
        return [
            node
            for node in self.nodes
            if node.op not in _ASIDE
            and any(_name(source) == name for source in node.input if not source.startswith("^"))
        ]

    def source(self, reference: str) -> tuple[node_def_pb2.NodeDef | None, _Body]:
        """The node behind a reference, through identities, reads of variables, and arguments of calls; and where it lies."""
        name = _name(reference)
        if name in self.given:
            outer, caller = self.given[name]
            outer_source: tuple[node_def_pb2.NodeDef | None, _Body] = caller.source(outer)
            return outer_source
        node = next((candidate for candidate in self.nodes if candidate.name == name), None)
        if node is not None and node.op in ("Identity", "ReadVariableOp", "Enter") and node.input:
            return self.source(node.input[0])
        return node, self


def read(graph_def: graph_pb2.GraphDef, tensor: str) -> First:
    """Follow an input as long as one op reads it. Args: tensor: of the main graph, "node:0"."""
    functions = graph.library(graph_def)
    steps: list[str] = []
    rows, _ = _follow(_Body(graph_def.node, {}, {}), _name(tensor), functions, steps)
    return First(tuple(steps), rows)


def _follow(
    body: _Body, name: str, functions: Mapping[str, function_pb2.FunctionDef], steps: list[str]
) -> tuple[int | None, str]:
    """Returns: (rows of a table, result of the function that the input reaches unchanged but for `steps`, or "")."""
    while len(steps) < _STEPS:
        returned = next((key for key, source in body.returns.items() if _name(source) == name), "")
        if returned:
            return None, returned
        # Signatures of one model may share an input.
        readers = body.consumers(name)
        if not readers or len(readers) > 1 and not all(reader.op in _CALLS for reader in readers):
            return None, ""
        node = readers[0]
        place = next(number for number, source in enumerate(node.input) if _name(source) == name)
        if node.op in _CALLS:
            function = functions.get(node.attr[_CALLS[node.op]].func.name)
            if function is None:
                return None, ""
            arguments = [argument.name for argument in function.signature.input_arg]
            given = {key: (source, body) for key, source in zip(arguments, node.input, strict=False)}
            inner = _Body(function.node_def, given, dict(function.ret))
            rows, reached = _follow(inner, arguments[place], functions, steps)
            if rows is not None or not reached:
                return rows, ""
        elif node.op in _WORDS:
            other = next((source for number, source in enumerate(node.input) if number != place), "")
            text = _constant(body, other)
            if text is None:
                return None, ""
            steps.append(
                f"{_WORDS[node.op]} {text}" if node.op in ("BiasAdd",) or place == 0 else f"{text} {_WORDS[node.op]} it"
            )
        elif node.op in _GATHERS and place == _GATHERS[node.op]:
            return _rows(body, node.input[0]), ""
        elif (
            node.op == "StridedSlice"
            and not _only_reverses(node)
            or node.op not in (*_PASSING, "StridedSlice", "ReverseV2")
        ):
            return None, ""
        name = node.name
    return None, ""


def _name(reference: str) -> str:
    return reference.removeprefix("^").partition(":")[0]


def _constant(body: _Body, reference: str) -> str | None:
    """A constant in words: its numbers where they are few; None for what is no constant, or one for each element of a picture."""
    node, where = body.source(reference)
    if node is None:
        return None
    if node.op in ("Sqrt", "Maximum", "Rsqrt", "Reshape", "Cast"):  # the divisor of a Normalization
        return "constants" if _constant(where, node.input[0]) else None
    if node.op in ("VarHandleOp", "VariableV2"):
        return "constants" if node.attr["shape"].shape.dim and _size(node.attr["shape"].shape) <= _NUMBERS else None
    if node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    if _size(tensor.tensor_shape) > _NUMBERS:
        return None
    import numpy as np

    values = list(tensor.float_val) or (
        np.frombuffer(tensor.tensor_content, np.float32).tolist() if tensor.dtype == 1 else []
    )
    return ",".join(f"{value:.6g}" for value in values) or "constants"


def _size(shape: tensor_shape_pb2.TensorShapeProto) -> int:
    size = 1
    for dim in shape.dim:
        size *= dim.size
    return size


def _rows(body: _Body, reference: str) -> int | None:
    node, _ = body.source(reference)
    if node is None or node.op not in ("Const", "VarHandleOp", "VariableV2"):
        return None
    shape = node.attr["value"].tensor.tensor_shape if node.op == "Const" else node.attr["shape"].shape
    return shape.dim[0].size if shape.dim else None


def _only_reverses(node: node_def_pb2.NodeDef) -> bool:
    """Whether a StridedSlice takes everything: as preprocess_input turns RGB into BGR."""
    begins, ends = node.attr["begin_mask"].i, node.attr["end_mask"].i
    return begins == ends != 0 and not node.attr["shrink_axis_mask"].i and not node.attr["new_axis_mask"].i
