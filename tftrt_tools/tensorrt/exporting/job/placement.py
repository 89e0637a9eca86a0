"""Which tensors of an ONNX graph are rounded to INT8, so that TensorRT computes the nodes behind them in INT8.

NVIDIA's recommendations for the placing of Q/DQ (TensorRT's developer guide, "Explicit Quantization"; its toolkits for PyTorch and
TensorFlow do the same) say:

- All inputs of convolutions and products with constant weights are rounded, the weights for each output channel. Outputs are not: the
  rounding of the next node's input moves up to them, through activations, poolings of the largest and changes of form.
- Where a convolution's result is added to a computed tensor, that other tensor is rounded as well, and the convolution's result is not:
  then the addition is one kernel with the convolution, which reads and writes 8 bits. Of two convolutions' results the later one stays.
- An average is rounded where everything behind it is rounded, too: else 8 bits would cost accuracy and save nothing.

One rule is from measurements (docs/dev/measured/qdq.md): where element-wise nodes read a convolution's result beside another convolution,
they read the rounded values. Else the first convolution writes wider values, and one more kernel rounds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

import onnx

from tftrt_tools.tensorrt.exporting.job import spectra
from tftrt_tools.tensorrt.exporting.job.graph_facts import SAME_VALUES, Facts, inner_nodes, name_of
from tftrt_tools.tensorrt.exporting.precision import NodePrecision

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_WEIGHTED = (*_CONVOLUTIONS, "Gemm", "MatMul")
_AVERAGES = ("AveragePool", "GlobalAveragePool")
# What TensorRT makes one layer with the convolution before it, so that an addition behind it can follow.
_FUSED = frozenset({"BatchNormalization", "Add", "Mul", "Identity"})
# What TensorRT makes one kernel with its like.
_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "Clip",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Max",
        "Min",
        "Mish",
        "Mul",
        "Neg",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Tanh",
    }
)
_PASSING = _ELEMENTWISE | SAME_VALUES
_BY_USER = "--fp32_nodes names it"


@dataclasses.dataclass(frozen=True)
class Weights:
    """Constant weights. tensor: their name; axis: that of the output channels."""

    tensor: str
    axis: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """A node whose inputs are rounded."""

    node: str
    op: str
    # The indices of its computed inputs that are rounded, and the tensors there.
    inputs: tuple[tuple[int, str], ...]
    # Its constant weights, which are always the second input; None without.
    weights: Weights | None = None

    @property
    def tensors(self) -> tuple[str, ...]:
        """The computed tensors that are rounded for it."""
        return tuple(tensor for _, tensor in self.inputs)


@dataclasses.dataclass(frozen=True)
class Placement:
    """sites: the nodes that are rounded, in order; left: those that TensorRT could take and that stay, with the reason."""

    sites: tuple[Site, ...]
    left: tuple[NodePrecision, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The computed tensors that need a scale."""
        return tuple(dict.fromkeys(tensor for site in self.sites for tensor in site.tensors))

    def without(self, names: Collection[str], reason: str) -> Placement:
        """The Placement with some nodes left."""
        gone = [site for site in self.sites if site.node in names]
        return Placement(
            tuple(site for site in self.sites if site.node not in names),
            (*self.left, *(_left(one, reason) for one in gone)),
        )

    def with_scales(self, known: Collection[str], where: str) -> Placement:
        """The Placement without nodes that read a tensor without a scale. Args: where: no scale is known from there, for the reason."""
        missing = {site.node: tensor for site in self.sites for tensor in site.tensors if tensor not in known}
        sites = tuple(site for site in self.sites if site.node not in missing)
        return Placement(
            sites,
            (
                *self.left,
                *(
                    _left(site, f"{where} no range of {missing[site.node]}")
                    for site in self.sites
                    if site.node in missing
                ),
            ),
        )

    def nodes(self) -> tuple[NodePrecision, ...]:
        """What becomes of each."""
        return (*(NodePrecision(name=site.node, op=site.op, precision="INT8") for site in self.sites), *self.left)


def _left(site: Site, reason: str) -> NodePrecision:
    return NodePrecision(name=site.node, op=site.op, precision="FP32", reason=reason)


