"""The conversion itself: every signature of a loaded SavedModel through the graph pass, engines built, all of it saved.

Runs in a child process (`job`); `pipeline` calls it.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from tftrt_tools import errors, progress, scratch
from tftrt_tools.conversion import finishing, int8, patterns, planner, prepare, saving, watched
from tftrt_tools.conversion.result import SignatureResult
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.execution import gpu as gpu_module
from tftrt_tools.savedmodel import flop_count, frozen_inputs, loading, open_channels, signatures
from tftrt_tools.savedmodel import shapes as shape_grammar
from tftrt_tools.savedmodel.shapes import InputSpec


def job(request):
    """Convert in this process.

    Args:
      request: {"source": SavedModel directory, "output": empty directory or None for a dry run, "settings": Settings.to_dict(),
        "int8": int8.Source.to_dict(), "cache": {"folder", "max_bytes"} of the engine cache, or None for none, "build_minutes": for
        all engines, left out for no bound, "compare_modes": coverage below which the other batch mode is tried, left out for never}.

    Returns: {"signatures": [SignatureResult dicts], "versions": {…}, "gpu": {…} or None, "tables": [EngineTable dicts], "data": [DataRecord
      dicts, one a calibrated signature], "cache_problem": why the engine cache did not work, or "", "other_tags": of MetaGraphs
      that are not converted, "method", "comparison": of int8.Decision}.
    """
    settings = Settings.from_dict(request["settings"])
    gpu = gpu_module.seen()
    if settings.shapes and gpu is None:
        raise errors.TftrtError("--shapes builds engines, and engines need a GPU; none is visible here",
                                "leave --shapes out to convert here and build on the target, or run on a machine with a GPU")
    source = pathlib.Path(request["source"])
    progress.say("loading the model")
    model = loading.load(source, settings.tags)
    chosen = signatures.chosen(list(model.root.signatures), settings.signature_keys)
    tables_from = int8.Source.from_dict(request["int8"])
    int8.check_calibrator(settings, tables_from, gpu)
    work = finishing.Work(settings, gpu, finishing.versions(), finishing.store(request["cache"], settings), str(source),
                          watched.Budget(request.get("build_minutes")))
    specs = {name: loading.input_specs(model.root.signatures[name]) for name in model.root.signatures}
    walked = signatures.Once.of(chosen, model.same)
    calls = shape_grammar.calls(shape_grammar.parse(settings.shapes), {name: specs[name] for name in chosen}) if settings.shapes else {}
    calls = walked.merged(calls)
    frozen_inputs.check(settings.freeze, {name: specs[name] for name in chosen}, walked.twins)
    prefix = finishing.prefix(source, settings)
    results, functions, resources, tables, records = [], {}, {}, [], []
    ahead = _ahead(model.root, walked.twins, settings)
    with scratch.folder("engines") as folder:
        decision, names, least = None, list(walked.twins), request.get("compare_modes", 0)
        ready = (_ready(model, names, index, ahead.pop(name, None), work, tables_from, f"{prefix}_{index}", calls.get(name, []), folder,
                        least) for index, name in enumerate(names))
        for one, measured, decision in int8.each_decided(ready, settings, tables_from):
            made, twins = _signature(one, measured, work, decision, folder), walked.twins[one.name]
            results.append(dataclasses.replace(made.result, twins=twins))
            if made.function:
                functions.update(dict.fromkeys((one.name, *twins), made.function))
                resources.update(made.resources)
            tables += made.tables
            records += [made.record] if made.record else []
        finishing.check_built(results, work.budget)
        for name, twins in signatures.Once.of([name for name in model.root.signatures if name not in chosen], model.same).twins.items():
            results.append(SignatureResult.untouched(name, specs[name], twins))
        if request["output"] and (functions or settings.allow_no_engines):
            progress.say("saving")
            saving.save(model, functions, resources, source, pathlib.Path(request["output"]))
    return {"signatures": [result.to_dict() for result in results], "versions": work.versions, "gpu": gpu,
            "tables": [one.to_dict() for one in tables], "data": [one.to_dict() for one in records],
            "cache_problem": work.store.problem if work.store else "", "other_tags": model.other_tags,
            **(decision.to_dict() if decision else {})}


@dataclasses.dataclass(frozen=True)
class _Ready:
    """A signature after the pass. graph_def: None where it has no engine; calls: that it gets engines for."""

    name: str
    result: SignatureResult
    calls: Sequence[Mapping[str, tuple[int, ...]]] = ()
    frozen: object = None
    graph_def: object = None
    specs: Sequence[InputSpec] = ()


def _ahead(root, chosen, settings):
    """What prepare.passed gives for the first signatures, until each pattern of node names has matched: a slip of the pen is found before
    anything is calibrated or built. Returns: {signature: …}. Raises: UsageError."""
    passed, gathered, given = {}, patterns.Patterns(), [flag for flag in patterns.FLAGS if getattr(settings, flag)]
    for name in chosen:
        if not gathered.unmatched(given):
            break
        progress.say(f"looking for the nodes that are named in {name}")
        passed[name] = prepare.passed(name, root.signatures[name], settings, gathered)
    gathered.check()
    return passed


def _ready(model, names, index, passed, work, tables_from, prefix, calls, folder, least):
    """Run the pass on one of the signatures `names`, and measure its ranges.

    Args: passed: what prepare.passed gave, None where it has not run. least: coverage below which the other batch mode is tried.
    Returns: (_Ready, int8.Measured).
    """
    name, settings = names[index], work.settings
    progress.say(f"converting signature {name}", index, len(names))
    function = model.root.signatures[name]
    specs = loading.input_specs(function)
    frozen, passed = passed or prepare.passed(name, function, settings, patterns.Patterns())
    flops = flop_count.count(frozen.graph_def, passed.graph_def, frozen.one_row(calls))
    result = SignatureResult.of(name, specs, passed, flops)
    if result.coverage < least:
        result = dataclasses.replace(result, other_mode=planner.other_mode(frozen, settings))
    _check_quantization(name, passed.quantization, settings)
    if not passed.engines:
        return _Ready(name, result), int8.NOTHING
    graph_def = passed.graph_def
    finishing.unique_names(graph_def, prefix)
    result = dataclasses.replace(result, findings=open_channels.find(graph_def))
    measured = int8.measured(name, frozen, graph_def, specs, settings, tables_from, folder)
    return _Ready(name, result, calls, frozen, graph_def, specs), measured


def _signature(ready, measured, work, decision, folder):
    """Finish the conversion of one signature. Returns: finishing.Made."""
    settings, frozen, graph_def = work.settings, ready.frozen, ready.graph_def
    if graph_def is None:
        return finishing.Made(ready.result)
    tables = measured.tables(decision.method)
    tables = int8.for_build(frozen, graph_def, ready.specs, settings, ready.calls, tables, decision.method.name)
    int8.write(graph_def, tables)
    return finishing.finished(frozen, graph_def, ready.result, work, ready.calls, folder, tables, measured.record)


def _check_quantization(name, quantization, settings):
    """TF-TRT says nothing where it computes otherwise than the quantization nodes, or the precision, ask."""
    problems = quantization.problems
    if not quantization.aware or not problems or settings.allow_quantization_changes:
        return
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise errors.CheckFailed(f"quantization-aware signature {name!r}: {first.name} ({first.op}) {first.text}{more}",
                             (first.mend + "; " if first.mend else "") + "`tftrt inspect` lists all of it; "
                             "--allow_quantization_changes accepts it")
