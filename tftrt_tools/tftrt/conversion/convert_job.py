"""The conversion itself: every signature of a loaded SavedModel through the graph pass, engines built, all of it saved.

Runs in a child process (`job`); `pipeline` calls it.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.savedmodel import fixed_sizes, frozen_inputs, signatures
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.job import loading
from tftrt_tools.tftrt.conversion import advice
from tftrt_tools.tftrt.conversion.converting import Converted, ConvertRequest
from tftrt_tools.tftrt.conversion.job import (
    again,
    finishing,
    graph_pass,
    int8,
    loop_flops,
    patterns,
    planner,
    prepare,
    refused,
    saving,
    tensorrt_here,
    watched,
)
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

if TYPE_CHECKING:
    from tftrt_tools.models.savedmodel.job.loading import Model
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.calibration.record import DataRecord
    from tftrt_tools.tftrt.conversion.job.finishing import Made, Work
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen, PassResult
    from tftrt_tools.tftrt.conversion.job.int8 import Decision, Measured, Source
    from tftrt_tools.tftrt.conversion.quantization import Quantization
    from tftrt_tools.tftrt.conversion.settings import Settings


def job(request: ConvertRequest) -> Converted:
    """Convert in this process. Raises: UsageError, TftrtError; CheckFailed where TF-TRT departs from the quantization, or no engine was
    ready in time."""
    settings = request.settings
    gpu = gpu_module.seen()
    if settings.shapes and gpu is None:
        raise errors.TftrtError(
            "--shapes builds engines, and engines need a GPU; none is visible here",
            "to convert here and build there, give --use_dynamic_shape in place of --shapes, or run on a machine with a GPU",
        )
    tensorrt_here.check()
    source = pathlib.Path(request.source)
    progress.say("loading the model")
    model = loading.load(source, settings.tags)
    chosen = signatures.chosen(list(model.root.signatures), settings.signature_keys)
    int8.check_calibrator(settings, request.int8, gpu)
    work = finishing.Work(
        settings=settings,
        gpu=gpu,
        versions=finishing.versions(),
        store=finishing.store(request.cache, settings),
        origin=str(source),
        budget=watched.Budget(request.build_minutes),
    )
    specs = {name: model.specs(name) for name in model.root.signatures}
    walked = signatures.Once.of(chosen, model.same)
    tables_from = int8.Source.of_model(request.int8, walked, specs)
    calls = (
        shape_grammar.calls(shape_grammar.parse(settings.shapes), {name: specs[name] for name in chosen})
        if settings.shapes
        else {}
    )
    calls = walked.merged(calls)
    frozen_inputs.check(
        settings.freeze, {name: loading.freezable(model.root.signatures[name]) for name in chosen}, walked.twins
    )
    fixed_sizes.check(settings.fix_sizes, {name: specs[name] for name in chosen}, walked.twins)
    prefix = finishing.prefix(source, settings)
    results: list[SignatureResult] = []
    functions: dict[str, Any] = {}
    resources: dict[str, Any] = {}
    tables: list[EngineTable] = []
    records: list[DataRecord] = []
    decision: int8.Decision | None = None
    ahead = _ahead(model, walked.twins, settings)
    with scratch.folder("engines") as folder:
        names, least = list(walked.twins), request.compare_modes
        ready = (
            _ready(
                model,
                names,
                index,
                ahead.pop(name, None),
                work,
                tables_from,
                f"{prefix}_{index}",
                calls.get(name, []),
                folder,
                least,
            )
            for index, name in enumerate(names)
        )
        for ready_signature, measured, decision in int8.each_decided(ready, settings, tables_from):
            converted, twins = (
                _signature(ready_signature, measured, work, decision, folder, tables_from),
                walked.twins[ready_signature.result.name],
            )
            results.append(dataclasses.replace(converted.result, twins=twins))
            if converted.function:
                functions.update(dict.fromkeys((ready_signature.result.name, *twins), converted.function))
                resources.update(converted.resources)
            tables += converted.tables
            records += [converted.record] if converted.record else []
        finishing.check_built(results, work.budget)
        for name, twins in signatures.Once.of(
            [name for name in model.root.signatures if name not in chosen], model.same
        ).twins.items():
            results.append(SignatureResult.untouched(name, specs[name], twins))
        if request.output and (functions or settings.allow_no_engines):
            progress.say("saving")
            saving.save(model, functions, resources, source, pathlib.Path(request.output))
    return Converted(
        signatures=tuple(results),
        versions=work.versions,
        gpu=gpu,
        tables=tuple(tables),
        data=tuple(records),
        method=decision.said if decision else "",
        comparison=decision.comparison if decision else None,
        cache_problem=work.store.problem if work.store else "",
        other_tags=tuple(model.other_tags),
    )


@dataclasses.dataclass(frozen=True)
class _Ready:
    """A signature after the pass. divided: None where it has no engine."""

    result: SignatureResult
    divided: again.Divided | None = None


def _ahead(
    model: Model, chosen: Mapping[str, tuple[str, ...]], settings: Settings
) -> dict[str, tuple[Frozen, PassResult]]:
    """Run prepare.passed on the first signatures until each pattern of node names has matched, so that a mistyped pattern is found before
    anything is calibrated or built. Returns: {signature: …}. Raises: UsageError."""
    passed: dict[str, tuple[Frozen, PassResult]] = {}
    gathered, given = patterns.Patterns(), [flag for flag in patterns.FLAGS if getattr(settings, flag)]
    for name in chosen:
        if not gathered.unmatched(given):
            break
        progress.say(f"looking for the nodes that are named in {name}")
        passed[name] = prepare.passed(name, model.root.signatures[name], settings, gathered)
    gathered.check()
    return passed


def _ready(
    model: Model,
    names: Sequence[str],
    index: int,
    ahead: tuple[Frozen, PassResult] | None,
    work: Work,
    tables_from: Source,
    prefix: str,
    calls: Sequence[Call],
    folder: str,
    least: float,
) -> tuple[_Ready, Measured]:
    """Run the pass on one of the signatures `names`, and measure its ranges.

    Args: ahead: the result of prepare.passed, None if it has not run. least: coverage below which the other batch mode is tried.
    Returns: (_Ready, int8.Measured).
    """
    name, settings = names[index], work.settings
    progress.say(f"converting signature {name}", index, len(names))
    function = model.root.signatures[name]
    specs = model.specs(name)
    frozen, passed = ahead or prepare.passed(name, function, settings, patterns.Patterns())
    waits = bool(calls) or settings.precision_mode == "INT8"
    if waits and (told := advice.before_the_wait(name, passed.left_out, passed.coverage)):
        progress.note(told)
    flops = loop_flops.count(frozen, passed.graph_def, specs, calls)
    result = dataclasses.replace(SignatureResult.of(name, specs, passed, flops), findings=loading.findings(model, name))
    if result.coverage < least:
        result = dataclasses.replace(result, other_mode=planner.other_mode(name, frozen, settings))
    _check_quantization(name, passed.quantization, settings)
    if not passed.engines:
        return _Ready(result), int8.NOTHING
    graph_def = passed.graph_def
    finishing.unique_names(graph_def, prefix)
    result = dataclasses.replace(result, findings=(*result.findings, *graph_pass.never_built(frozen, graph_def, calls)))
    divided = again.Divided(frozen=frozen, graph_def=graph_def, prefix=prefix, specs=specs, calls=calls)
    divided, result, measured = again.measured(divided, result, settings, tables_from, folder)
    if not result.engines:
        return _Ready(result), int8.NOTHING
    return _Ready(result, divided), measured


def _signature(
    ready: _Ready, measured: Measured, work: Work, decision: Decision, folder: str, tables_from: Source
) -> Made:
    """Finish the conversion of one signature. Returns: finishing.Made."""
    divided = ready.divided
    if divided is None:
        return finishing.Made(result=ready.result)
    tables = again.written(divided, work.settings, measured.tables(decision.method), decision.method)
    made = finishing.finished(
        divided.frozen, divided.graph_def, ready.result, work, divided.calls, folder, tables, measured.record
    )
    return refused.left(made, again.Again(divided, work, decision.method, folder, tables_from), work)


def _check_quantization(name: str, quantization: Quantization, settings: Settings) -> None:
    """Raise CheckFailed if TF-TRT would depart from the quantization nodes or the precision. TF-TRT itself does not report that."""
    if (first := again.departure(quantization, settings)) is None:
        return
    count = len(quantization.problems) - 1
    more = f" (and {count} more)" if count else ""
    raise errors.CheckFailed(
        f"quantization-aware signature {name!r}: {first.name} ({first.op}) {first.text}{more}",
        (first.mend + "; " if first.mend else "") + "`tftrt inspect` lists all of it; "
        "--allow_quantization_changes accepts it",
    )
