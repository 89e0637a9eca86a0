"""The digest of a native segment: it covers what TensorRT gets, whatever the names of nodes and functions.

A hash over the data flow (a Merkle tree on the graph): each node's digest covers its op, its attributes, its weights and the digests
of what feeds it; the segment's covers the types of the inputs and what feeds each output. Works on protos alone; nothing is run.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import graph

if TYPE_CHECKING:
    from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2, op_def_pb2, tensor_pb2

# Part of every digest: raise it if a change here gives the same segment another digest.
_FORMAT = b"tftrt segment 1"
_SCALARS: dict[str, Callable[[Any], bytes]] = {
    "s": bytes,
    "i": lambda value: struct.pack("<q", value),
    "f": lambda value: struct.pack("<f", value),
    "b": lambda value: b"\1" if value else b"\0",
    "type": lambda value: struct.pack("<i", value),
    "placeholder": lambda value: value.encode(),
}


def digest(function: function_pb2.FunctionDef, library: Mapping[str, function_pb2.FunctionDef], names: bool) -> str:
    """The digest of a native segment.

    Equal for segments that compute the same by the same ops: node order, control inputs, devices, attributes that begin with "_",
    debug information, the encoding of constants, attributes at their default (a SavedModel drops them), names of functions, and nodes
    that reach no output do not count. Inputs and outputs count by position.

    Args:
      function: FunctionDef of the segment.
      library: {name: FunctionDef} of the functions that it may call.
      names: whether the names of nodes and arguments count too, as they do for an INT8 calibration table, whose keys they are.

    Returns: "sha256:<hex>".

    Raises: ValueError for a graph that has a cycle, misses a node, or calls itself.
    """
    return "sha256:" + _Hasher(library, names).function(function).hex()


def engine_digests(graph_def: graph_pb2.GraphDef, names: bool) -> dict[str, str]:
    """{engine name: digest} of the native segments of a graph's engine ops, left out where a segment was removed. Args, Raises: as
    `digest`."""
    library = graph.library(graph_def)
    hasher = _Hasher(library, names)
    segments = {
        graph.engine_name(node.name): node.attr["segment_func"].func.name for node in graph.engine_nodes(graph_def)
    }
    return {
        engine: "sha256:" + hasher.function(library[name]).hex() for engine, name in segments.items() if name in library
    }


def _hash(*parts: bytes) -> bytes:
    """SHA-256 of byte strings, each after its length, so that different lists never give the same bytes."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(struct.pack("<q", len(part)))
        whole.update(part)
    return whole.digest()


class _Hasher:
    """Digests as bytes. Each function of the library, and so each constant, is hashed once."""

    def __init__(self, library: Mapping[str, function_pb2.FunctionDef], names: bool) -> None:
        self._library, self._names = library, names
        self._called: dict[str, bytes] = {}
        self._calling: set[str] = set()

    def function(self, function: function_pb2.FunctionDef) -> bytes:
        inputs = {arg.name: (position, arg) for position, arg in enumerate(function.signature.input_arg)}
        nodes = _Nodes(self, function, inputs)
        parts = [_FORMAT, b"names" if self._names else b""]
        parts += [self._argument(position, arg) for position, arg in inputs.values()]
        for position, arg in enumerate(function.signature.output_arg):
            if arg.name not in function.ret:
                raise ValueError(f"output {arg.name!r} of function {function.signature.name!r} has no source")
            parts += [self._argument(position, arg), nodes.reference(function.ret[arg.name])]
        return _hash(*parts)

    def _argument(self, position: int, arg: op_def_pb2.ArgDef) -> bytes:
        name = arg.name.encode() if self._names else b""
        return _hash(
            struct.pack("<ii", position, arg.type),
            arg.type_attr.encode(),
            arg.number_attr.encode(),
            arg.type_list_attr.encode(),
            name,
        )

    def argument(self, position: int, arg: op_def_pb2.ArgDef, port: bytes) -> bytes:
        """The digest of what an input argument feeds into a node."""
        return _hash(b"argument", self._argument(position, arg), port)

    def node(self, node: node_def_pb2.NodeDef, sources: Sequence[bytes]) -> bytes:
        """The digest of NodeDef `node`; sources: digests of its data inputs, in order."""
        op = self._call(node.op) if node.op in self._library else node.op.encode()
        name = node.name.encode() if self._names else b""
        return _hash(b"node", op, name, self._attributes(node), *sources)

    def _attributes(self, node: node_def_pb2.NodeDef) -> bytes:
        defaults = _defaults(node.op)
        parts = []
        for key in sorted(node.attr):
            if key.startswith("_"):
                continue
            encoded = self._value(node.attr[key])
            if key not in defaults or encoded != self._value(defaults[key]):
                parts += [key.encode(), encoded]
        return _hash(*parts)

    def _value(self, value: attr_value_pb2.AttrValue) -> bytes:
        kind = value.WhichOneof("value")
        if kind is None:
            return _hash(b"none")
        if kind == "list":
            items = [self._item(field.name, item) for field, held in value.list.ListFields() for item in held]
            return _hash(b"list", *items)
        return self._item(kind, getattr(value, kind))

    def _item(self, kind: str, item: Any) -> bytes:
        if kind == "func":
            # A function counts by its content, because the conversion invents its name.
            identity = self._call(item.name) if item.name in self._library else item.name.encode()
            attributes = [
                part
                for key in sorted(item.attr)
                if not key.startswith("_")
                for part in (key.encode(), self._value(item.attr[key]))
            ]
            return _hash(b"func", identity, *attributes)
        if kind == "tensor":
            return _tensor(item)
        if kind == "shape":
            return _hash(b"shape", repr(graph.shape_of(item)).encode())
        return _hash(kind.encode(), _SCALARS[kind](item))

    def _call(self, name: str) -> bytes:
        if name not in self._called:
            if name in self._calling:
                raise ValueError(f"function {name!r} calls itself")
            self._calling.add(name)
            self._called[name] = self.function(self._library[name])
            self._calling.discard(name)
        return self._called[name]


