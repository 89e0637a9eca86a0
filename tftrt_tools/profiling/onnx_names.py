"""Which nodes of an ONNX file a layer of a plan holds, by the name that TensorRT gives the layer.

TensorRT's parser names a layer after its node, and the builder joins the names of what it fuses: with " + ", as PWN(A, B) for pointwise
ops, as {ForeignNode[first...last]} for a part of the network that its compiler Myelin takes whole. A constant goes by the name of its
tensor. Seen with TensorRT 8.5.3 on an H100 (tests/data/plan_layers_*.json.gz).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tftrt_tools.profiling.engine_graph import Graph

FOREIGN = "{ForeignNode["
_BETWEEN = re.compile(r" \+ |\.\.\.|, ")
# Layers of TensorRT's own beside a node, and what has no name.
_OWN = re.compile(r"^(?:copied_)?(?:re|un)?(?:shape|squeeze|shuffle|transpose)_(?:before|after|between)_|^\(Unnamed Layer\*|^\[")
# What TensorRT puts behind the name of a node that becomes several layers.
_SUFFIX = re.compile(r"(?:_\d+|_(?:output_)?cast|_(?:de)?quantize_scale_node|_out_tensor)$")
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
_MOVING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Slice", "Split", "Concat", "Gather", "Identity", "Pad",
                     "Tile", "Shape", "Cast"})
# TensorRT's kinds of layers that multiply, and of those that only move values.
_MULTIPLYING = re.compile(r"Convolution|Gemm|MatrixMultiply|Deconvolution")
_KINDS_OF_ROLES = {"Reformat": "reformat", "Shuffle": "shuffle", "NoOp": "shuffle", "Constant": "constant", "Slice": "shuffle",
                   "Concat": "shuffle", "Concatenation": "shuffle", "Gather": "shuffle"}


def nodes(name: str, graph: Graph | None) -> list[str]:
    """The nodes that a layer's name names, in its order. Args: graph: of the ONNX file; without it all parts of the name count."""
    plain = name.removeprefix(FOREIGN).removesuffix("]}") if name.startswith(FOREIGN) else name.replace("PWN(", "")
    parts = [part if part.startswith("(Unnamed") else part.rstrip(")") for part in _BETWEEN.split(plain)]
    own = [part for part in parts if part and not _OWN.match(part)]
    return own if graph is None else [node for part in own if (node := _node(part, graph)) is not None]


def _node(part: str, graph: Graph) -> str | None:
    while part not in graph.by_name:
        shorter = _SUFFIX.sub("", part)
        if shorter == part:
            return None
        part = shorter
    return None if graph.by_name[part].op == "Const" else part


def role(name: str, held: Sequence[str], graph: Graph | None, kind: str) -> str:
    """What a layer is, one of layers.Role. Args: held: of `nodes`. kind: TensorRT's kind of it, "" where that is not known."""
    ops = {graph.by_name[node].op for node in held} if graph else set()
    if name.startswith(FOREIGN) or kind == "Myelin":
        return "fused graph"
    if ops & _PRODUCTS or _MULTIPLYING.search(kind):
        return "product"
    if ops == {"Transpose"}:
        return "transpose"
    if kind in _KINDS_OF_ROLES:
        return _KINDS_OF_ROLES[kind]
    if name.startswith("PWN(") or kind.startswith("PointWise"):
        return "pointwise"
    if ops and ops <= _MOVING or not held and not kind:
        return "constant" if name.endswith("[Constant]") else "shuffle" if ops or _OWN.match(name) else "other"
    return "other"
