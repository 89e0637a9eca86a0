"""An ONNX model that is being written: its dimensions named, its types inferred, its nodes listed, and the file checked."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting.job import misread, ranks
from tftrt_tools.tensorrt.exporting.job.graph_facts import drop_hints, inner_graphs, write_values
from tftrt_tools.tensorrt.exporting.onnx_graph import INPUT, OUTPUT, Node, Value

# The first dimension of inputs.
BATCH = "batch"
_ALIGNED_BYTES = 64
# Smaller tensors stay in the file: onnx reads some of them to infer shapes.
_SMALL_BYTES = 1024
# A message of protobuf holds less than 2 GiB.
MOST_INSIDE = 1_900_000_000
_INT32 = np.iinfo(np.int32)
# tf2onnx, and onnx's inference, call dimensions so of which they know nothing.
UNNAMED = re.compile(r"unk__\d+$")


def missing_ops(model: onnx.ModelProto) -> dict[str, list[str]]:
    """{op that is none of the model's opsets: names of its nodes}: tf2onnx leaves what it does not know as it is."""
    versions = {one.domain: one.version for one in model.opset_import}
    found: dict[str, list[str]] = {}
    for node, _ in _nodes(model.graph):
        if not onnx.defs.has(node.op_type, versions.get(node.domain, 0), node.domain):
            found.setdefault(node.op_type, []).append(node.name)
    return found


def with_names(
    model: onnx.ModelProto, specs: Sequence[InputSpec], calls: Sequence[ranks.Arrays] = ()
) -> tuple[onnx.ModelProto, dict[str, list[str]]]:
    """The model with names for its open dimensions, and with the shapes and types that can be inferred.

    The first dimension of every input is BATCH, unless calls have other sizes there; others are INPUT_AXIS. Of an output's, those that
    follow from the inputs have their names, others are OUTPUT_AXIS.
    Returns: (model, {name of a dimension: ["TENSOR:AXIS"]}). Raises: TftrtError if the types do not fit.
    """
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.WhichOneof("value") == "dim_param":
                dim.Clear()
    shapes = {one.name: one.shape for one in specs}
    # tf2onnx gives a placeholder with a default a constant of its name, and ONNX Runtime then takes it for no input.
    for tensor in [one for one in model.graph.initializer if one.name in shapes]:
        model.graph.initializer.remove(tensor)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            given = (shapes.get(value.name) or (None,) * (axis + 1))[axis]
            if not dim.HasField("dim_value") and given is not None:
                dim.dim_value = given
            elif not dim.HasField("dim_value"):
                dim.dim_param = BATCH if axis == 0 else identifier(f"{value.name}_{axis}")
    return inferred(model, calls=calls)


def inferred(
    model: onnx.ModelProto, said: Mapping[tuple[str, int], str] | None = None, calls: Sequence[ranks.Arrays] = ()
) -> tuple[onnx.ModelProto, dict[str, list[str]]]:
    """The model, whose inputs' open dimensions have names, with the shapes and types that can be inferred, and with names for its outputs'.

    Args: said: {(output, axis): a name}, for what does not follow from the inputs. calls: those that tell ranks and sizes.
    Returns, raises: as `with_names`.
    """
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            # onnx's converter drops the names of an input that is an output as well.
            if dim.WhichOneof("value") is None and (name := (said or {}).get((value.name, axis))):
                dim.dim_param = name
    ranks.tell_apart(model.graph.input, calls)
    write_values(model.graph)
    try:
        model = shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise errors.TftrtError(
            f"the exported graph has types that do not fit: {errors.first_line(str(error))}",
            "another --opset may do; else leave the signature out with --signature_keys",
        ) from None
    ranks.complete(model, calls)
    named: dict[str, list[str]] = {}
    for value in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                if not dim.dim_param or UNNAMED.fullmatch(dim.dim_param):
                    dim.dim_param = (said or {}).get((value.name, axis)) or identifier(f"{value.name}_{axis}")
                named.setdefault(dim.dim_param, []).append(f"{value.name}:{axis}")
    return model, named


def identifier(text: str) -> str:
    """A name for a dimension."""
    return re.sub(r"\W", "_", text)


def take_weights(model: onnx.ModelProto) -> dict[str, bytes]:
    """Take large constants out of a model. Returns: {location in its tensors: bytes}, for `place_weights`."""
    found: dict[str, bytes] = {}
    for number, tensor in enumerate(model.graph.initializer):
        if len(tensor.raw_data) >= _SMALL_BYTES:
            found[str(number)] = tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=str(number))
    return found


