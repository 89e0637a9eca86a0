"""Which usual groups of nodes an engine computes in one layer, and which it does not, with the reason that graph or layers show.

A group begins at a convolution or matrix product and goes on with what its answer alone feeds: scale and bias, a residual sum, an
activation; attention is two products around a softmax. TensorRT 8.5 has kernels that do these at once, or Myelin takes them whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.studies.profiling import layers as layers_module
from tftrt_tools.studies.profiling.engine_graph import Graph, Node
from tftrt_tools.studies.profiling.layers import Layer
from tftrt_tools.tftrt.conversion import layer_table

Kind = Literal["convolution", "product", "attention"]
# reader: another node or an output of the engine reads the value, too; between: an op stands between that is not part of such a kernel;
# reformat: the value is copied into another format or type; precision: the two layers compute in different ones; single: attention is taken
# whole only by Myelin, and here it was not; not told: none of these.
Cause = Literal["reader", "between", "reformat", "precision", "single", "not told"]
# TensorFlow's ops, then ONNX's.
_CONVOLUTIONS = frozenset(
    {"Conv2D", "Conv3D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3DBackpropInputV2"}
    | {"Conv", "ConvTranspose"}
)
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"} | {"Gemm"})
_BIAS = frozenset({"BiasAdd", "Add", "AddV2", "Sub", "Mul", "RealDiv"} | {"Div"})
_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"} | {"BatchNormalization"})
_SUMS = frozenset({"Add", "AddV2"})
_ACTIVATIONS = frozenset(
    {"Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Softplus", "Softsign"}
    | {"Clip", "HardSigmoid", "HardSwish", "ThresholdedRelu"}
)
_PASSING = frozenset({"Identity", "Snapshot"} | {"QuantizeLinear", "DequantizeLinear"})
# They may stand between a product and what could follow in its kernel.
_BETWEEN = frozenset(
    {"Reshape", "Squeeze", "ExpandDims", "Transpose", "Cast", "Pad", "PadV2", "MirrorPad"} | {"Unsqueeze", "Flatten"}
)
_SCORES = _SUMS | {"Mul", "RealDiv", "Sub", "SelectV2", "Select", "Cast"} | {"Div", "Where"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(records.Record):
    """A place where a group falls into two layers."""

    # The last node before it and the first one behind it.
    before: str
    behind: str
    cause: Cause
    # The place in words.
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group(records.Record):
    """Nodes that usually become one layer."""

    kind: Kind
    nodes: tuple[str, ...]
    # The names of the layers that hold them, in order; one where all is fused.
    layers: tuple[str, ...]
    splits: tuple[Split, ...] = ()
    # How long the layers run that hold them without the product, and the reformats between; what fusing could save at most.
    split_seconds: float = 0.0

    @property
    def fused(self) -> bool:
        """Whether the group is one layer."""
        return not self.splits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moved(records.Record):
    """Layers that only move values."""

    # "reformat", "transpose" or "shuffle".
    role: str
    count: int
    # The number of layers that take time at all.
    running: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fusion(records.Record):
    """How an engine fused its nodes into layers."""

    groups: tuple[Group, ...]
    moved: tuple[Moved, ...]
    # Nodes that compute something and are in no layer: TF-TRT or TensorRT removed them.
    gone: tuple[str, ...] = ()

    @property
    def split(self) -> tuple[Group, ...]:
        """Groups that are not one layer, the most time that could be saved first."""
        return tuple(
            sorted((group for group in self.groups if not group.fused), key=lambda group: -group.split_seconds)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """The facts about an engine that show its fusions."""

    graph: Graph
    # The layers in the order in which they run.
    layers: Sequence[Layer]
    # {layer: how long it runs}.
    seconds: Mapping[str, float]
    # {layer: "FP16"…}, of those that are known.
    precisions: Mapping[str, str]
    # {layer: what the log of the build says of it}, where there is one.
    rows: Mapping[str, layer_table.Row]

    def time(self, place: int) -> float:
        """Seconds that a layer runs."""
        return self.seconds.get(self.layers[place].name, 0.0)


def of(engine: Engine) -> Fusion:
    """The Fusion of an engine."""
    graph, listed = engine.graph, engine.layers
    held = _holders(engine)
    groups = tuple(
        group
        for kind, nodes in _chains(graph, layers_module.constants(graph))
        if (group := _group(kind, nodes, engine, held))
    )
    moved = tuple(_moved(role, engine) for role in layers_module.MOVES if any(layer.role == role for layer in listed))
    return Fusion(groups=groups, moved=moved, gone=layers_module.homeless(listed, graph))


def _moved(role: str, engine: Engine) -> Moved:
    own = [engine.time(place) for place, layer in enumerate(engine.layers) if layer.role == role]
    return Moved(role=role, count=len(own), running=sum(one > 0 for one in own), seconds=sum(own))


# Groups in the graph ---------------------------------------------------------------------------------------------------------------------


def _chains(graph: Graph, fixed: AbstractSet[str]) -> Iterator[tuple[Kind, list[str]]]:
    """(kind, nodes in order) of groups of two nodes or more."""
    for node in graph.nodes:
        if node.name in fixed:
            continue
        if node.op in _CONVOLUTIONS | _PRODUCTS:
            chain = _chain(node, graph, fixed)
            if len(chain) > 1:
                yield "convolution" if node.op in _CONVOLUTIONS else "product", chain
        elif node.op == "Softmax":
            attention = _attention(node, graph)
            if attention:
                yield "attention", attention


def _chain(root: Node, graph: Graph, fixed: AbstractSet[str]) -> list[str]:
    """What usually follows a product in its layer: scales and biases, a residual sum, an activation. It may have second readers."""
    chain, at, summed = [root.name], root, False
    while True:
        readers = [graph.by_name[name] for name in graph.readers[at.name] if graph.by_name[name].op != "_Retval"]
        steps = [reader for reader in _past(readers, graph) if reader.name not in fixed]
        following = [node for node in steps if _follows(node, at, graph, fixed, summed)]
        # Of several readers, the nearest one: an activation before a sum.
        if not following:
            return chain
        at = min(following, key=lambda node: (node.op not in _ACTIVATIONS, list(graph.by_name).index(node.name)))
        chain.append(at.name)
        if at.op in _ACTIVATIONS:
            return chain
        summed = summed or _is_sum(at, fixed)


def _past(readers: Iterable[Node], graph: Graph) -> list[Node]:
    """Readers, and those behind nodes that only pass a value on or move it."""
    nodes: list[Node] = []
    todo = list(readers)
    while todo:
        node = todo.pop(0)
        if node.op in _PASSING | _BETWEEN:
            todo += [graph.by_name[name] for name in graph.readers[node.name]]
        else:
            nodes.append(node)
    return nodes


def _follows(node: Node, before: Node, graph: Graph, fixed: AbstractSet[str], summed: bool) -> bool:
    if node.op in _ACTIVATIONS | _NORMS:
        return True
    if node.op in _BIAS and any(source in fixed for source in node.inputs):
        return True
    # One residual sum, of two values of the same size.
    return (
        node.op in _SUMS
        and not summed
        and bool(before.outputs)
        and bool(node.outputs)
        and before.outputs[0] == node.outputs[0]
    )


def _is_sum(node: Node, fixed: AbstractSet[str]) -> bool:
    return node.op in _SUMS and not any(source in fixed for source in node.inputs)


def _attention(softmax: Node, graph: Graph) -> list[str]:
    """The nodes from the product of queries and keys to that with the values; [] where there is none."""
    before: list[str] = []
    at: Node | None = softmax
    while at is not None and at.op not in _PRODUCTS:
        before.insert(0, at.name)
        at = next((graph.by_name[name] for name in at.inputs if _leads_to_product(graph.by_name[name], graph)), None)
    behind = _past([graph.by_name[name] for name in graph.readers[softmax.name]], graph)
    after = next((node for node in behind if node.op in _PRODUCTS), None)
    return [at.name, *before, after.name] if at is not None and after is not None else []


def _leads_to_product(node: Node, graph: Graph, steps: int = 6) -> bool:
    if node.op in _PRODUCTS:
        return True
    return (
        steps > 0
        and node.op in _SCORES | _PASSING | _BETWEEN
        and any(_leads_to_product(graph.by_name[name], graph, steps - 1) for name in node.inputs)
    )


# Groups in the engine --------------------------------------------------------------------------------------------------------------------


def _holders(engine: Engine) -> dict[str, int]:
    """{node: place of the layer that computes it}: a node may have helpers that move values, too."""
    return {
        node: max(places, key=lambda place: (engine.layers[place].role not in layers_module.MOVES, engine.time(place)))
        for node, places in layers_module.holders(engine.layers).items()
    }


def _group(kind: Kind, nodes: Sequence[str], engine: Engine, held: Mapping[str, int]) -> Group | None:
    """None where fewer than two of the nodes are in layers."""
    own = _own([node for node in nodes if node in held], engine, held)
    if len(own) < 2 or nodes[0] not in held:
        return None
    places = list(dict.fromkeys(held[node] for node in own))
    splits = tuple(
        _split(kind, before, behind, nodes, engine, held)
        for before, behind in zip(own, own[1:], strict=False)
        if held[before] != held[behind]
    )
    others = {place for place in places if engine.layers[place].role != "product"} - {held[nodes[0]]}
    for first, other in zip(places, places[1:], strict=False):
        others |= set(_moves_between(first, other, engine))
    return Group(
        kind=kind,
        nodes=tuple(own),
        layers=tuple(engine.layers[place].name for place in places),
        splits=splits,
        split_seconds=sum(map(engine.time, others)),
    )


def _own(nodes: Sequence[str], engine: Engine, held: Mapping[str, int]) -> list[str]:
    """Without the residual sum and what follows it, where they are fused to the other product that the sum reads: only one can have it."""
    for place, node in enumerate(nodes[1:], 1):
        layer = engine.layers[held[node]]
        if held[node] != held[nodes[0]] and layer.role == "product" and engine.graph.by_name[node].op in _SUMS:
            return list(nodes[:place])
    return list(nodes)


def _split(
    kind: Kind, before: str, behind: str, group: Sequence[str], engine: Engine, held: Mapping[str, int]
) -> Split:
    cause, reason = _reason(before, behind, group, engine, held)
    if cause == "not told" and kind == "attention":
        cause, reason = "single", "the engine has them as single layers, not as one of Myelin's fused graphs"
    return Split(before=before, behind=behind, cause=cause, reason=reason)


def _reason(
    before: str, behind: str, group: Sequence[str], engine: Engine, held: Mapping[str, int]
) -> tuple[Cause, str]:
    graph = engine.graph
    # Nodes of the group between the two are in no layer of their own.
    path = _path(before, behind, graph, group)
    extra = [name for name in graph.readers[before] if name != behind and name not in path]
    if extra:
        output = any(graph.by_name[name].op == "_Retval" for name in extra)
        return "reader", f"{before} is an output of the engine, too" if output else f"{extra[0]} reads {before}, too"
    moving = [name for name in path if graph.by_name[name].op in _BETWEEN]
    if moving:
        return "between", ", ".join(f"{graph.by_name[name].op} {name}" for name in moving) + " stands between"
    first, other = engine.layers[held[before]], engine.layers[held[behind]]
    kinds = engine.precisions.get(first.name), engine.precisions.get(other.name)
    if all(kinds) and kinds[0] != kinds[1]:
        return "precision", f"{before} is computed in {kinds[0]}, {behind} in {kinds[1]}"
    moves = [engine.layers[place] for place in _moves_between(held[before], held[behind], engine)]
    if moves:
        roles = " and ".join(dict.fromkeys(f"a {layer.role}" for layer in moves))
        return "reformat", f"{roles} of TensorRT's own between the two"
    return "not told", "neither the graph nor the engine shows why"


def _moves_between(before: int, other: int, engine: Engine) -> list[int]:
    """Places of the layers that only move values on the way from one layer to another."""
    names = [layer.name for layer in engine.layers]
    if names[before] not in engine.rows or names[other] not in engine.rows:
        return [
            place
            for place, layer in enumerate(engine.layers)
            if layer.role == "reformat" and layer.beside == names[other]
        ]
    names_read = {tensor.name for tensor in engine.rows[names[other]].inputs}
    paths = {tensor.name: list[int]() for tensor in engine.rows[names[before]].outputs}
    todo = list(paths)
    while todo:
        at = todo.pop(0)
        if at in names_read:
            return paths[at]
        for place, layer in enumerate(engine.layers):
            row = engine.rows.get(layer.name)
            if row and layer.role in layers_module.MOVES and any(tensor.name == at for tensor in row.inputs):
                for tensor in row.outputs:
                    if tensor.name not in paths:
                        paths[tensor.name] = [*paths[at], place]
                        todo.append(tensor.name)
    return []


def _path(before: str, behind: str, graph: Graph, group: Sequence[str]) -> list[str]:
    """Nodes on the way from one node to another that only pass on or move values, or are of the group; [] where it reads it directly."""
    paths: dict[str, list[str]] = {before: []}
    todo = [before]
    while todo:
        at = todo.pop(0)
        for reader in graph.readers[at]:
            if reader == behind:
                return paths[at]
            if reader not in paths and (reader in group or graph.by_name[reader].op in _PASSING | _BETWEEN):
                paths[reader] = [*paths[at], reader]
                todo.append(reader)
    return []
