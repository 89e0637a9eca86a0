"""The child's side of an export: a signature of a SavedModel as a checked ONNX file."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from tftrt_tools import errors, progress
from tftrt_tools.exporting.job import conversion, model_file
from tftrt_tools.savedmodel.job import graph as graph_protos
from tftrt_tools.savedmodel.job import loading

_MOST_NAMED = 3


def job(request: dict[str, Any]) -> dict[str, Any]:
    """Export.

    Args: request: {"model": SavedModel, "signature", "output": the file, "weights": name of the file beside it, or "", "frozen": where the
      source's graph with constants is kept, "opset", "properties": {name: text} for the file}.
    Returns: {"exporter", "inputs" and "outputs": InputSpecs, "dimensions", "renamed", "nodes", "notes"}. Raises: TftrtError.
    """
    model = loading.load(request["model"])
    function = model.root.signatures[request["signature"]]
    specs = loading.input_specs(function)
    outputs = sorted(function.structured_outputs)
    _check_distinct([one.name for one in specs], outputs)
    _check_no_writes(graph_protos.variable_writers(function.graph.as_graph_def()))
    made = conversion.convert(model.root, function, request["opset"], bool(request["weights"]))
    _check_ops(model_file.missing_ops(made.model))
    progress.say(f"checking {request['signature']}")
    graph, dimensions = model_file.with_names(made.model, specs)
    _check_names(graph, [one.name for one in specs], outputs)
    output = pathlib.Path(request["output"])
    if request["weights"]:
        model_file.place_weights(graph, made.weights, output.with_name(request["weights"]))
    model_file.write(graph, output, {**request["properties"], "tftrt.exporter": conversion.EXPORTER})
    if made.frozen is not None:
        pathlib.Path(request["frozen"]).write_bytes(made.frozen.SerializeToString())
    return {"exporter": conversion.EXPORTER, "inputs": [one.to_dict() for one in model_file.specs(graph.graph.input)],
            "outputs": [one.to_dict() for one in model_file.specs(graph.graph.output)], "dimensions": dimensions,
            "renamed": dict(made.renamed), "nodes": [one.to_dict() for one in model_file.nodes(graph)], "notes": list(made.notes)}


def _check_distinct(inputs: list[str], outputs: list[str]) -> None:
    both = [name for name in outputs if name in inputs]
    if both:
        raise errors.TftrtError(f"{both[0]!r} is an input and an output of it, and a name stands for one value in ONNX",
                                "give one of the two another name in the model")


def _check_no_writes(writers: list[str]) -> None:
    if writers:
        raise errors.TftrtError(f"it changes variables ({writers[0]}), and an ONNX graph has none",
                                "leave it out: name the other signatures in --signature_keys")


def _check_ops(missing: Mapping[str, list[str]]) -> None:
    if not missing:
        return
    listed = "; ".join(f"{op} ({', '.join(names[:_MOST_NAMED] + ['…'] * (len(names) > _MOST_NAMED))})" for op, names in missing.items())
    raise errors.TftrtError(f"{conversion.EXPORTER} does not know its ops {listed}",
                            "leave the signature out with --signature_keys, or export a model without that part (strings before the model)")


def _check_names(graph: Any, inputs: list[str], outputs: list[str]) -> None:
    for what, wanted, values in (("inputs", inputs, graph.graph.input), ("outputs", outputs, graph.graph.output)):
        found = [one.name for one in values]
        if found != wanted:
            raise errors.TftrtError(f"{conversion.EXPORTER} made the {what} {', '.join(found)} of {', '.join(wanted)}",
                                    "another --opset may do; else leave the signature out with --signature_keys")