def place_weights(model: onnx.ModelProto, weights: Mapping[str, bytes], path: pathlib.Path) -> None:
    """Write all weights to one file, and let the model's tensors say where they lie in it. Args: weights: by their present location."""
    with plain_file.naming(path), open(path, "wb") as file:
        for tensor in _tensors(model.graph):
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            data = weights[next(one.value for one in tensor.external_data if one.key == "location")]
            file.write(b"\0" * (-file.tell() % _ALIGNED_BYTES))
            offset = file.tell()
            file.write(data)
            del tensor.external_data[:]
            for key, value in (("location", path.name), ("offset", offset), ("length", len(data))):
                tensor.external_data.add(key=key, value=str(value))


def write(model: onnx.ModelProto, path: pathlib.Path, properties: Mapping[str, str]) -> None:
    """Write the model with its properties, and check the file. Raises: TftrtError if onnx.checker refuses it."""
    helper.set_model_props(model, dict(properties))
    plain_file.write_bytes(path, model.SerializeToString())
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, shape_inference.InferenceError) as error:
        raise errors.TftrtError(
            f"onnx.checker refuses the exported graph: {errors.first_line(str(error))}",
            "another --opset may do; else leave the signature out with --signature_keys",
        ) from None


def save(model: onnx.ModelProto, path: str) -> None:
    """Write a model that this package reads again, unchecked. Where it is too large for one message, its weights go to a file beside it."""
    outside = model.ByteSize() > MOST_INSIDE
    if outside:  # onnx takes the weights out of the model that it writes
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        model = copy
    onnx.save(model, path, save_as_external_data=outside, location=f"{pathlib.Path(path).name}.weights")


def rewrite(model: onnx.ModelProto, path: str, weights: str, properties: Mapping[str, str]) -> onnx.ModelProto:
    """Write a changed model with more properties, and check the file. Args: weights: name of the file beside it that takes the weights, or
    "". Returns: the model with the shapes and types that can be inferred. Raises: as `write`."""
    drop_hints(model.graph)
    inferred = shape_inference.infer_shapes(model, check_type=True, data_prop=True)
    if weights:
        onnx.external_data_helper.convert_model_to_external_data(inferred, location=weights)
        onnx.external_data_helper.write_external_data_tensors(inferred, str(pathlib.Path(path).parent))
        # onnx leaves small tensors in the model, and writes no file where all are small.
        pathlib.Path(path).with_name(weights).touch()
    write(inferred, pathlib.Path(path), {**{one.key: one.value for one in model.metadata_props}, **properties})
    return inferred


def specs(values: Sequence[onnx.ValueInfoProto]) -> list[InputSpec]:
    """InputSpecs of a graph's inputs or outputs."""
    return [InputSpec(one.name, _dtype(one.type.tensor_type.elem_type), _shape(one)) for one in values]


def nodes(model: onnx.ModelProto) -> list[Node]:
    """All nodes, those of graphs within nodes behind the node; and the graph's inputs and outputs."""
    listed = [_node(node, known) for node, known in _nodes(model.graph)]
    known: dict[str, Any] = {
        one.name: one for one in (*model.graph.input, *model.graph.output, *model.graph.initializer)
    }
    known.update(
        (node.output[0], one.t)
        for node in model.graph.node
        if node.op_type == "Constant"
        for one in node.attribute
        if one.name == "value"
    )
    ends = ((INPUT, model.graph.input), (OUTPUT, model.graph.output))
    return [
        *listed,
        *(
            Node(
                name=one.name,
                op=op,
                inputs=(_value(one.name, known),),
                outputs=(),
                beyond_int32=_beyond_int32(known[one.name]),
            )
            for op, values in ends
            for one in values
        ),
    ]