class _Nodes:
    """The nodes of one function body and their digests, each computed once and only where an output needs it."""

    def __init__(
        self, hasher: _Hasher, function: function_pb2.FunctionDef, inputs: Mapping[str, tuple[int, op_def_pb2.ArgDef]]
    ) -> None:
        self._hasher, self._inputs, self._name = hasher, inputs, function.signature.name
        self._nodes = {node.name: node for node in function.node_def}
        self._done: dict[str, bytes] = {}

    def reference(self, source: str) -> bytes:
        """The digest of "argument", "argument:index" or "node:output:index"."""
        name, port = _split(source)
        if name in self._inputs:
            return self._hasher.argument(*self._inputs[name], port)
        self._compute(name)
        return _hash(b"output", port, self._done[name])

    def _compute(self, last: str) -> None:
        # Without recursion: a segment can be deeper than Python's stack.
        entered, stack = set(), [last]
        while stack:
            name = stack[-1]
            if name in self._done:
                stack.pop()
                continue
            if name not in self._nodes:
                raise ValueError(f"function {self._name!r} has no node {name!r}")
            sources = [source for source in self._nodes[name].input if not source.startswith("^")]
            needed = [
                source for source, _ in map(_split, sources) if source not in self._inputs and source not in self._done
            ]
            if needed and name in entered:
                raise ValueError(f"function {self._name!r} has a cycle through {name!r}")
            entered.add(name)
            if needed:
                stack += needed
                continue
            self._done[name] = self._hasher.node(self._nodes[name], [self.reference(source) for source in sources])


def _split(source: str) -> tuple[str, bytes]:
    name, _, port = source.partition(":")
    return name, b"" if port in ("", "0") else port.encode()


def _defaults(op: str) -> dict[str, attr_value_pb2.AttrValue]:
    """{attribute: AttrValue} of an op's defaults; {} for an op that this TensorFlow does not know."""
    try:
        definition = tf_private.op_def(op)
    except KeyError:
        return {}
    return {
        attribute.name: attribute.default_value for attribute in definition.attr if attribute.HasField("default_value")
    }


def _tensor(proto: tensor_pb2.TensorProto) -> bytes:
    """The digest of a TensorProto's type, shape and elements; a proto may hold them as bytes, one by one, or shortened."""
    head = b"tensor", struct.pack("<i", proto.dtype), repr(graph.shape_of(proto.tensor_shape)).encode()
    if proto.tensor_content:
        return _hash(*head, proto.tensor_content)
    try:
        array = tf.make_ndarray(proto)
    except (TypeError, ValueError):
        # For a type without a NumPy name, the proto as it is.
        return _hash(*head, b"proto", proto.SerializeToString(deterministic=True))
    if array.dtype == object:
        return _hash(*head, *(bytes(element) for element in array.flat))
    return _hash(*head, array.tobytes())
