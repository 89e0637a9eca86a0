"""The child's side of an export: a signature of a SavedModel as a checked ONNX file."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel import frozen_inputs
from tftrt_tools.models.savedmodel.job import graph as graph_protos
from tftrt_tools.models.savedmodel.job import loading
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting import advice
from tftrt_tools.tensorrt.exporting.converting import Answer, Request
from tftrt_tools.tensorrt.exporting.job import conversion, freezing, model_file, ranks

if TYPE_CHECKING:
    import onnx

_MOST_NAMED = 3
_CONDITIONALS = frozenset({"If", "StatelessIf"})
# What the branches of a conditional that was made for training give besides their results.
_OF_CONDITIONALS = frozenset({"OptionalFromValue", "OptionalNone"})


def job(request: Request) -> Answer:
    """Export. Raises: TftrtError."""
    model = loading.load(request.model)
    function = model.root.signatures[request.signature]
    specs = loading.input_specs(function)
    outputs = [name for name in sorted(function.structured_outputs) if not request.outputs or name in request.outputs]
    _check_distinct([one.name for one in specs], outputs)
    others = [name for name in model.root.signatures if name != request.signature]
    _check_no_writes(graph_protos.variable_writers(function.graph.as_graph_def()), others)
    values = frozen_inputs.of_signature(request.freeze, request.signature, loading.freezable(function))
    unread = {spec.name: values[spec.name] for spec in specs if spec.name in values}
    calls = ranks.read(request.calls)
    unranked = [one.name for one in specs if one.shape is None]
    found = ranks.of_inputs(unranked, calls, [name for name in unranked if name in values])
    made = conversion.convert(
        model.root,
        function,
        conversion.Asked(
            opset=request.opset,
            outside=bool(request.weights),
            frozen=values,
            outputs=request.outputs,
            rewrites=request.rewrites,
            ranks=found,
        ),
    )
    _check_ops(model_file.missing_ops(made.model), made, specs, others)
    progress.say(f"checking {request.signature}")
    ranks.set_ranks(made.model.graph.input, found)
    graph, dimensions = model_file.with_names(made.model, specs, calls)
    _check_names(graph, [one.name for one in specs], outputs)
    output = pathlib.Path(request.output)
    if request.weights:
        model_file.place_weights(graph, made.weights, output.with_name(request.weights))
    rewrites = ",".join(name for name, nodes in made.rewritten.items() if nodes)
    model_file.write(
        graph,
        output,
        {
            **request.properties,
            "tftrt.exporter": conversion.EXPORTER,
            **({"tftrt.rewrites": rewrites} if rewrites else {}),
        },
    )
    if made.frozen is not None:
        plain_file.write_bytes(request.frozen, made.frozen.SerializeToString())
    return Answer(
        exporter=conversion.EXPORTER,
        inputs=tuple(model_file.specs(graph.graph.input)),
        outputs=tuple(model_file.specs(graph.graph.output)),
        dimensions={name: tuple(places) for name, places in dimensions.items()},
        renamed=made.renamed,
        nodes=tuple(model_file.nodes(graph)),
        notes=(*made.notes, *ranks.notes(found, values), *freezing.notes(unread), *_offered(made, specs, values)),
        rewritten=made.rewritten,
        opset=request.opset,
    )


def _offered(made: conversion.Converted, specs: list[InputSpec], frozen: Mapping[str, object]) -> list[str]:
    """Lines on inputs whose value would take conditionals out of the file."""
    names = conversion.deciding(made.frozen, made.renamed, specs) if made.frozen is not None else []
    return [
        f"input {name} is read by conditionals alone: --freeze={name}:false (or true) takes them out of the file"
        for name in names
        if name not in frozen
    ]


def _check_distinct(inputs: list[str], outputs: list[str]) -> None:
    both = [name for name in outputs if name in inputs]
    if both:
        raise errors.TftrtError(
            f"{both[0]!r} is an input and an output of it, and a name stands for one value in ONNX",
            "give one of the two another name in the model",
        )


def _check_no_writes(writers: list[str], others: list[str]) -> None:
    if writers:
        raise errors.TftrtError(
            f"it changes variables ({writers[0]}), and an ONNX graph has none",
            f"leave it out: --signature_keys={','.join(others)} names the others"
            if others
            else "leave the change out: save a signature that reads them alone, such as one of model(x, training=False), and export that",
        )


def _check_ops(
    missing: Mapping[str, list[str]], made: conversion.Converted, specs: list[InputSpec], others: list[str]
) -> None:
    if not missing:
        return
    named = [node.name for node in made.frozen.node if node.op in _CONDITIONALS] if made.frozen is not None else []
    if _OF_CONDITIONALS & missing.keys() and made.frozen is not None and named:
        offered = conversion.deciding(made.frozen, made.renamed, specs)
        more = f", … of {len(named)}" if len(named) > _MOST_NAMED else ""
        raise errors.TftrtError(
            f"the branches of its conditionals ({', '.join(named[:_MOST_NAMED])}{more}) keep values for a gradient "
            f"({', '.join(sorted(_OF_CONDITIONALS & missing.keys()))}), which ONNX cannot say",
            f"--freeze={offered[0]}:false (or true) decides them: input {offered[0]} is read by conditionals alone"
            if offered
            else "export a model without these conditionals, as it is for inference",
        )
    listed = "; ".join(
        f"{op} ({', '.join(names[:_MOST_NAMED] + ['…'] * (len(names) > _MOST_NAMED))})" for op, names in missing.items()
    )
    advised = advice.of_tensorflow(missing)
    mend = (
        "leave the signature out with --signature_keys, or export a model without that part"
        if others
        else "leave that part out of the model that is exported"
    )
    raise errors.TftrtError(
        f"{conversion.EXPORTER} does not know its ops {listed}", mend + (f": {'; '.join(advised)}" if advised else "")
    )


def _check_names(graph: onnx.ModelProto, inputs: list[str], outputs: list[str]) -> None:
    for what, wanted, values in (("inputs", inputs, graph.graph.input), ("outputs", outputs, graph.graph.output)):
        found = [one.name for one in values]
        if found != wanted:
            raise errors.TftrtError(
                f"{conversion.EXPORTER} made the {what} {', '.join(found)} of {', '.join(wanted)}",
                "another --opset may do; else leave the signature out with --signature_keys",
            )
