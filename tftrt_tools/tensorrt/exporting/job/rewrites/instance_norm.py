"""InstanceNormalization in float16: in float32, between casts.

onnx-tensorrt for TensorRT 8 gives the scales to its plugin as float32, whatever they are (builtin_op_importers.cpp at release/8.5-GA and
release/8.6-GA). Of float16 it then reads two as one, and beyond their end: on an H200 the answers were other numbers (8.5.3). 10.1 asks
that all inputs have one type, and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, attributes
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

OP = "InstanceNormalization"
_HALF = "float16"


def rewrite(model: onnx.ModelProto, target: str) -> int:
    """Write those whose scales are constants in place. Returns: how many."""
    facts, written = Facts(model), []
    for node in model.graph.node:
        if node.op_type != OP:
            continue
        constants = {one: facts.constant(one) for one in node.input[1:3]}
        known = {name: value for name, value in constants.items() if value is not None}
        if len(known) == len(constants) and is_half(node, {name: str(value.dtype) for name, value in known.items()}):
            writer = editing.Writer(node)
            x = writer.node("Cast", [node.input[0]], "as_float32", to=TensorProto.FLOAT)
            ends = [
                writer.constant(name, known[one].astype(np.float32))
                for name, one in zip(("scale", "shift"), node.input[1:3], strict=True)
            ]
            normal = writer.node(OP, [x, *ends], "normal", named=True, **attributes(node))
            writer.node("Cast", [normal], "as_float16", last=True, named=False, to=TensorProto.FLOAT16)
            written.append((node, writer))
    editing.replace(model, written)
    return len(written)


def is_half(node: onnx.NodeProto, dtypes: Mapping[str, str]) -> bool:
    """Whether a node of OP has scales in float16. Args: dtypes: of its inputs, as far as they are known."""
    return _HALF in (dtypes.get(one) for one in node.input[1:3])
