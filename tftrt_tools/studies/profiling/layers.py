"""What a layer of an engine is and which nodes it holds, from the name that TensorRT gives it.

TF-TRT names a layer after the engine and its node, "TRTEngineOp_X/conv1/Conv2D-conv:CONVOLUTION", and TensorRT joins the names of what
it fuses: with " + ", as PWN(…) for pointwise ops, as {ForeignNode[first...last]} for a part of the network that its compiler Myelin takes
whole. Only the ends of such a part are named, so its other nodes are those between them that no layer names. Names of a plan's layers are
those of ONNX nodes; `onnx_names` reads them.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.studies.profiling import onnx_names
from tftrt_tools.studies.profiling.engine_graph import Graph, Node
from tftrt_tools.tftrt.conversion import layer_table

# product: a convolution or matrix product, with what is fused to it; pointwise: ops on single values; fused graph: Myelin's; reformat: a
# copy into another format or type; transpose: one that the layout pass put in; shuffle: other moves of values.
Role = Literal["product", "pointwise", "fused graph", "reformat", "transpose", "shuffle", "constant", "shape", "other"]
MOVES = ("reformat", "transpose", "shuffle")
# A part of a name; "squeeze_after_TRTEngineOp_…" is a layer of TensorRT's own beside it.
_PART = re.compile(r"(?<!\w)TRTEngineOp_\w+/(?P<node>[^\s,()\[\]]+?):(?P<type>[A-Z][A-Z_]*)")
_REFORMAT = re.compile(r"^Reformatting CopyNode for (?:Input|Output) Tensor \d+ to (?P<layer>.*)$", re.DOTALL)
_OF_TF_TRT = "TRTEngineOp_"
_LAYOUT = "-LayoutOptimizer"
_OWN_CONSTANT = "_tftrt_constant_"
_PRODUCTS = frozenset({"CONVOLUTION", "DECONVOLUTION", "FULLY_CONNECTED", "MATRIX_MULTIPLY", "EINSUM"})
_MOVING = frozenset({"SHUFFLE", "CONSTANT", "IDENTITY", "SLICE", "CONCATENATION", "GATHER"})
_ENDS = ("_Arg", "_Retval")
# Of ONNX: they become types of the tensors between layers.
_ROUNDING = ("QuantizeLinear", "DequantizeLinear")
_SHAPES = ("[ShapeHostToDeviceCopy", "[HostToDeviceCopy", "[DeviceToShapeHostCopy", "[DeviceToHostCopy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer(records.Record):
    """A layer of an engine by its name."""

    # TensorRT's, without the mark of a profile.
    name: str
    role: Role
    # The nodes that it holds, in the graph's order.
    nodes: tuple[str, ...] = ()
    # Of a reformat: the name of the layer that it is made for.
    beside: str = ""


def short(name: str) -> str:
    """A layer's name without the engine's name and the types of its parts."""
    return re.sub(r"TRTEngineOp_\w+/", "", re.sub(r":[A-Z][A-Z_]+(?=\W|_\(|$)", "", name))


def of_names(
    names: Iterable[str], graph: Graph | None, rows: Mapping[str, layer_table.Row] | None = None
) -> tuple[Layer, ...]:
    """The layers of one profile, in the order given.

    Args: names: TensorRT's. graph: the segment; without it the nodes are guessed from the names, and a fused graph has only its ends.
      rows: {name: the layer in the log of the build}, where that is known: a layer that writes a node's tensor computes it, too.
    """
    rows = rows or {}
    plain = [layer_table.without_profile(name)[0] for name in names]
    layers = [_named(name, graph, rows[name].kind if name in rows else "") for name in plain]
    if graph is None:
        return tuple(layers)
    return _filled(_written(layers, graph, rows), graph)


def _written(layers: Sequence[Layer], graph: Graph, rows: Mapping[str, layer_table.Row]) -> list[Layer]:
    """Add the nodes whose tensors a layer writes and that no layer names: TensorRT takes a factor into the product before it, say. Of an
    ONNX file's nodes also those on the way to them."""
    named = set(holders(layers)) | constants(graph) | {node.name for node in graph.nodes if node.op in _ENDS}
    order = {node: place for place, node in enumerate(graph.by_name)}
    nodes = [set(layer.nodes) for layer in layers]
    for place, layer in enumerate(layers):
        writes = rows[layer.name].outputs if layer.name in rows and layer.role != "reformat" else ()
        more = {
            name
            for name in (graph.tensors.get(tensor.name, tensor.name) for tensor in writes)
            if name in order and name not in named
        }
        if graph.tensors:
            nodes[_computing(place, layers, rows)] |= _behind(more, named, graph)
        else:
            nodes[place] |= more
    return [
        dataclasses.replace(layer, nodes=tuple(sorted(own, key=order.__getitem__)))
        for layer, own in zip(layers, nodes, strict=True)
    ]


def _behind(ends: Iterable[str], named: AbstractSet[str], graph: Graph) -> set[str]:
    """Nodes, and those that no layer names on the way to them."""
    names: set[str] = set()
    todo = list(ends)
    while todo:
        node = todo.pop()
        if node not in named | names:
            names.add(node)
            todo += graph.by_name[node].inputs
    return names


def _computing(place: int, layers: Sequence[Layer], rows: Mapping[str, layer_table.Row]) -> int:
    """The place of the layer that computes what the layer at `place` writes: another one, if this is a move of TensorRT's own behind it."""
    writers = {
        tensor.name: number
        for number, layer in enumerate(layers)
        if layer.name in rows
        for tensor in rows[layer.name].outputs
    }
    at, seen = place, {place}
    while not layers[at].nodes and layers[at].role in MOVES and layers[at].name in rows:
        before = next((writers[tensor.name] for tensor in rows[layers[at].name].inputs if tensor.name in writers), at)
        if before in seen:
            return place
        at = before
        seen.add(at)
    return at


