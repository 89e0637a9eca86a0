"""Sorts the inputs and outputs of engine ops. TF-TRT orders them by addresses of objects, differently in each run.

Unsorted, the segment's digest, the names TensorRTInputPH_i of a calibration table and the key of a cached engine would differ too.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP
from tftrt_tools.models.savedmodel.job.graph import library

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2

M = TypeVar("M", bound="Message")


def sort_borders(graph_def: graph_pb2.GraphDef) -> None:
    """Sort inputs by the first node of the segment that takes them, outputs by the node that computes them, in place.

    Engine ops inside functions and those without a segment are left as they are.
    """
    functions = library(graph_def)
    ports = {}
    for node in graph_def.node:
        segment = functions.get(node.attr["segment_func"].func.name) if node.op == ENGINE_OP else None
        if segment is not None:
            _sort_inputs(node, segment)
            ports[node.name] = _sort_outputs(node, segment)
    for node in graph_def.node:
        node.input[:] = [_renumbered(source, ports) for source in node.input]


def _sort_inputs(node: node_def_pb2.NodeDef, segment: function_pb2.FunctionDef) -> None:
    arguments = [arg.name for arg in segment.signature.input_arg]
    takers: dict[str, list[tuple[str, int]]] = {}
    for inner in segment.node_def:
        for index, source in enumerate(inner.input):
            takers.setdefault(source.partition(":")[0], []).append((inner.name, index))
    for result in segment.signature.output_arg:
        takers.setdefault(segment.ret[result.name].partition(":")[0], []).append((result.name, 0))
    # An input that no node reads comes last.
    order = sorted(
        range(len(arguments)),
        key=lambda index: (arguments[index] not in takers, min(takers.get(arguments[index], [("", 0)]))),
    )
    if order == list(range(len(order))):
        return
    data = [source for source in node.input if not source.startswith("^")]
    node.input[: len(data)] = [data[index] for index in order]
    _permute(node.attr["InT"].list.type, order)
    if "input_shapes" in node.attr:
        _permute(node.attr["input_shapes"].list.shape, order)
    _permute_arguments(segment.signature.input_arg, order)
    attributes = {index: _copied(value) for index, value in segment.arg_attr.items()}
    segment.arg_attr.clear()
    for new, old in enumerate(order):
        if old in attributes:
            segment.arg_attr[new].CopyFrom(attributes[old])
    names = {arguments[old]: arguments[new] for new, old in enumerate(order)}
    for inner in segment.node_def:
        inner.input[:] = [_renamed(source, names) for source in inner.input]
    for key, source in list(segment.ret.items()):
        segment.ret[key] = _renamed(source, names)


def _sort_outputs(node: node_def_pb2.NodeDef, segment: function_pb2.FunctionDef) -> dict[int, int]:
    """Returns: {old port: new port}."""
    results = [arg.name for arg in segment.signature.output_arg]
    sources = [segment.ret[name] for name in results]
    order = sorted(range(len(results)), key=lambda index: sources[index])
    if order != list(range(len(order))):
        _permute(node.attr["OutT"].list.type, order)
        for name in ("output_shapes", "_output_shapes"):
            # Reading a missing attribute would make an empty one.
            if name in node.attr and len(node.attr[name].list.shape) == len(order):
                _permute(node.attr[name].list.shape, order)
        _permute_arguments(segment.signature.output_arg, order)
        for new, old in enumerate(order):
            segment.ret[results[new]] = sources[old]
    return {old: new for new, old in enumerate(order)}


def _permute(repeated: MutableSequence[Any], order: Sequence[int]) -> None:
    if len(repeated) != len(order):
        return
    values = list(repeated)
    if isinstance(values[0], int):
        repeated[:] = [values[index] for index in order]
        return
    copies = list(map(_copied, values))
    for place, index in zip(repeated, order, strict=True):
        place.CopyFrom(copies[index])


def _copied(message: M) -> M:
    copy: M = type(message)()
    copy.CopyFrom(message)
    return copy


def _permute_arguments(arguments: MutableSequence[op_def_pb2.OpDef.ArgDef], order: Sequence[int]) -> None:
    """Types and attributes move; names stay, because their numbers are those of the places."""
    names = [arg.name for arg in arguments]
    _permute(arguments, order)
    for arg, name in zip(arguments, names, strict=True):
        arg.name = name


def _renamed(source: str, names: Mapping[str, str]) -> str:
    mark = "^" if source.startswith("^") else ""
    name, colon, port = source[len(mark) :].partition(":")
    return mark + names.get(name, name) + colon + port


def _renumbered(source: str, ports: Mapping[str, Mapping[int, int]]) -> str:
    if source.startswith("^"):
        return source
    name, _, port = source.partition(":")
    if name not in ports:
        return source
    new = ports[name][int(port or 0)]
    return f"{name}:{new}" if new else name
