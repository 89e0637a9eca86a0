"""The child's side of an export of a PyTorch program: torch.onnx.export writes it, here its dimensions get names and it is checked."""

from __future__ import annotations

import io
import pathlib
import re
from collections.abc import Iterable, Mapping

import onnx
import torch
from onnx import shape_inference

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.base.process import progress
from tftrt_tools.models.kinds.pytorch import program, runner_job
from tftrt_tools.tensorrt.exporting.converting import Answer, Request
from tftrt_tools.tensorrt.exporting.job import lowering, model_file
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

EXPORTER = f"torch.onnx {torch.__version__}"
# What PyTorch's exporter writes; older opsets are converted from it.
_LOWEST_OPSET = 18


def job(request: Request) -> Answer:
    """Export; `frozen` gets the program that was written, in PyTorch's simpler ops. Raises: TftrtError."""
    said = program.read(request.model, unsafe=True)
    taken, given = ([spec.name for spec in specs] for specs in (said.signature.inputs, said.signature.outputs))
    _check_names(taken, given)
    made, notes = _exported(request, taken, given)
    given = [name for name in given if not request.outputs or name in request.outputs]
    if request.outputs:
        editing.keep_outputs(made, given)
    progress.say(f"checking {request.signature}")
    weights = model_file.take_weights(made) if request.weights else {}
    graph, dimensions = _with_names(made)
    output = pathlib.Path(request.output)
    if request.weights:
        model_file.place_weights(graph, weights, output.with_name(request.weights))
    model_file.write(graph, output, {**request.properties, "tftrt.exporter": EXPORTER})
    return Answer(
        exporter=EXPORTER,
        inputs=tuple(model_file.specs(graph.graph.input)),
        outputs=tuple(model_file.specs(graph.graph.output)),
        dimensions={name: tuple(places) for name, places in dimensions.items()},
        renamed={name: name for name in given},
        nodes=tuple(model_file.nodes(graph)),
        notes=tuple(notes),
        opset=request.opset,
    )


def _check_names(inputs: list[str], outputs: list[str]) -> None:
    names = inputs + outputs
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise errors.TftrtError(
            f"two of its inputs and outputs are called {twice!r}, and a name stands for one value in ONNX",
            "give one of them another name in the module",
        )


def _exported(request: Request, inputs: list[str], outputs: list[str]) -> tuple[onnx.ModelProto, list[str]]:
    """(the model, what to know about it)."""
    loaded, opset = runner_job.exported(request.model), request.opset
    try:
        written = torch.onnx.export(
            loaded,
            dynamo=True,
            opset_version=max(opset, _LOWEST_OPSET),
            input_names=inputs,
            output_names=outputs,
            verbose=False,
        )
        made = written.model_proto
    except Exception as error:  # PyTorch's exporter raises whatever its parts do
        raise errors.TftrtError(
            f"{EXPORTER} cannot export it: {_cause(error)}", "leave that part out of the module"
        ) from error
    _check_kept(made, inputs, outputs)
    simpler = io.BytesIO()
    torch.export.save(written.exported_program, simpler)
    plain_file.write_bytes(request.frozen, simpler.getvalue())
    if opset >= _LOWEST_OPSET:
        return made, []
    try:
        return lowering.lowered(made, opset, f"PyTorch writes opset {_LOWEST_OPSET}")
    except errors.TftrtError as error:
        raise errors.TftrtError(
            f"PyTorch writes opset {_LOWEST_OPSET}, and {error.cause}", "give a --target that reads it, such as 10"
        ) from None


def _cause(error: BaseException) -> str:
    """The innermost message: PyTorch wraps it into pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return errors.first_line(str(error)) or type(error).__name__


def _check_kept(made: onnx.ModelProto, inputs: list[str], outputs: list[str]) -> None:
    for what, wanted, values in (("inputs", inputs, made.graph.input), ("outputs", outputs, made.graph.output)):
        found = [one.name for one in values]
        if found != wanted:
            raise errors.TftrtError(
                f"{EXPORTER} made the {what} {', '.join(found)} of {', '.join(wanted)}",
                "use each input in the module, and return each tensor once",
            )


def _with_names(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, list[str]]]:
    """The model with names for its open dimensions, and with the shapes and types that can be inferred.

    PyTorch knows which dimensions are equal, and calls those alike ("s40"). Each gets the name of the place where it occurs first: BATCH
    for the first dimension of the first input, else TENSOR_AXIS. Returns: as model_file.with_names.
    """
    names: dict[str, str] = {}
    places: dict[str, list[str]] = {}
    for number, value in enumerate((*model.graph.input, *model.graph.output)):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                continue
            own = model_file.BATCH if (number, axis) == (0, 0) else re.sub(r"\W", "_", f"{value.name}_{axis}")
            dim.dim_param = names.setdefault(dim.dim_param or own, own)
            places.setdefault(dim.dim_param, []).append(f"{value.name}:{axis}")
    _rename(model.graph.value_info, names)
    try:
        return shape_inference.infer_shapes(model, check_type=True, data_prop=True), places
    except shape_inference.InferenceError as error:
        raise errors.TftrtError(
            f"the exported graph has types that do not fit: {errors.first_line(str(error))}", "another --opset may do"
        ) from None


def _rename(values: Iterable[onnx.ValueInfoProto], names: Mapping[str, str]) -> None:
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                known = names.get(dim.dim_param)
                dim.Clear()
                if known:
                    dim.dim_param = known
