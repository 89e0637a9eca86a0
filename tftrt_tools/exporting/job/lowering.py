"""A model in an older opset, by onnx's converter, with mends of what that loses or refuses."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tftrt_tools.exporting.job import opsets
from tftrt_tools.exporting.job.rewrites import layer_norm

# The first opset with LayerNormalization.
_NORMALIZATION = 17


def lowered(model: onnx.ModelProto, opset: int, before: str) -> tuple[onnx.ModelProto, list[str]]:
    """(The model in the opset, what to know about it). Args: before: which opset it has, and why. Raises: TftrtError for an op that onnx
    cannot convert."""
    notes = [f"{before}; onnx converted it to {opset}"]
    _drop_defaults(model)
    if opset < _NORMALIZATION:
        model = shape_inference.infer_shapes(model)
        if apart := layer_norm.rewrite(model, "8.5"):
            notes.append(f"{apart} LayerNormalization written with other ops: opset {opset} has none")
    _unpack(model)
    made = opsets.converted(model, opset)
    del made.graph.value_info[:]
    return made, notes


def _drop_defaults(model: onnx.ModelProto) -> None:
    """Take an attribute away that says what holds without it, and that onnx's converter leaves to ops that do not know it."""
    for node in model.graph.node:
        kept = [one for one in node.attribute if one.name != "noop_with_empty_axes" or one.i]
        del node.attribute[:]
        node.attribute.extend(kept)


def _unpack(model: onnx.ModelProto) -> None:
    """Write whole numbers out one by one: where they are packed, the converter of onnx 1.18.0 drops a reduction's axes without a word, and
    the reduction is over all of them."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT64 and tensor.HasField("raw_data"):
            values = numpy_helper.to_array(tensor).reshape(-1).tolist()
            tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.INT64, tensor.dims, values))
