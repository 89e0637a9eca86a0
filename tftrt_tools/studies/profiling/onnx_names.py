"""What a layer of a plan is, and which nodes of an ONNX graph it holds, by the name that TensorRT gives the layer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tftrt_tools.models.kinds.plan import layer_names
from tftrt_tools.models.kinds.plan.layer_names import FOREIGN
from tftrt_tools.studies.profiling.engine_graph import Graph

_PRODUCTS = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "MatMul",
        "Gemm",
        "Einsum",
        "ConvInteger",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
    }
)
_MOVING = frozenset(
    {
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Slice",
        "Split",
        "Concat",
        "Gather",
        "Identity",
        "Pad",
        "Tile",
        "Shape",
        "Cast",
    }
)
# TensorRT's kinds of layers that multiply, and of those that only move values.
_MULTIPLYING = re.compile(r"Convolution|Gemm|MatrixMultiply|Deconvolution")
_KINDS_OF_ROLES = {
    "Reformat": "reformat",
    "Shuffle": "shuffle",
    "NoOp": "shuffle",
    "Constant": "constant",
    "Slice": "shuffle",
    "Concat": "shuffle",
    "Concatenation": "shuffle",
    "Gather": "shuffle",
}


def nodes(name: str, graph: Graph | None) -> list[str]:
    """The nodes that a layer's name names, in its order. Args: graph: of the ONNX file; without it all parts of the name count."""
    if graph is None:
        return layer_names.parts(name)
    return [node for node in layer_names.held(name, graph.by_name) if graph.by_name[node].op != "Const"]


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
        return (
            "constant" if name.endswith("[Constant]") else "shuffle" if ops or layer_names.OWN.match(name) else "other"
        )
    return "other"
