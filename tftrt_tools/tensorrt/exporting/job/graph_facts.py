"""A flat view of an ONNX graph: who makes and who reads each tensor, what is constant, which shape and type is known."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Ops whose output holds exactly the values of their first input, in another form.
SAME_VALUES = frozenset({"Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})

# {an attribute of a Constant that is no tensor: the type of the tensor that it means}.
_VALUES = {
    "value_float": TensorProto.FLOAT,
    "value_floats": TensorProto.FLOAT,
    "value_int": TensorProto.INT64,
    "value_ints": TensorProto.INT64,
    "value_string": TensorProto.STRING,
    "value_strings": TensorProto.STRING,
}


class Facts:
    """Of the outermost graph of a model. Nodes are named by their name, or, where they have none, by their first output."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.nodes = list(graph.node)
        self.producers = {output: node for node in graph.node for output in node.output if output}
        self.inputs = {one.name for one in graph.input} - {one.name for one in graph.initializer}
        self.outputs = {one.name for one in graph.output}
        self.order = {id(node): index for index, node in enumerate(graph.node)}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in dict.fromkeys([*filter(None, node.input), *read_inside(node)]):
                self.readers.setdefault(name, []).append(node)
        self._constants: dict[str, TensorProto] = {one.name: one for one in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        self._types = {one.name: one.type.tensor_type for one in (*graph.value_info, *graph.input, *graph.output)}

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The values of a constant; None for a tensor that is computed."""
        return numpy_helper.to_array(self._constants[name]) if name in self._constants else None

    def number(self, name: str) -> float | None:
        """The number that a constant of one element holds; None for another tensor, and for one whose value was not read from its file."""
        tensor = self._constants.get(name)
        if tensor is None or math.prod(tensor.dims) != 1 or tensor.data_location == TensorProto.EXTERNAL:
            return None
        return float(numpy_helper.to_array(tensor).reshape(-1)[0])

    def is_constant(self, name: str) -> bool:
        """Whether the file holds the tensor."""
        return name in self._constants

    def is_float(self, name: str) -> bool:
        """Whether the tensor is known to be float32."""
        if name in self._constants:
            return bool(self._constants[name].data_type == TensorProto.FLOAT)
        return name in self._types and bool(self._types[name].elem_type == TensorProto.FLOAT)

    def dtype(self, name: str) -> int:
        """The type of a computed tensor; UNDEFINED where it is not known."""
        return int(self._types[name].elem_type) if name in self._types else TensorProto.UNDEFINED

    def shape(self, name: str) -> tuple[int | str, ...] | None:
        """Its sizes, names for open ones; None if they are not known."""
        found = self._types.get(name)
        if found is None or not found.HasField("shape"):
            return None
        return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in found.shape.dim)

    def same_rank(self, one: str, other: str) -> bool:
        """Whether two tensors are known to have as many dimensions: a constant of more may give what it is joined with more."""
        first, second = self.shape(one), self.shape(other)
        return first is not None and second is not None and len(first) == len(second)

    def alone(self, name: str) -> onnx.NodeProto | None:
        """The only reader of a tensor that is no output of the graph; None if it has others."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def source(self, name: str) -> str:
        """The tensor whose values this one only passes on."""
        while name in self.producers and self.producers[name].op_type in SAME_VALUES:
            name = self.producers[name].input[0]
        return name

    @functools.cached_property
    def floats(self) -> list[str]:
        """All computed float32 tensors: inputs first, then in the order of the nodes."""
        listed = [one for one in self.inputs if self.is_float(one)]
        return sorted(listed) + [name for name in self.producers if self.is_float(name) and not self.is_constant(name)]


def name_of(node: onnx.NodeProto) -> str:
    """A node's name for people."""
    return str(node.name or next(filter(None, node.output), node.op_type))


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """{name: value} of a node's attributes; texts as bytes."""
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def is_open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dimension of an input or output has no size; some exporters write a negative one."""
    return not dim.HasField("dim_value") or bool(dim.dim_value < 0)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a graph, those of graphs within nodes behind the node."""
    for node in graph.node:
        yield node
        yield from _within(node)


def inner_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of graphs within nodes: of loops and branches."""
    for node in graph.node:
        yield from _within(node)


def _within(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for inner in inner_graphs(node):
        yield from all_nodes(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds: a loop's body, the branches of a condition."""
    for attribute in node.attribute:
        yield from (attribute.g, *attribute.graphs) if attribute.type in (attribute.GRAPH, attribute.GRAPHS) else ()


def write_values(graph: onnx.GraphProto) -> None:
    """Let constants that are written as numbers or lists (value_int, value_floats, …) be tensors, in graphs within nodes, too.

    onnx 1.18.0 takes a list of integers for a single one while it infers shapes, and refuses what reads it.
    """
    for node in all_nodes(graph):
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            kind = _VALUES.get(attribute.name)
            if kind is not None:
                value = helper.get_attribute_value(attribute)
                listed = list(value) if attribute.name.endswith("s") else [value]
                sizes = [len(listed)] if attribute.name.endswith("s") else []
                tensor = helper.make_tensor(node.output[0], kind, sizes, listed)
                attribute.CopyFrom(helper.make_attribute("value", tensor))


def drop_hints(graph: onnx.GraphProto) -> None:
    """Forget what a file says of inner tensors, in graphs within nodes, too: it may be old, and is inferred anew."""
    del graph.value_info[:]
    for node in graph.node:
        for inner in inner_graphs(node):
            drop_hints(inner)


def tensor_names(graph: onnx.GraphProto) -> set[str]:
    """Names of all tensors of a graph and of graphs within its nodes, which see its tensors and may not call another one so."""
    found = {one.name for one in (*graph.input, *graph.output, *graph.initializer)}
    for node in graph.node:
        found.update(node.input, node.output, *map(tensor_names, inner_graphs(node)))
    return found


def node_names(graph: onnx.GraphProto) -> set[str]:
    """Names of all nodes, those of graphs within nodes, too: ONNX Runtime takes no two nodes of one name."""
    return {node.name for node in all_nodes(graph)}


def free(name: str, taken: Collection[str]) -> str:
    """The name, with as many signs behind it as it needs to be another one than those."""
    while name in taken:
        name += "_"
    return name


def read_inside(node: onnx.NodeProto) -> Iterable[str]:
    """Tensors that graphs within a node read."""
    for inner in inner_graphs(node):
        for one in inner.node:
            yield from filter(None, one.input)
            yield from read_inside(one)
        yield from (value.name for value in inner.output)