def place(model: onnx.ModelProto, kept: Collection[str], why: Mapping[str, str] | None = None) -> Placement:
    """Choose the nodes. Args: model: with inferred types and shapes; kept: names of the nodes that stay in FP32, of the user's; why: {name:
    reason} of further ones."""
    facts = Facts(model)
    stay = {**spectra.products(facts), **dict.fromkeys(kept, _BY_USER), **(why or {})}
    sites: dict[int, Site] = {}
    reasons: dict[int, str] = {}
    for node in facts.nodes:
        if node.op_type in _WEIGHTED and facts.is_float(node.output[0]):
            found = stay.get(name_of(node)) or _weighted(facts, node)
            if isinstance(found, str):
                reasons[id(node)] = found
            else:
                sites[id(node)] = Site(node=name_of(node), op=node.op_type, inputs=((0, node.input[0]),), weights=found)
    for node in facts.nodes:
        if node.op_type == "Add" and (index := _other_side(facts, node, sites)) is not None:
            if name_of(node) in stay:
                reasons[id(node)] = stay[name_of(node)]
            else:
                sites[id(node)] = Site(node=name_of(node), op="Add", inputs=((index, node.input[index]),))
    # From behind: an average may feed another one.
    for node in reversed(facts.nodes):
        if node.op_type in _AVERAGES and facts.is_float(node.output[0]):
            reason = stay.get(name_of(node)) or _average(facts, node, sites)
            if reason:
                reasons[id(node)] = reason
            else:
                sites[id(node)] = Site(node=name_of(node), op=node.op_type, inputs=((0, node.input[0]),))
    for tensor, beside in [(tensor, _beside(facts, tensor, sites)) for tensor in _results(facts, sites)]:
        if named := [node for node in beside if name_of(node) in stay]:
            reasons.update({id(node): stay[name_of(node)] for node in named})
            continue
        for node in beside:
            known = sites.get(id(node), Site(node=name_of(node), op=node.op_type, inputs=()))
            here = tuple((index, one) for index, one in enumerate(node.input) if one == tensor)
            sites[id(node)] = dataclasses.replace(known, inputs=(*known.inputs, *here))
    left = tuple(
        NodePrecision(name=name_of(node), op=node.op_type, precision="FP32", reason=reasons[id(node)])
        for node in facts.nodes
        if id(node) in reasons
    )
    left += tuple(
        NodePrecision(name=name_of(node), op=node.op_type, precision="FP32", reason="it is inside a loop or a branch")
        for node in inner_nodes(model.graph)
        if node.op_type in _WEIGHTED
    )
    return Placement(tuple(sites[id(node)] for node in facts.nodes if id(node) in sites), left)


def last(model: onnx.ModelProto, placement: Placement) -> frozenset[str]:
    """The nodes with weights behind which no other one is rounded: the classifier, or the heads."""
    weighted = {site.node for site in placement.sites if site.weights}
    leading: set[str] = set()
    found = set()
    for node in reversed(model.graph.node):
        leads, own = not leading.isdisjoint(node.output), name_of(node) in weighted
        if own and not leads:
            found.add(name_of(node))
        if own or leads:
            leading.update(node.input)
    return frozenset(found)


def _weighted(facts: Facts, node: onnx.NodeProto) -> Weights | str:
    """The weights of a node; or why it stays in FP32."""
    if facts.is_constant(node.input[0]):
        return (
            "its first input is constant"
            if facts.is_constant(node.input[1])
            else "its weights are the first input, and TensorRT wants them second"
        )
    values = facts.constant(node.input[1])
    if values is None:
        return "both its inputs are computed"
    if node.op_type == "Conv":
        return Weights(node.input[1], 0)
    attributes = {one.name: one for one in node.attribute}
    if node.op_type == "ConvTranspose":
        grouped = "group" in attributes and attributes["group"].i != 1
        return (
            "its channels are in groups, and the scales of its weights could not be one a channel"
            if grouped
            else Weights(node.input[1], 1)
        )
    if node.op_type == "Gemm":
        if "transA" in attributes and attributes["transA"].i:
            return "its first input is transposed"
        return Weights(node.input[1], 0 if "transB" in attributes and attributes["transB"].i else 1)
    if values.ndim != 2:
        return f"its weights have {values.ndim} dimensions, and a channel's scale needs 2"
    return Weights(node.input[1], 1)


