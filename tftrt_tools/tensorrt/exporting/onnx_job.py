"""The child's side of an export of an ONNX file: its opset brought to what the target reads, inputs frozen, outputs cut, and checked."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterator

import onnx

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel import frozen_inputs
from tftrt_tools.tensorrt.exporting import advice
from tftrt_tools.tensorrt.exporting.converting import Answer, Request
from tftrt_tools.tensorrt.exporting.job import foreign, freezing, lowering, model_file, opsets, ranks
from tftrt_tools.tensorrt.exporting.job.rewrites import editing

EXPORTER = f"onnx {onnx.__version__}"
_ANOTHER = "another --opset may do; else the file is not a valid one: onnx.checker.check_model(FILE, full_check=True) says so of it"
# How onnx's converter names an op that an older opset has not.
_LACKING = re.compile(r"No (?:Previous )?Version of (\w+) exists|No Adapter \w+ Version \S+ for (\w+)")


def job(request: Request) -> Answer:
    """Export. Raises: UsageError, TftrtError."""
    path = request.model
    model, said_dimensions, notes = foreign.read(path)
    if request.precision != "FP32":
        foreign.check_unwritten(
            model, path, f"leave --precision={request.precision} out: its precision stays; or give it in FP32"
        )
    values = frozen_inputs.of_signature(request.freeze, request.signature, model_file.specs(model.graph.input))
    calls = ranks.read(request.calls)
    unsaid = [one.name for one in model.graph.input if not one.type.tensor_type.HasField("shape")]
    found = ranks.of_inputs(unsaid, calls, [name for name in unsaid if name in values])
    ranks.set_ranks(model.graph.input, found)
    ranks.tell_apart(model.graph.input, calls)
    notes += ranks.notes(found, values)
    if values:
        with _computed(", ".join(values), "--freeze"):
            freezing.freeze(model, values)
        notes += freezing.notes(values)
    if request.fixed:
        with _computed("the size of " + ", ".join(request.fixed), "--fix_shapes"):
            notes += freezing.fix(model, request.fixed)
    if request.outputs:
        editing.keep_outputs(model, request.outputs)
    model, more = _in_opset(model, request)
    progress.say(f"checking {request.signature}")
    weights = model_file.take_weights(model) if request.weights else {}
    output = pathlib.Path(request.output)
    try:
        graph, dimensions = model_file.inferred(model, said_dimensions, calls)
        if request.weights:
            model_file.place_weights(graph, weights, output.with_name(request.weights))
        said = {one.key: one.value for one in model.metadata_props}
        model_file.write(
            graph,
            output,
            {**said, **request.properties, "tftrt.exporter": EXPORTER, "tftrt.opset": str(opsets.of(graph))},
        )
    except errors.TftrtError as error:
        raise errors.TftrtError(
            error.cause,
            _ANOTHER if "onnx.checker" in error.cause or "types that do not fit" in error.cause else error.mend,
        ) from None
    return Answer(
        exporter=EXPORTER,
        inputs=tuple(model_file.specs(graph.graph.input)),
        outputs=tuple(model_file.specs(graph.graph.output)),
        dimensions={name: tuple(places) for name, places in dimensions.items()},
        nodes=tuple(model_file.nodes(graph)),
        notes=(*notes, *more),
        opset=opsets.of(graph),
    )


@contextlib.contextmanager
def _computed(what: str, flag: str) -> Iterator[None]:
    """Say of an error inside the block what could not be computed. Raises: TftrtError."""
    try:
        yield
    except Exception as error:  # onnxslim raises whatever its parts do
        cause = errors.first_line(str(error)) or type(error).__name__
        raise errors.TftrtError(f"what {what} decides cannot be computed: {cause}", f"leave {flag} out") from error


def _in_opset(model: onnx.ModelProto, request: Request) -> tuple[onnx.ModelProto, list[str]]:
    """(The model in an opset that the target reads, what to know about it). Raises: TftrtError."""
    own, asked, newest = opsets.of(model), request.opset, request.newest
    if own == asked or asked < own <= newest:
        return model, []
    before = f"the file has opset {own}"
    try:
        if own > asked:
            made, notes = lowering.lowered(onnx.shape_inference.infer_shapes(model), newest or asked, before)
            foreign.name_nodes(made)
            return made, notes
        return opsets.converted(onnx.shape_inference.infer_shapes(model), asked), [
            f"{before}; onnx converted it to {asked}"
        ]
    except errors.TftrtError as error:
        least = request.least
        if own < asked and newest and own >= least:
            return model, [f"{error.cause}; it keeps its opset"]
        advised = advice.of_onnx(name for found in _LACKING.findall(error.cause) for name in found)
        raise errors.TftrtError(
            error.cause,
            advised[0]
            if advised
            else "give a --target or an --opset that is nearer to the file's"
            if own > asked or not newest
            else f"--precision needs opset {least}: export the model anew, in that opset or a newer one",
        ) from None
