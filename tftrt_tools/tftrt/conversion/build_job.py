"""The child's side of `tftrt build`: engines for a model that was converted before, or its engines taken away."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import detach, graph, inline, inspector, loading, protos, segments
from tftrt_tools.tftrt.calibration import file
from tftrt_tools.tftrt.conversion.build import BuildRequest, Built
from tftrt_tools.tftrt.conversion.job import (
    finishing,
    graph_pass,
    int8,
    refused,
    saving,
    splitting,
    tensorrt_here,
    watched,
)
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.inspection import Finding, SignatureGraph
    from tftrt_tools.models.savedmodel.job.loading import Model
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.conversion.job.finishing import Made, Work
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen
    from tftrt_tools.tftrt.conversion.settings import Settings


def job(request: BuildRequest) -> Built:
    """Build the engines of a converted model for declared shapes; without shapes, save it without engines.

    Engines that the model carries are not read and not kept: they may be of another TensorRT or GPU.

    Raises: UsageError, TftrtError; CheckFailed where no engine was ready in time.
    """
    settings, calibration = request.settings, request.calibration
    gpu = gpu_module.seen()
    if settings.shapes and gpu is None:
        raise errors.TftrtError(
            "building engines needs a GPU; none is visible here", "run this on the machine that will serve the model"
        )
    if settings.shapes:  # engines are taken away without TensorRT
        tensorrt_here.check()
    source = pathlib.Path(request.source)
    recorded = {name: signature for signature in request.signatures for name in (signature.name, *signature.twins)}
    with scratch.folder("build") as folder:
        progress.say("loading the model")
        proto = protos.read(source)
        seen = inspector.signature_graphs(protos.meta_graph(proto, settings.tags))
        if not any(signature.engines for signature in seen):
            raise errors.UsageError(f"{source} holds no engine ops", "convert it first: `tftrt convert`")
        detach.write(proto, source, folder + "/model")
        model = loading.load(folder + "/model", settings.tags)
        work = finishing.Work(
            settings=settings,
            gpu=gpu,
            versions=finishing.versions(),
            store=finishing.store(request.cache, settings),
            origin=str(source),
            budget=watched.Budget(request.build_minutes),
        )
        built = _signatures(model, seen, recorded, calibration, work, finishing.prefix(source, settings), folder)
        finishing.check_built([signature.result for signature in built], work.budget)
        progress.say("saving")
        functions = {
            name: signature.function
            for signature in built
            if signature.function
            for name in (signature.result.name, *signature.result.twins)
        }
        resources = {name: resource for signature in built for name, resource in signature.resources.items()}
        saving.save(model, functions, resources, source, pathlib.Path(request.output))
    return Built(
        signatures=tuple(signature.result for signature in built),
        versions=work.versions,
        gpu=gpu,
        tables=tuple(table for signature in built for table in signature.tables),
        cache_problem=work.store.problem if work.store else "",
    )


def _signatures(
    model: Model,
    seen: Sequence[SignatureGraph],
    recorded: Mapping[str, SignatureResult],
    calibration: file.Calibration | None,
    work: Work,
    prefix: str,
    folder: str,
) -> list[Made]:
    """A finishing.Made for each signature. seen: SignatureGraphs; recorded: {name: SignatureResult} of the manifest; calibration: of the
    model, or None."""
    settings = work.settings
    with_engines = {signature.name: signature.inputs for signature in seen if signature.engines}
    walked = signatures.Once.of([signature.name for signature in seen], model.same)
    calls = (
        walked.merged(shape_grammar.calls(shape_grammar.parse(settings.shapes), with_engines))
        if settings.shapes
        else {}
    )
    built = []
    for index, signature_graph in enumerate(
        signature_graph for signature_graph in seen if signature_graph.name in walked.twins
    ):
        twins = walked.twins[signature_graph.name]
        if not signature_graph.engines:
            result = recorded.get(signature_graph.name) or SignatureResult.untouched(
                signature_graph.name, signature_graph.inputs
            )
            built.append(finishing.Made(result=dataclasses.replace(result, name=signature_graph.name, twins=twins)))
            continue
        progress.say(f"reading signature {signature_graph.name}", index, len(walked.twins))
        frozen = graph_pass.freeze(signature_graph.name, model.root.signatures[signature_graph.name])
        # A converted signature is a function; if it has loops or tables, it stays one after freezing.
        graph_def = inline.inline_calls(frozen.graph_def)
        renamed = finishing.unique_names(graph_def, f"{prefix}_{index}")
        graph.set_on_engines(graph_def, workspace_size_bytes=settings.max_workspace_size_bytes)
        if settings.strategy:
            graph.set_on_engines(graph_def, profile_strategy=settings.strategy)
        result = SignatureResult.of_graph(
            signature_graph, graph.engine_ops(graph_def), recorded.get(signature_graph.name)
        )
        needed = calls.get(signature_graph.name, [])
        result = dataclasses.replace(
            result,
            name=signature_graph.name,
            twins=twins,
            findings=_findings(result.findings, renamed, graph_pass.never_built(frozen, graph_def, needed)),
        )
        tables = _tables(frozen, graph_def, signature_graph, settings, needed, calibration) if calibration else ()
        made = finishing.finished(frozen, graph_def, result, work, needed, folder, tables)
        method = int8.method_of(calibration) if calibration else "entropy"
        again = splitting.Again(frozen, graph_def, work, needed, folder, f"{prefix}_{index}", method)
        built.append(refused.left(made, again, work))
    return built


def _findings(recorded: Iterable[Finding], renamed: Mapping[str, str], found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings of a signature under its engines' new names. Args: recorded: when it was converted, maybe by a version that named no
    nodes; renamed: {engine: new name}; found: in its engine ops now."""
    all_found = {(one.about, one.text): one for one in found}
    earlier = (dataclasses.replace(one, about=renamed.get(one.about, one.about)) for one in recorded)
    return (*all_found.values(), *(one for one in earlier if (one.about, one.text) not in all_found))


def _tables(
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    seen: SignatureGraph,
    settings: Settings,
    calls: Sequence[Call],
    calibration: file.Calibration,
) -> tuple[file.EngineTable, ...]:
    """The model's tables under the new names of its engines, fitted to this build and written onto the engine ops."""
    digests = segments.engine_digests(graph_def, names=True)
    by_segment = {table.segment: table for table in calibration.engines}
    kept = [
        dataclasses.replace(by_segment[digests[engine]], engine=engine, signature=seen.name)
        for engine in int8.wanting_tables(graph_def)
        if digests.get(engine) in by_segment
    ]
    fitted = int8.for_build(
        frozen, graph_def, seen.inputs, settings, calls, kept, int8.method_of(calibration), earlier=True
    )
    int8.write(graph_def, fitted)
    return fitted
