"""Ops that an older opset has not, written with others, as ONNX's own definitions of them say (Gelu, Mish, GroupNormalization, …)."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import onnx
from onnx import helper, inliner, shape_inference

from tftrt_tools.tensorrt.exporting.job import opsets

_DOMAIN = "tftrt.bodies"


def write_out(model: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Write ops of the outermost graph out that the opset has not. Args: model: with inferred types. Returns: (the model, with inferred
    types; {op: how many})."""
    total: collections.Counter[str] = collections.Counter()
    while True:
        model, counted = _step(model, opset)
        if not counted:
            return model, dict(total)
        total.update(counted)


def _step(model: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, dict[str, int]]:
    """As `write_out`, of the ops whose inputs' types are known: behind them more become known."""
    own = opsets.of(model)
    types = {one.name: one.type for one in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    types.update({one.name: helper.make_tensor_type_proto(one.data_type, one.dims) for one in model.graph.initializer})
    counted: collections.Counter[str] = collections.Counter()
    for node in model.graph.node:
        if (
            node.domain in opsets.OWN
            and not onnx.defs.has(node.op_type, opset, "")
            and onnx.defs.has(node.op_type, own, "")
        ):
            body = _body(node, own, types)
            if body is not None:
                counted[node.op_type] += 1
                body.domain, body.name = _DOMAIN, f"{node.op_type}_{sum(counted.values())}"
                model.functions.append(body)
                node.domain, node.op_type = body.domain, body.name
    if not counted:
        return model, {}
    model.opset_import.add(domain=_DOMAIN, version=1)
    made = inliner.inline_local_functions(model, convert_version=True)
    kept = [one for one in made.opset_import if one.domain != _DOMAIN]
    del made.opset_import[:]
    made.opset_import.extend(kept)
    made = shape_inference.infer_shapes(made)
    _cast(made)
    return made, dict(counted)


def _body(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> onnx.FunctionProto | None:
    """What an op does, as a function of the node's inputs; None where ONNX does not say it."""
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    if schema.has_function:
        found = onnx.FunctionProto()
        found.CopyFrom(schema.function_body)
        return found
    if not schema.has_context_dependent_function or any(name and name not in types for name in node.input):
        return None
    given = {one.name for one in node.attribute}
    node.attribute.extend(
        one.default_value for name, one in schema.attributes.items() if name not in given and one.default_value.name
    )
    version = max(one for one in schema.context_dependent_function_opset_versions if one <= opset)
    known = [types[name].SerializeToString() if name else b"" for name in node.input]
    return onnx.FunctionProto.FromString(
        schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), known)
    )


def _cast(model: onnx.ModelProto) -> None:
    """Write CastLike, which parsers do not know, as Cast."""
    types = {
        one.name: one.type.tensor_type.elem_type
        for one in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    types.update({one.name: one.data_type for one in model.graph.initializer})
    for node in model.graph.node:
        if node.op_type == "CastLike" and types.get(node.input[1]):
            node.op_type = "Cast"
            node.attribute.append(helper.make_attribute("to", types[node.input[1]]))
            del node.input[1]