def _other_side(facts: Facts, node: onnx.NodeProto, sites: Collection[int]) -> int | None:
    """Which input of an addition is rounded: the one beside a rounded convolution's; None if there is no such."""
    first, second = node.input
    if any(facts.is_constant(one) or not facts.is_float(one) for one in node.input) or first == second:
        return None
    shapes = facts.shape(first), facts.shape(second)
    if shapes[0] is not None and shapes[1] is not None and _broadcast(shapes[0], shapes[1]):
        return None
    places = [_convolution(facts, one, sites) for one in node.input]
    if max(places) < 0:
        return None
    return 1 - places.index(max(places))


def _broadcast(first: tuple[int | str, ...], second: tuple[int | str, ...]) -> bool:
    """Whether shapes differ for certain, or one has a 1 where the other is open; two open sizes of other names may well be equal."""
    if len(first) != len(second):
        return True
    return any(
        one != other and (isinstance(one, int) and isinstance(other, int) or 1 in (one, other))
        for one, other in zip(first, second, strict=True)
    )


def _convolution(facts: Facts, tensor: str, sites: Collection[int]) -> int:
    """The place in the graph of the rounded convolution whose result this is, which nothing else reads; -1 without."""
    while facts.alone(tensor) is not None and tensor in facts.producers:
        node = facts.producers[tensor]
        if node.op_type in _CONVOLUTIONS:
            return facts.order[id(node)] if id(node) in sites else -1
        if node.op_type not in _FUSED or any(not facts.is_constant(one) for one in node.input[1:]):
            return -1
        tensor = node.input[0]
    return -1


def _results(facts: Facts, sites: Collection[int]) -> Iterator[str]:
    """The tensors that kernels of rounded nodes with weights write."""
    for node in facts.nodes:
        if node.op_type in _WEIGHTED and id(node) in sites:
            tensor = node.output[0]
            while (reader := facts.alone(tensor)) is not None and _joins(facts, reader):
                tensor = reader.output[0]
            yield tensor


def _joins(facts: Facts, node: onnx.NodeProto) -> bool:
    """Whether TensorRT makes a node one kernel with the product before it: a bias, a normalization, a ReLU."""
    return node.op_type == "Relu" or (node.op_type in _FUSED and all(map(facts.is_constant, node.input[1:])))


def _beside(facts: Facts, tensor: str, sites: Mapping[int, Site]) -> list[onnx.NodeProto]:
    """The element-wise nodes that read a tensor beside rounded nodes with weights; [] if anything else reads it, or what becomes of it."""
    rounded, others = (
        [node for node in facts.readers.get(tensor, ()) if _rounds(sites, node, tensor) == own] for own in (True, False)
    )
    if tensor in facts.outputs or not any(sites[id(node)].weights for node in rounded):
        return []
    return others if all(_comes_to_rounding(facts, node, sites) for node in others) else []


def _rounds(sites: Mapping[int, Site], node: onnx.NodeProto, tensor: str) -> bool:
    site = sites.get(id(node))
    return site is not None and tensor in site.tensors


def _comes_to_rounding(facts: Facts, node: onnx.NodeProto, sites: Mapping[int, Site]) -> bool:
    """Whether a node is element-wise, and all that becomes of its result, through others of its kind, is rounded."""
    if node.op_type not in _ELEMENTWISE:
        return False
    pending, seen = [node], {id(node)}
    while pending:
        tensor = pending.pop().output[0]
        readers = [one for one in facts.readers.get(tensor, ()) if not _rounds(sites, one, tensor)]
        if (
            tensor in facts.outputs
            or tensor not in facts.readers
            or any(one.op_type not in _PASSING for one in readers)
        ):
            return False
        pending += [one for one in readers if id(one) not in seen]
        seen.update(map(id, readers))
    return True


def _average(facts: Facts, node: onnx.NodeProto, sites: dict[int, Site]) -> str:
    """Why an average stays in FP32, or ""."""
    for reader, tensor in _readers(facts, node.output[0]):
        if reader is None:
            return "its result is an output"
        site = sites.get(id(reader))
        if site is None or tensor not in site.tensors:
            return f"{reader.op_type} {name_of(reader)} behind it is not in INT8"
    return ""


def _readers(facts: Facts, tensor: str) -> Iterator[tuple[onnx.NodeProto | None, str]]:
    """(node, the tensor that it reads) of what reads a tensor's values, through changes of form; None for an output of the graph."""
    if tensor in facts.outputs:
        yield None, tensor
    for reader in facts.readers.get(tensor, ()):
        if reader.op_type in SAME_VALUES and reader.input[0] == tensor:
            yield from _readers(facts, reader.output[0])
        else:
            yield reader, tensor
