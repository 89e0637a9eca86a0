"""The nodes of an ONNX graph, as far as a parser's rules ask for them. The package onnx is not imported here."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel.engine_op import Shape

# The "ops" of the graph's own inputs and outputs, which are listed as nodes.
INPUT, OUTPUT = "input", "output"


@dataclasses.dataclass(frozen=True)
class Value(records.Record):
    """An input or output of a node. dtype: as NumPy names it, or "string", or "" if it is not known; shape: None if it is not known;
    constant: whether the file holds it."""

    name: str
    dtype: str
    shape: Shape
    constant: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node(records.Record):
    """A node of the graph, or of a graph within a node; or an input or output of the graph, with the one value."""

    name: str
    # "MatMul"; with its domain, "ai.onnx.ml.LabelEncoder", if it is not ONNX's own.
    op: str
    # An input that was left out has the name "".
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    # An INT64 constant among its inputs that does not fit into INT32, the one of the largest size; None without one.
    beyond_int32: int | None = None
    # Whether it is a conditional whose branches are known to give tensors of different ranks.
    other_ranks: bool = False
    # Whether it is a Resize to the nearest pixel of half pixels (tf_half_pixel_for_nn) that rounds otherwise than round_prefer_floor.
    half_pixels: bool = False
    # What the parser of TensorRT 8 reads otherwise, although the answer depends on it; "" for a node that it reads as it is. Whether that
    # of TensorRT 10 does so, too.
    unread: str = ""
    unread_newer: bool = False
