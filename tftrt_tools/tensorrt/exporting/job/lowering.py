"""A model in an older opset, by onnx's converter, with mends of what that loses or refuses."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tftrt_tools.tensorrt.exporting.job import bodies, opsets
from tftrt_tools.tensorrt.exporting.job.graph_facts import all_nodes, drop_hints
from tftrt_tools.tensorrt.exporting.job.rewrites import layer_norm

# The first opset with LayerNormalization.
_NORMALIZATION = 17


def lowered(model: onnx.ModelProto, opset: int, before: str) -> tuple[onnx.ModelProto, list[str]]:
    """(The model in the opset, what to know about it). Args: before: which opset it has, and why. Raises: TftrtError for an op that onnx
    cannot convert."""
    notes = [f"{before}; onnx converted it to {opset}"]
    _drop_defaults(model, opset)
    if opset < _NORMALIZATION:
        model = shape_inference.infer_shapes(model)
        if apart := layer_norm.rewrite(model, "8.5"):
            notes.append(f"{apart} LayerNormalization written with other ops: opset {opset} has none")
    model, written = bodies.write_out(shape_inference.infer_shapes(model), opset)
    notes += [f"{count} {op} written with other ops: opset {opset} has none" for op, count in written.items()]
    _unpack(model)
    made = opsets.converted(model, opset)
    drop_hints(made.graph)
    return made, notes


def _drop_defaults(model: onnx.ModelProto, opset: int) -> None:
    """Take attributes away that the older op has not, and that say what holds without them: onnx's converter stops at them, or leaves them
    to ops that do not know them."""
    own = opsets.of(model)
    for node in all_nodes(model.graph):
        if node.domain not in opsets.OWN or not all(
            onnx.defs.has(node.op_type, version, "") for version in (own, opset)
        ):
            continue
        newer, older = (onnx.defs.get_schema(node.op_type, version, "").attributes for version in (own, opset))
        kept = [
            one
            for one in node.attribute
            if one.name in older or one.name not in newer or not _as_without(node, one, newer[one.name])
        ]
        del node.attribute[:]
        node.attribute.extend(kept)


def _as_without(node: onnx.NodeProto, attribute: onnx.AttributeProto, declared: onnx.defs.OpSchema.Attribute) -> bool:
    """Whether an attribute says what holds without it."""
    if (node.op_type, attribute.name) == ("Split", "num_outputs"):
        said: bool = len(node.output) == attribute.i
        return said
    default = declared.default_value
    result: bool = default.type == attribute.type and helper.get_attribute_value(default) == helper.get_attribute_value(
        attribute
    )
    return result


def _unpack(model: onnx.ModelProto) -> None:
    """Write whole numbers out one by one: where they are packed, the converter of onnx 1.18.0 drops a reduction's axes without a word, and
    the reduction is over all of them."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT64 and tensor.HasField("raw_data"):
            values = numpy_helper.to_array(tensor).reshape(-1).tolist()
            tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.INT64, tensor.dims, values))
