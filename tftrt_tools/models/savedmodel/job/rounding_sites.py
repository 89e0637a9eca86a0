"""The nodes inside engines at which TensorRT rounds to INT8 or FP16, for a simulation of it. Works on protos alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import types_pb2

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.engine_op import PASSIVE_OPS

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

# Where the weights are: {op: (input index of the constant, axes of its output channels)}; either input of a MatMul may be the constant.
_CONVOLUTIONS = {
    "Conv2D": (1, (3,)),
    "Conv3D": (1, (4,)),
    "DepthwiseConv2dNative": (1, (2, 3)),
    "Conv2DBackpropInput": (1, (2,)),
    "Conv3DBackpropInputV2": (1, (3,)),
}
_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"),
    "BatchMatMul": ("adj_x", "adj_y"),
    "BatchMatMulV2": ("adj_x", "adj_y"),
}
# Ops of two tensors; with a constant they are a convolution's bias or normalisation, and part of its kernel.
_ELEMENTWISE = frozenset({"Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum"})
_POOLS = frozenset({"AvgPool", "AvgPool3D"})
# Ops that move values and do not round.
_MOVERS = (
    frozenset(
        {
            "Reshape",
            "Squeeze",
            "ExpandDims",
            "Transpose",
            "ConcatV2",
            "Concat",
            "Pack",
            "Unpack",
            "Slice",
            "StridedSlice",
            "Split",
            "SplitV",
            "GatherV2",
            "Gather",
            "Tile",
            "Shape",
            "Pad",
            "PadV2",
            "MirrorPad",
            "MaxPool",
            "MaxPool3D",
            "Relu",
            "Maximum",
            "Minimum",
            "DepthToSpace",
            "SpaceToDepth",
            "BroadcastTo",
            "Fill",
            "ResizeNearestNeighbor",
        }
    )
    | PASSIVE_OPS
)
_SIZES = {"Conv2DBackpropInput": (0,), "Conv3DBackpropInputV2": (0,)}


@dataclasses.dataclass(frozen=True)
class Weight:
    """A constant input. index: of the input; constant: name of the Const node; channels: axes of the output channels."""

    index: int
    constant: str
    channels: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """A node that can round."""

    # The node's name in the graph.
    node: str
    # The node's name in the original model.
    name: str
    op: str
    # Name of the engine op that it came from.
    engine: str
    # (input index, tensor "node:port") of its float inputs that vary.
    activations: tuple[tuple[int, str], ...]
    weights: tuple[Weight, ...]
    # Ports of its float outputs.
    outputs: tuple[int, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that it rounds."""
        return tuple(tensor for _, tensor in self.activations)


def int8_sites(graph_def: graph_pb2.GraphDef, tensors: Mapping[str, dict[str, str]]) -> tuple[Site, ...]:
    """Where INT8 rounds: the inputs and weights of convolutions and matrix products, and the inputs of element-wise ops of two tensors
    and of average pooling.

    TensorRT runs a convolution with the normalisation, bias and ReLU behind it as one kernel, which takes INT8 and gives INT8: the tensors
    between them are never rounded. Max pooling, reshapes and concatenations pass values on, which are rounded once, where they are read
    next. Softmax, reductions and normalisations by the batch's own statistics have no INT8 kernels.

    Args: graph_def, tensors: of inline.inline_segments. Returns: (Site, …), in graph order.
    """
    return tuple(site for site in _sites(graph_def, tensors, _int8_channels) if site.activations and _int8(site))


def fp16_sites(graph_def: graph_pb2.GraphDef, tensors: Mapping[str, dict[str, str]]) -> tuple[Site, ...]:
    """Where FP16 rounds: float inputs, weights and outputs of every node that computes values. Arguments as for int8_sites."""
    return tuple(site for site in _sites(graph_def, tensors, lambda node, index, rank: ()) if site.op not in _MOVERS)


def _int8(site: Site) -> bool:
    if site.op in _CONVOLUTIONS or site.op in _PRODUCTS or site.op in _POOLS:
        return True
    return site.op in _ELEMENTWISE and len(site.activations) == 2