def unread(model: onnx.ModelProto, newer: bool = False) -> list[tuple[str, str, str]]:
    """(name, op, what the parser of TensorRT 8 reads otherwise) of such nodes, also in graphs within nodes. No weights are read.

    Args: model: with the shapes that can be inferred. newer: of TensorRT 10 in its place.
    """
    return [
        (node.name or node.output[0], node.op_type, said.text)
        for node, known in _nodes(model.graph)
        if (said := _unread(node, known)).text and (said.newer or not newer)
    ]


def _nodes(
    graph: onnx.GraphProto, outer: Mapping[str, Any] | None = None
) -> Iterator[tuple[onnx.NodeProto, dict[str, Any]]]:
    """(node, {name of a value that it can see: its ValueInfoProto, or TensorProto of a constant})."""
    known = dict(outer or {})
    known.update((one.name, one) for one in (*graph.value_info, *graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield node, known
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                known[node.output[0]] = attribute.t
        for inner in inner_graphs(node):
            yield from _nodes(inner, known)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All constants of a graph and of graphs within its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.TENSOR:
                yield attribute.t
        for inner in inner_graphs(node):
            yield from _tensors(inner)


def _node(node: onnx.NodeProto, known: Mapping[str, Any]) -> Node:
    op = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    large = [size for one in node.input if (size := _beyond_int32(known.get(one))) is not None]
    unread = _unread(node, known)
    return Node(
        name=node.name or node.output[0],
        op=op,
        inputs=tuple(_value(one, known) for one in node.input),
        outputs=tuple(_value(one, known) for one in node.output),
        beyond_int32=max(large, key=abs, default=None),
        other_ranks=_other_ranks(node),
        half_pixels=_half_pixels(node),
        unread=unread.text,
        unread_newer=unread.newer,
    )


def _unread(node: onnx.NodeProto, known: Mapping[str, Any]) -> misread.Unread:
    return misread.of(node, lambda name: _value(name, known))


def _half_pixels(node: onnx.NodeProto) -> bool:
    said = {one.name: one.s for one in node.attribute if one.type == one.STRING} if node.op_type == "Resize" else {}
    return said.get("coordinate_transformation_mode") == b"tf_half_pixel_for_nn" and (
        said.get("nearest_mode", b"round_prefer_floor") != b"round_prefer_floor"
    )


def _other_ranks(node: onnx.NodeProto) -> bool:
    """Whether the branches of a conditional give tensors of different ranks, as far as the inferred types tell."""
    branches = [attribute.g.output for attribute in node.attribute if node.op_type == "If"]
    shapes = [[shape for one in pair if (shape := _shape(one)) is not None] for pair in zip(*branches, strict=True)]
    return any(len({len(shape) for shape in known}) > 1 for known in shapes)


def _value(name: str, known: Mapping[str, Any]) -> Value:
    found = known.get(name)
    if isinstance(found, TensorProto):
        return Value(name, _dtype(found.data_type), tuple(found.dims), True)
    if found is None:
        return Value(name, "", None, False)
    return Value(name, _dtype(found.type.tensor_type.elem_type), _shape(found), False)


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)


def _dtype(number: int) -> str:
    if number in (TensorProto.UNDEFINED, TensorProto.STRING):
        return "string" if number else ""
    result: str = (
        TensorProto.DataType.Name(number).lower()
        if number > TensorProto.COMPLEX128
        else helper.tensor_dtype_to_np_dtype(number).name
    )
    return result


def _beyond_int32(value: object) -> int | None:
    """The number of a constant that INT32 cannot hold; weights outside the model are not read."""
    if (
        not isinstance(value, TensorProto)
        or value.data_type != TensorProto.INT64
        or value.data_location == TensorProto.EXTERNAL
    ):
        return None
    array = numpy_helper.to_array(value)
    large = array[(array < _INT32.min) | (array > _INT32.max)]
    return int(max(large.tolist(), key=abs)) if large.size else None
