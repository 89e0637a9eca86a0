"""Which nodes of an ONNX file a layer of a plan holds, by the name that TensorRT gives the layer.

TensorRT's parser names a layer after its node, and the builder joins the names of what it fuses: with " + ", as PWN(A, B) for pointwise
ops, as {ForeignNode[first...last]} for a part of the network that its compiler Myelin takes whole. A constant goes by the name of its
tensor. Seen with TensorRT 8.5.3 on an H100 (tests/data/plans).
"""

from __future__ import annotations

import re
from collections.abc import Container

FOREIGN = "{ForeignNode["
_BETWEEN = re.compile(r" \+ |\.\.\.|, ")
# Layers of TensorRT's own beside a node, and what has no name.
OWN = re.compile(
    r"^(?:copied_)?(?:re|un)?(?:shape|squeeze|shuffle|transpose)_(?:before|after|between)_|^\(Unnamed Layer\*|^\["
)
# What TensorRT puts behind the name of a node that becomes several layers.
_SUFFIX = re.compile(r"(?:_\d+|_(?:output_)?cast|_(?:de)?quantize_scale_node|_out_tensor)$")


def parts(name: str) -> list[str]:
    """The parts of a layer's name that may be nodes or constants, in its order."""
    plain = name.removeprefix(FOREIGN).removesuffix("]}") if name.startswith(FOREIGN) else name.replace("PWN(", "")
    found = (part if part.startswith("(Unnamed") else part.rstrip(")") for part in _BETWEEN.split(plain))
    return [part for part in found if part and not OWN.match(part)]


def held(name: str, known: Container[str]) -> list[str]:
    """The nodes that a layer's name names, in its order. Args: known: names of the file's nodes."""
    return [node for part in parts(name) if (node := _node(part, known))]


def _node(part: str, nodes: Container[str]) -> str:
    while part not in nodes:
        shorter = _SUFFIX.sub("", part)
        if shorter == part:
            return ""
        part = shorter
    return part