def _int8_channels(node: node_def_pb2.NodeDef, index: int, rank: int) -> tuple[int, ...]:
    """Axes of a constant input that have a scale for each index."""
    if node.op in _CONVOLUTIONS:
        return _CONVOLUTIONS[node.op][1]
    if node.op in _PRODUCTS:
        transposed = node.attr[_PRODUCTS[node.op][index]].b
        # Rows of the left and columns of the right factor become the product's.
        return (rank - (1 if transposed == (index == 0) else 2),)
    return ()


def _sites(
    graph_def: graph_pb2.GraphDef,
    tensors: Mapping[str, dict[str, str]],
    channels: Callable[[node_def_pb2.NodeDef, int, int], tuple[int, ...]],
) -> Iterator[Site]:
    nodes = {node.name: node for node in graph_def.node}
    for name, (engine, inner) in _inner_nodes(tensors).items():
        node = nodes.get(name)
        if node is None or node.op == "Const" or not _known(node.op):
            continue
        activations, weights = [], []
        sources = [source for source in node.input if not source.startswith("^")]
        for index, kind in enumerate(_types(node, "input_arg")):
            if kind != types_pb2.DT_FLOAT or index in _SIZES.get(node.op, ()):
                continue
            constant = _constant(sources[index], nodes)
            if constant is None:
                activations.append((index, sources[index] if ":" in sources[index] else f"{sources[index]}:0"))
            else:
                rank = len(constant.attr["value"].tensor.tensor_shape.dim)
                weights.append(Weight(index, constant.name, channels(node, index, rank)))
        outputs = tuple(port for port, kind in enumerate(_types(node, "output_arg")) if kind == types_pb2.DT_FLOAT)
        if activations or outputs:
            yield Site(
                node=name,
                name=inner,
                op=node.op,
                engine=engine,
                activations=tuple(activations),
                weights=tuple(weights),
                outputs=outputs,
            )


def _inner_nodes(tensors: Mapping[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    """{node of the graph: (engine, node of the segment)}, without arguments and results, which are other nodes' tensors."""
    sites = {}
    for engine, inner in tensors.items():
        for name, outer in inner.items():
            if outer.endswith(f"/{name}") and engine in outer[: -len(name)]:
                sites[outer.rpartition(":")[0]] = (engine, name.rpartition(":")[0])
    return sites


def _known(op: str) -> bool:
    try:
        return tf_private.op_def(op) is not None
    except KeyError:
        return False


def _types(node: node_def_pb2.NodeDef, which: str) -> list[int]:
    """DataType numbers of a node's inputs ("input_arg") or outputs ("output_arg"), one a tensor."""
    op = tf_private.op_def(node.op)
    defaults = {attr.name: attr.default_value for attr in op.attr}

    def attribute(name: str) -> Any:
        return node.attr[name] if name in node.attr else defaults[name]

    dtypes = []
    for arg in getattr(op, which):
        if arg.type_list_attr:
            dtypes += list(attribute(arg.type_list_attr).list.type)
            continue
        count = attribute(arg.number_attr).i if arg.number_attr else 1
        dtypes += [arg.type or attribute(arg.type_attr).type] * count
    return dtypes


def _constant(source: str, nodes: Mapping[str, node_def_pb2.NodeDef]) -> node_def_pb2.NodeDef | None:
    """The Const node whose value `source` passes on, or None."""
    node = nodes.get(source.partition(":")[0])
    while node is not None and node.op == "Identity":
        node = nodes.get(node.input[0].partition(":")[0])
    return node if node is not None and node.op == "Const" else None


class Aliases:
    """Which tensors only pass on the values of others."""

    _OPS = frozenset({"Identity", "Snapshot", "StopGradient", "Reshape", "Squeeze", "ExpandDims", "Transpose"})

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self._passed_on = {f"{node.name}:0": node.input[0] for node in graph_def.node if node.op in self._OPS}

    def source(self, tensor: str) -> str:
        """The tensor "node:port" that computed the values of `tensor`."""
        while tensor in self._passed_on:
            tensor = self._passed_on[tensor]
            tensor = tensor if ":" in tensor else f"{tensor}:0"
        return tensor
