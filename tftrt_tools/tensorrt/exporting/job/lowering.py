"""A model in an older opset, by onnx's converter, with mends of what that loses or refuses."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tftrt_tools.tensorrt.exporting.job import bodies, opsets
from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, all_nodes, attributes, drop_hints, free, tensor_names
from tftrt_tools.tensorrt.exporting.job.rewrites import layer_norm

# The first opset with LayerNormalization.
_NORMALIZATION = 17
# The first opset whose Split may give a smaller last part.
_UNEVEN = 18


def lowered(model: onnx.ModelProto, opset: int, before: str) -> tuple[onnx.ModelProto, list[str]]:
    """(The model in the opset, what to know about it). Args: before: which opset it has, and why. Raises: TftrtError for an op that onnx
    cannot convert."""
    notes = [f"{before}; onnx converted it to {opset}"]
    if opset < _UNEVEN:
        _write_parts(model)
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


def _write_parts(model: onnx.ModelProto) -> None:
    """Give each Split whose last part is smaller the sizes of its parts: an older one takes equal parts where nothing is said."""
    facts = Facts(model)
    taken = tensor_names(model.graph)
    for node in model.graph.node:
        shape = facts.shape(node.input[0]) if node.op_type == "Split" and node.domain in opsets.OWN else None
        if not shape or any(node.input[1:]):
            continue
        size, parts = shape[attributes(node).get("axis", 0)], len(node.output)
        most = -(-size // parts) if isinstance(size, int) else 0
        last = size - most * (parts - 1) if isinstance(size, int) else 0
        # Of 5 in 4 ONNX does not say the sizes.
        if 0 < last < most:
            sizes = np.array([most] * (parts - 1) + [last], np.int64)
            name = free(f"{node.output[0]}/sizes", taken)
            taken.add(name)
            model.graph.initializer.append(numpy_helper.from_array(sizes, name))
            node.input[1:] = [name]
            kept = [one for one in node.attribute if one.name != "num_outputs"]
            del node.attribute[:]
            node.attribute.extend(kept)


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
