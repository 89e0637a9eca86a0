"""An ONNX model that somebody else wrote, read and brought into the form that the steps of an export expect."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import onnx
from onnx import TensorProto, inliner

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx.kind import rounding
from tftrt_tools.tensorrt.exporting.job import model_file, opsets
from tftrt_tools.tensorrt.exporting.job.graph_facts import all_nodes, drop_hints, is_open, name_of, write_values

# Inputs that a note names.
_NAMED = 3
_HALVES = {TensorProto.FLOAT16: "FP16", TensorProto.BFLOAT16: "BF16"}
# Names of dimensions that mean something: equal ones are of one size. Some exporters write "?" or "None" for whatever they do not know.
_NAME = re.compile(r"(?!None$)[A-Za-z_][\w.:/-]*$")


def read(path: str) -> tuple[onnx.ModelProto, dict[tuple[str, int], str], list[str]]:
    """A file with its weights. Functions in it are written out, constants are tensors and no inputs, and each node has a name of its own.

    Returns: (model, {(output, axis): the name that the file gives this open dimension}, notes). Raises: TftrtError.
    """
    try:
        model = onnx.load(path)
        if model.functions:
            model = inliner.inline_local_functions(model)
    except Exception as error:  # protobuf's and onnx's own errors
        raise errors.TftrtError(
            f"onnx {onnx.__version__} cannot read {path}: {errors.first_line(str(error)) or type(error).__name__}",
            "export or copy the model again, with its weights beside it",
        ) from None
    said = _output_names(model.graph)
    held = {one.name for one in model.graph.initializer}
    replaceable = [one for one in model.graph.input if one.name in held]
    for value in replaceable:
        model.graph.input.remove(value)
    # In files of version 3, constants have to be inputs.
    notes = _fixed([one.name for one in replaceable]) if model.ir_version >= onnx.Version.IR_VERSION_2019_1_22 else []
    model.ir_version = max(model.ir_version, onnx.Version.IR_VERSION_2019_1_22)
    drop_hints(model.graph)
    _shorten_domains(model)
    write_values(model.graph)
    name_nodes(model)
    _name_dimensions(model)
    return model, said, notes


def _fixed(names: Sequence[str]) -> list[str]:
    """A note on inputs with a value in the file, which ONNX lets callers replace; TensorRT does not."""
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [
        f"constants now, which callers of the source may replace: {', '.join(names[:_NAMED])}{more} (inputs with a value in the file)"
    ]


def _shorten_domains(model: onnx.ModelProto) -> None:
    """Let ONNX's own domain have its short name. ONNX Runtime reads both, and onnx the short one alone."""
    short, *others = opsets.OWN
    for node in all_nodes(model.graph):
        if node.domain in others:
            node.domain = short
    named = {one.domain for one in model.opset_import}
    for one in [one for one in model.opset_import if one.domain in others]:
        if short in named:
            model.opset_import.remove(one)
        else:
            one.domain = short


def _output_names(graph: onnx.GraphProto) -> dict[tuple[str, int], str]:
    """{(output, axis): the name of this open dimension}, of names that mean something."""
    # An output that is an input has that one's dimensions.
    inputs = {one.name: one for one in graph.input}
    return {
        (value.name, axis): dim.dim_param
        for value in graph.output
        for axis, dim in enumerate(inputs.get(value.name, value).type.tensor_type.shape.dim)
        if _named(dim)
    }


def _named(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return (
        not dim.HasField("dim_value")
        and bool(_NAME.match(dim.dim_param))
        and not model_file.UNNAMED.fullmatch(dim.dim_param)
    )


def name_nodes(model: onnx.ModelProto) -> None:
    """Give each node a name of its own: of several with one name the first keeps it; the others are called as their first output."""
    taken: set[str] = set()
    for node in all_nodes(model.graph):
        numbered = (f"{name_of(node)}/{number}" for number in itertools.count(2))
        node.name = next(
            one for one in itertools.chain((name_of(node), *node.output[:1]), numbered) if one and one not in taken
        )
        taken.add(node.name)


def _name_dimensions(model: onnx.ModelProto) -> None:
    """Give open dimensions of inputs that have no name one of their own, and let those of outputs be inferred."""
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not _named(dim) and is_open(dim):
                dim.dim_param = model_file.identifier(f"{value.name}_{axis}")
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if is_open(dim):
                dim.Clear()


def check_unwritten(model: onnx.ModelProto, path: str, mend: str) -> None:
    """Refuse a model with a precision inside already. Args: mend: what to do. Raises: UsageError."""
    said = f"{path} has a precision written in already"
    for node in all_nodes(model.graph):
        if rounding([node.op_type]):
            raise errors.UsageError(f"{said}: node {name_of(node)} is a {node.op_type}", mend)
        for attribute in node.attribute:
            kind = attribute.i if node.op_type == "Cast" and attribute.name == "to" else attribute.t.data_type
            if kind in _HALVES:
                raise errors.UsageError(f"{said}: node {name_of(node)} gives {_HALVES[kind]}", mend)
    for one in (
        *model.graph.initializer,
        *(value.type.tensor_type for value in (*model.graph.input, *model.graph.output)),
    ):
        kind = one.data_type if isinstance(one, TensorProto) else one.elem_type
        if kind in _HALVES:
            what = f"constant {one.name}" if isinstance(one, TensorProto) else "an input or output"
            raise errors.UsageError(f"{said}: {what} is {_HALVES[kind]}", mend)