def _named(name: str, graph: Graph | None, kind: str = "") -> Layer:
    reformat = _REFORMAT.match(name)
    if reformat:
        return Layer(name=name, role="reformat", beside=reformat["layer"])
    if _OF_TF_TRT not in name and (graph.tensors if graph else not name.startswith(("(", "["))):
        return _of_a_plan(name, graph, kind)
    parts = [(match["node"], match["type"]) for match in _PART.finditer(name)]
    nodes = dict.fromkeys(node for part, _ in parts if (node := _node(part, graph)) is not None)
    order = {node: place for place, node in enumerate(graph.by_name)} if graph else {}
    return Layer(name=name, role=_role(name, parts), nodes=tuple(sorted(nodes, key=lambda node: order.get(node, 0))))


def _of_a_plan(name: str, graph: Graph | None, kind: str) -> Layer:
    held = onnx_names.nodes(name, graph)
    order = {node: place for place, node in enumerate(graph.by_name)} if graph else {}
    role = "shape" if name.startswith(_SHAPES) else typing.cast(Role, onnx_names.role(name, held, graph, kind))
    return Layer(name=name, role=role, nodes=tuple(sorted(dict.fromkeys(held), key=lambda node: order.get(node, 0))))


def _role(name: str, parts: Sequence[tuple[str, str]]) -> Role:
    types = {kind for _, kind in parts}
    if name.startswith("{ForeignNode["):
        return "fused graph"
    if name.startswith(_SHAPES):
        return "shape"
    if types & _PRODUCTS:
        return "product"
    if types == {"CONSTANT"} or name.endswith("[Constant]"):
        return "constant"
    if types and types <= _MOVING or not parts and ("[Shuffle]" in name or "squeeze" in name):
        return "transpose" if any(_LAYOUT in part for part, _ in parts) else "shuffle"
    if name.startswith("PWN("):
        return "pointwise"
    return "shuffle" if "squeeze_after_" in name and not parts else "other"


def _node(part: str, graph: Graph | None) -> str | None:
    """The TensorFlow node of a part; None for what the layout pass or TF-TRT put in. A node can become several layers, whose names have
    suffixes: "-conv", "-FULLY_CONNECTED-shuffle_0"."""
    if _LAYOUT in part or _OWN_CONSTANT in part:
        return None
    if graph is None:
        return re.sub(r"-[A-Za-z_]+(?:-?\w+)?$", "", part)
    while part not in graph.by_name:
        part, dash, _ = part.rpartition("-")
        if not dash:
            return None
    return part


def _filled(layers: Sequence[Layer], graph: Graph) -> tuple[Layer, ...]:
    """Give the fused graphs the nodes inside of them: those that no layer names, from their ends backwards."""
    left = {node.name for node in graph.nodes} - {
        node for layer in layers if layer.role != "fused graph" for node in layer.nodes
    }
    left -= constants(graph) | {node.name for node in graph.nodes if node.op in _ENDS}
    inside: dict[int, set[str]] = {}
    for index, layer in enumerate(layers):
        if layer.role == "fused graph":
            inside[index] = _between(layer.nodes, left, graph)
            left -= inside[index]
    # What is not before an end goes to the part whose nodes it reads, or that reads it.
    for node in [name.name for name in graph.nodes if name.name in left]:
        beside = {*graph.by_name[node].inputs, *graph.readers[node]}
        owner = next((index for index, nodes in inside.items() if nodes & beside), None)
        if owner is not None:
            inside[owner].add(node)
    order = {node: place for place, node in enumerate(graph.by_name)}
    return tuple(
        dataclasses.replace(layer, nodes=tuple(sorted(inside[index], key=order.__getitem__)))
        if index in inside
        else layer
        for index, layer in enumerate(layers)
    )


def _between(ends: Sequence[str], left: AbstractSet[str], graph: Graph) -> set[str]:
    reached: set[str] = set()
    # An end may be a helper of a node whose product is a layer of its own.
    todo = [node for end in ends for node in (end, *graph.by_name[end].inputs) if node in left]
    while todo:
        node = todo.pop()
        if node not in reached:
            reached.add(node)
            todo += [source for source in graph.by_name[node].inputs if source in left]
    return reached


def constants(graph: Graph) -> set[str]:
    """Names of the nodes whose values do not depend on the engine's inputs: TF-TRT computes them before TensorRT sees the graph."""
    reached: set[str] = set()
    for node in graph.nodes:  # inputs come before their readers
        if (
            node.op == "Const"
            or node.inputs
            and node.op not in _ENDS
            and all(source in reached for source in node.inputs)
        ):
            reached.add(node.name)
    return reached


def holders(layers: Sequence[Layer]) -> Mapping[str, tuple[int, ...]]:
    """{node: places of the layers that hold it}."""
    places_of: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        for node in layer.nodes:
            places_of.setdefault(node, []).append(place)
    return {node: tuple(places) for node, places in places_of.items()}


def homeless(layers: Sequence[Layer], graph: Graph) -> tuple[str, ...]:
    """Nodes that compute something and are in no layer: TensorRT or TF-TRT removed them. Sizes are not meant: they are computed apart."""
    held = set(holders(layers)) | constants(graph)
    return tuple(
        node.name
        for node in graph.nodes
        if node.name not in held and not _is_size(node) and node.op not in {*_ENDS, "Identity", "Snapshot", *_ROUNDING}
    )


def _is_size(node: Node) -> bool:
    return all(
        tensor.type in ("int32", "int64") and tensor.shape is not None and len(tensor.shape) < 2
        for tensor in node.outputs
    )
