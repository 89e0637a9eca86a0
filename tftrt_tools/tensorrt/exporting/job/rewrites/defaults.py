"""Attributes that are left out, and that have another value for TensorRT's parser then: written.

A Trilu keeps the upper triangle if nothing is said, and the parser the lower one; a RoiAlign takes as many samples as a bin holds, and the
parser one (builtin_op_importers.cpp of onnx-tensorrt at release/8.5-GA and release/8.6-GA, onnxOpImporters.cpp at 10.1-GA).
"""

from __future__ import annotations

import dataclasses

import onnx
from onnx import helper

from tftrt_tools.tensorrt.exporting.job import opsets
from tftrt_tools.tensorrt.exporting.job.graph_facts import all_nodes


@dataclasses.dataclass(frozen=True)
class Default:
    """An attribute, with its value where it is left out: of ONNX, and of the parser."""

    name: str
    onnx: int
    parser: int


_OTHER = {"Trilu": Default("upper", 1, 0), "RoiAlign": Default("sampling_ratio", 0, 1)}


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write them in place, also in graphs within nodes. Returns: how many."""
    found = [(node, left) for node in all_nodes(model.graph) if (left := left_out(node))]
    for node, left in found:
        node.attribute.append(helper.make_attribute(left.name, left.onnx))
    return len(found)


def left_out(node: onnx.NodeProto) -> Default | None:
    """The attribute that a node leaves out; None for a node that the parser takes as ONNX does."""
    default = _OTHER.get(node.op_type) if node.domain in opsets.OWN else None
    return default if default and all(one.name != default.name for one in node.attribute) else None
