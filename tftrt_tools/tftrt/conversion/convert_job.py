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
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.conversion import advice, pass_log
from tftrt_tools.tftrt.conversion.converting import Converted, ConvertRequest
from tftrt_tools.tftrt.conversion.job import (
    finishing,
    graph_pass,
    int8,
    loop_flops,
    patterns,
    planner,
    prepare,
    saving,
    watched,
)
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.job.loading import Model
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.calibration.record import DataRecord
    from tftrt_tools.tftrt.conversion.job.finishing import Made, Work
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen, PassResult
    from tftrt_tools.tftrt.conversion.job.int8 import Decision, Measured, Source
    from tftrt_tools.tftrt.conversion.quantization import Quantization
    from tftrt_tools.tftrt.conversion.settings import Settings

# How often a signature is converted again at most, without the nodes that TensorRT refused.
_MOST_REPEATS = 8


def job(request: ConvertRequest) -> Converted:
    """Convert in this process. Raises: UsageError, TftrtError; CheckFailed where TF-TRT departs from the quantization, or no engine was
    ready in time."""
    settings = request.settings
    gpu = gpu_module.seen()
    if settings.shapes and gpu is None:
        raise errors.TftrtError(
            "--shapes builds engines, and engines need a GPU; none is visible here",
            "leave --shapes out to convert here and build on the target, or run on a machine with a GPU",
        )
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
                _signature(ready_signature, measured, work, decision, folder),
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
    """A signature after the pass. converted: None where it has no engine."""

    result: SignatureResult
    converted: _Converted | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Converted:
    """graph_def: `frozen` after the pass; prefix: of its engines' names; calls: those that get engines."""

    frozen: Frozen
    graph_def: graph_pb2.GraphDef
    prefix: str
    specs: Sequence[InputSpec]
    calls: Sequence[Call]


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
    measured = int8.measured(name, frozen, graph_def, specs, settings, tables_from, folder)
    return _Ready(
        result, _Converted(frozen=frozen, graph_def=graph_def, prefix=prefix, specs=specs, calls=calls)
    ), measured


def _signature(ready: _Ready, measured: Measured, work: Work, decision: Decision, folder: str) -> Made:
    """Finish the conversion of one signature. Returns: finishing.Made."""
    converted = ready.converted
    if converted is None:
        return finishing.Made(result=ready.result)
    tables = measured.tables(decision.method)
    tables = int8.for_build(
        converted.frozen,
        converted.graph_def,
        converted.specs,
        work.settings,
        converted.calls,
        tables,
        decision.method.name,
    )
    int8.write(converted.graph_def, tables)
    finished = finishing.finished(
        converted.frozen, converted.graph_def, ready.result, work, converted.calls, folder, tables, measured.record
    )
    # With other segments the tables would change, too.
    return finished if tables else _without_refused(converted, finished, work, folder)


def _without_refused(converted: _Converted, finished: Made, work: Work, folder: str) -> Made:
    """Convert a signature again, as long as TensorRT refuses nodes by name: these stay in TensorFlow, and the rest is built."""
    kept, name = converted.frozen.thrown[work.settings.dynamic], finished.result.name
    for number in range(1, _MOST_REPEATS + 1):
        refused = {
            left.node: f"{pass_log.REFUSED} ({left.reason})"
            for left in finished.result.unbuilt
            if left.node and left.node not in kept
        }
        if not refused or work.budget.over:
            break
        progress.say(f"converting signature {name} without the nodes that TensorRT refuses")
        kept.update(refused)
        passed = graph_pass.run(converted.frozen, work.settings, patterns.Patterns())
        finishing.unique_names(passed.graph_def, f"{converted.prefix}_{number}")
        result = SignatureResult.of(
            name,
            converted.specs,
            passed,
            loop_flops.count(converted.frozen, passed.graph_def, converted.specs, converted.calls),
        )
        own = [finding for finding in finished.result.findings if finding.about == name]
        result = dataclasses.replace(
            result,
            other_mode=finished.result.other_mode,
            findings=(*own, *graph_pass.never_built(converted.frozen, passed.graph_def, converted.calls)),
        )
        if not passed.engines:
            return finishing.Made(result=result)
        finished = finishing.finished(converted.frozen, passed.graph_def, result, work, converted.calls, folder)
    return finished


def _check_quantization(name: str, quantization: Quantization, settings: Settings) -> None:
    """Raise CheckFailed if TF-TRT would depart from the quantization nodes or the precision. TF-TRT itself does not report that."""
    problems = quantization.problems
    if not quantization.aware or not problems or settings.allow_quantization_changes:
        return
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise errors.CheckFailed(
        f"quantization-aware signature {name!r}: {first.name} ({first.op}) {first.text}{more}",
        (first.mend + "; " if first.mend else "") + "`tftrt inspect` lists all of it; "
        "--allow_quantization_changes accepts it",
    )
