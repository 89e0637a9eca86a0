"""The whole of `tftrt tune`: check, prepare what all trials share, search, and make the winner."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tftrt_tools.accuracy import judgement, kinds, verify
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import choices, errors, op_libraries
from tftrt_tools.base import stack as stack_room
from tftrt_tools.base.files import documents, scratch, whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.fleet import beside
from tftrt_tools.models.backends.protocol import Made, Work
from tftrt_tools.models.execution import constancy, npz, run
from tftrt_tools.models.execution.run import Call
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import drawing, find
from tftrt_tools.models.inputs import rows as row_module
from tftrt_tools.models.inputs.given import Given
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.models.savedmodel import files, frozen_inputs, signatures
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.studies import backends as backends_room
from tftrt_tools.studies.tuning import final as final_module
from tftrt_tools.studies.tuning import fleet_trials, makers, making, ranking
from tftrt_tools.studies.tuning import given as given_model
from tftrt_tools.studies.tuning import journal as journal_module
from tftrt_tools.studies.tuning import search as search_module
from tftrt_tools.studies.tuning import space as space_module
from tftrt_tools.studies.tuning.budget import Budget
from tftrt_tools.studies.tuning.final import Final
from tftrt_tools.studies.tuning.latency import Latency
from tftrt_tools.studies.tuning.makers import Maker
from tftrt_tools.studies.tuning.measuring import Scored, Scoring, Timed
from tftrt_tools.studies.tuning.trial import ENV, Task, Trials
from tftrt_tools.studies.tuning.tried import Trial, Tuning
from tftrt_tools.tensorrt.exporting import export
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.conversion import inspecting
from tftrt_tools.tftrt.conversion.inspecting import InspectRequest
from tftrt_tools.tftrt.conversion.settings import Settings

_OBJECTIVE = "--objective_shape"
# Rows to calibrate on that are looked at before the first trial.
_FIRST_ROWS = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to search, and how to judge it."""

    # Scoring data, as `inputs.given.given` takes it.
    data: str
    goal: Goal
    # Folder of the trials.
    work_dir: str
    # As accuracy.labels.read takes it.
    labels: str = ""
    # "signature/output" of the goal, or "".
    output: str = ""
    # Rows of a scoring call, 0 for the declared ones.
    batch_size: int = 0
    # Text of --shapes for one call, "" for the last declared.
    objective_shape: str = ""
    # To try.
    precisions: tuple[choices.Precision, ...] = choices.PRECISIONS
    # Who makes the engines that are tried.
    backends: tuple[str, ...] = (backends_room.default().name,)
    # Those that are tried for comparison alone, because `server` does not run what they make.
    compared: tuple[str, ...] = ()
    # What has to serve the winner; "" for nothing that is named.
    server: choices.Server | Literal[""] = ""
    budget: Budget = Budget()
    # The calibration's data, or the path of a table in its place.
    calibration: DataOptions | None = None
    calibration_table: str = ""
    # Calibration methods to try after the settings' own; and the percentile for the method "percentile".
    methods: tuple[choices.CalibrationMethod, ...] = ()
    percentile: float = Settings().calibration_percentile
    # {"folder", "max_bytes"} of the engine cache, None for none.
    cache: Mapping[str, Any] | None = None
    # Minutes for the engines of a trial; None for no bound.
    build_minutes: float | None = None
    # Do failed trials of an earlier run again.
    retry_failed: bool = False
    # Where the log of the trials is kept.
    log_file: str | None = None
    # Repeated in the result.
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # Accept that the original's answers show nothing.
    allow_constant_outputs: bool = False
    # Texts of the flag.
    output_kind: tuple[str, ...] = ()
    # As accuracy.labels.read takes them.
    label_column: str = ""
    classes: str = ""
    # How files of the data are read, and how many rows of them, 0 for all.
    reading: DataOptions = DataOptions()
    data_rows: int = 0


@dataclasses.dataclass(frozen=True)
class Found:
    """tuning: Tuning; calibration: path of the calibration file that the winner (or the best) uses, or ""; makers: {back end: what made its
    models}, of those that were tried beside TF-TRT."""

    tuning: Tuning
    calibration: str
    makers: Mapping[str, Maker] = dataclasses.field(default_factory=dict)

    @property
    def chosen(self) -> Trial:
        """The winner, or the best if none keeps the goal."""
        found = self.tuning.winner or self.tuning.best
        assert found is not None
        return found

    @property
    def maker(self) -> Maker | None:
        """What made the chosen one; None of a conversion."""
        return self.makers.get(self.chosen.backend)

    @property
    def exported(self) -> export.Options | None:
        """How the model was exported for the chosen one; None where it was not."""
        return self.maker.exported(self.chosen.settings) if self.maker else None


def tune(
    model: str | os.PathLike[str] | Source, settings: Settings, options: Options, where: beside.Where | None = None
) -> Found:
    """Search the fastest conversion of a model that keeps a goal.

    Args: model: its path, or source.Source. settings: Settings of what is not searched, with shapes. options: Options. where: a fleet for
      trials that need no other; None for one trial after the other, here.

    Returns: Found. Raises: UsageError, TftrtError (without a GPU for one).
    """
    source = given_model.model(model, options.backends)
    shape_grammar.parse(settings.shapes)
    check_objective(options.objective_shape, settings.shapes)
    whole_file.check_folder(options.work_dir, "--work_dir")
    table = calibration_file.read(options.calibration_table) if options.calibration_table else None
    find.find(options.data, "--data")
    with opening.opened(source, log_file=options.log_file) as (original,), scratch.folder("tune") as folder:
        specs, walked = _specs(original, settings)
        options = _comparable(_of_walked(options, walked), walked.names)
        check_output(options.output, {name: [spec.name for spec in original.outputs[name]] for name in walked.names})
        frozen_inputs.check(settings.freeze, original.freezable(walked.names), walked.twins)
        maker = _maker(settings, options, original.inputs, walked)
        _objective(options.objective_shape, specs, _timed(maker.declared(), settings, specs))
        given = maker.given(folder)
        assert given is not None
        labels = (
            label_reader.read(options.labels, given.rows, options.label_column, options.classes)
            if options.labels
            else None
        )
        scored = _scored(maker, given, settings, options, labels)
        _check_calibration(settings, options, original.inputs, walked, f"{folder}/calibration")
        gpu = _machine((*options.backends, *options.compared), original)
        journal = journal_module.Journal(options.work_dir)
        names = {name: (name, *walked.twins[name]) for name in walked.names}
        with beside.opened(where) as fleet:
            prepared = _prepare(original, settings, options, specs, maker, given, scored, labels, journal.folder)
            return _searched(source, settings, options, table, gpu, journal, prepared, names, fleet)


def _searched(
    source: Source,
    settings: Settings,
    options: Options,
    table: Calibration | None,
    gpu: Mapping[str, str],
    journal: journal_module.Journal,
    prepared: "_Prepared",
    names: Mapping[str, tuple[str, ...]],
    fleet: beside.Opened | None,
) -> Found:
    """Try, choose, and time the best in turns. Args: source: as the user named it; names: of each signature. Returns: Found."""
    shown = nothing_shown(prepared.scoring.calls, options.allow_constant_outputs)
    data_facts = {"model": prepared.digest, "tensorrt": gpu["tensorrt"], "calibration": _facts_of(options.calibration)}
    facts = {
        "model": prepared.digest,
        "data": prepared.data["digest"],
        "metric": options.goal.metric,
        "higher": options.goal.higher,
        "metric_digest": _metric_digest(options.goal),
        "output": options.output,
        **_kind_facts(options),
        "timed": [one.call for one in prepared.timed],
        **gpu,
    }
    told = _told(source, options, journal.folder, names, {**facts, **data_facts})
    tried = (*options.backends, *options.compared)
    task = Task(
        model=prepared.model,
        timed=prepared.timed,
        scoring=prepared.scoring,
        data=options.calibration,
        table=table,
        cache=options.cache,
        build_minutes=options.build_minutes,
        facts=facts,
        data_facts=data_facts,
        given=str(pathlib.Path(source).absolute()),
        makers=making.of(tried, told),
    )
    converted = backends_room.default().name in options.backends
    with Trials(task, journal, options.log_file, options.retry_failed, options.budget.trial_minutes) as trials:
        key = journal_module.key(**facts)
        original = float(journal.fact("original", key, lambda: str(trials.score(prepared.scoring))))
        if not options.goal.kept(original, original):
            raise errors.CheckFailed(
                f"the original itself misses the goal {options.goal.text(original)}: its {options.goal.metric} is "
                f"{original:.6g}",
                "ask for what the original can do, or use max-degradation",
            )
        native = journal.fact(
            "native", key, lambda: {call: one.to_dict() for call, one in trials.native(settings).items()}
        )
        base = dataclasses.replace(settings, precision_mode="FP32")
        if converted and "INT8" in options.precisions:
            table = _first_table(trials, space_module.with_precision(base, "INT8"))
        sizes = (
            journal.fact(
                "sizes",
                journal_module.key(settings=base.to_dict(), model=prepared.digest),
                lambda: _sizes(task.model, base),
            )
            if converted
            else ()
        )
        # If no engine needs a table, as in a quantization-aware model, all methods give the same.
        methods = options.methods if table is not None and table.engines else ()
        space = space_module.Space(
            base=base,
            precisions=options.precisions,
            backends=tuple(name for name in backends_room.names() if name in options.backends),
            compared=options.compared,
            sizes=tuple(sizes),
            methods={backends_room.default().name: methods, **dict.fromkeys(task.makers, options.methods)},
            strategies=space_module.strategies(base, prepared.calls) if converted else (),
            percentile=options.percentile,
        )
        prefetch = fleet_trials.Prefetch(fleet, told, task, journal, trials) if fleet else None
        outcome = search_module.search(
            _means(task, journal, trials),
            space,
            prepared.objective,
            options.goal,
            original,
            options.budget,
            prefetch=prefetch,
        )
        winner, final, said = _in_turns(outcome, prepared, trials, options)
        calibration = _calibration_path(winner or outcome.best, options, trials)
    warnings = (*options.warnings, *prepared.warnings, *shown, *_overlap(table, prepared.scoring.calls))
    done = Tuning(
        model=task.named,
        goal=options.goal,
        original=original,
        calls=tuple(one.call for one in prepared.timed),
        objective=prepared.objective,
        native={call: Latency(**one) for call, one in native.items()},
        trials=outcome.trials,
        winner=winner,
        best=outcome.best,
        ended=outcome.ended,
        notes=(*options.notes, *outcome.notes, *said),
        gpu=gpu["gpu"],
        tensorrt=gpu["tensorrt"],
        data=prepared.data,
        warnings=warnings,
        final=final,
        runtime=prepared.runtime,
        model_servers=prepared.servers,
        model_bytes=files.size(prepared.model),
        server=options.server,
        objective_rows=next(_rows(one) for one in prepared.timed if one.call == prepared.objective),
    )
    return Found(done, calibration, task.makers)


def _told(
    source: Source,
    options: Options,
    folder: pathlib.Path,
    names: Mapping[str, tuple[str, ...]],
    facts: Mapping[str, Any],
) -> makers.Asked:
    """What makers are told. A model in FP32 is compared with the original on the rows that score the trials."""
    asked = inputs.Asked(data=options.data, reading=options.reading, data_rows=options.data_rows)
    comparison = verify.Options(
        asked=asked,
        batch_size=options.batch_size,
        output_kind=options.output_kind,
        allow_constant_outputs=options.allow_constant_outputs,
    )
    table = files.digest(options.calibration_table) if options.calibration_table else ""
    return makers.Asked(
        source=source,
        names=names,
        folder=folder,
        comparison=comparison,
        data=options.calibration,
        table=options.calibration_table,
        cache=options.cache,
        log_file=options.log_file,
        facts={**facts, "table": table},
    )


def _means(task: Task, journal: journal_module.Journal, trials: Trials) -> dict[str, search_module.Means]:
    """What the search asks of each back end."""
    ranks: makers.Ranks = ranking.Ranking(task, journal, trials)
    found = {backends_room.default().name: search_module.Means(evaluate=trials, rank=ranks, snr_db=ranks.snr_db)}
    for name, maker in task.makers.items():
        ranks = maker.ranks(task, journal)
        evaluate = functools.partial(trials.made, backend=name)
        found[name] = search_module.Means(evaluate=evaluate, rank=ranks, snr_db=ranks.snr_db, variants=maker.variants)
    return found


def nothing_shown(calls: Sequence[Scored], allowed: bool = False) -> tuple[str, ...]:
    """Check that the original's answers show anything. Args: calls: of the data. allowed: --allow_constant_outputs.

    Returns: warnings, a line each. Raises: CheckFailed if they show nothing, because any conversion would keep any goal.
    """
    watch = constancy.Watch()
    for one in calls:
        watch.add(run.Call(one.signature, npz.load(one.inputs)), npz.load(one.reference))
    nothing, beside = watch.findings()
    if nothing and not allowed:
        raise errors.CheckFailed(next(iter(nothing.values())), judgement.mend(own_data=True))
    return (*(f"{text} (accepted)" for text in nothing.values()), *beside)


def _in_turns(
    outcome: search_module.Outcome, prepared: "_Prepared", trials: Trials, options: Options
) -> tuple[Trial | None, Final | None, tuple[str, ...]]:
    """Choose the winner again, after timing the best trials in turns. Returns: (Trial or None, Final or None, notes)."""
    if outcome.winner is None:
        return None, None, ()
    if not options.cache:
        return (
            outcome.winner,
            None,
            ("the best trials were not timed in turns: without an engine cache all engines would be built again",),
        )
    best = final_module.finalists(outcome.trials, outcome.winner, prepared.objective)
    timed = next(one for one in prepared.timed if one.call == prepared.objective)
    try:
        found = _with_what_fits(trials, best, timed)
    except errors.TftrtError as error:
        return outcome.winner, None, (f"the best trials could not be timed in turns: {error.cause}",)
    winner = final_module.chosen(found, outcome.trials, options.goal)
    if winner == outcome.winner:
        return winner, found, ()
    return (
        winner,
        found,
        (f"timed one by one trial {outcome.winner.number} was the best; timed in turns, trial {winner.number} is",),
    )


def _with_what_fits(trials: Trials, best: Sequence[Trial], timed: Timed) -> Final:
    """Trials.in_turns; without what was tried for comparison alone, if that does not fit beside the others. Raises: TftrtError."""
    try:
        return trials.in_turns(best, timed)
    except errors.TftrtError:
        needed = [one for one in best if not one.compared]
        if len(needed) == len(best):
            raise
        return trials.in_turns(needed, timed)


def _first_table(trials: Trials, settings: Settings) -> Calibration | None:
    """Make the table of plain INT8 first, so that unreadable data is an error now, not after the trials of the other precisions. Any
    other error becomes a failure of the INT8 trials."""
    try:
        return trials.calibration(settings)
    except errors.UsageError:
        raise
    except errors.TftrtError:
        return None


def _kind_facts(options: Options) -> dict[str, Any]:
    """The kinds of --output_kind for the journal's key; nothing if the flag is not given, so that earlier trials are found again."""
    said = kinds.parse(options.output_kind)
    return {"kinds": said} if said else {}


def _machine(names: Sequence[str], original: Model) -> dict[str, str]:
    """As _gpu; where no back end needs a GPU, the processor stands in its place. Raises: TftrtError."""
    if not any(backends_room.named(name).needs_gpu for name in names):
        return {"gpu": f"no GPU: {fingerprint.cpu_model()}", "compute_capability": "", "driver": "", "tensorrt": ""}
    return _gpu() if original.kind.unconverted is None else given_model.gpu()


def _gpu() -> dict[str, str]:
    """{"gpu", "compute_capability", "driver", "tensorrt"} of this machine. Raises: TftrtError where engines cannot be built here."""
    progress.say("looking for a GPU")
    found = stack_room.diagnose(60)
    able = found.can("build")
    if not able.can:
        raise errors.TftrtError(
            f"tune measures speed, and engines cannot be built here: {able.cause}",
            able.mend or "run it on the machine that the model is for; `tftrt doctor` says what is missing",
        )
    first = found.gpus[0] if found.gpus else None
    return {
        "gpu": first.name if first else "unknown",
        "compute_capability": first.compute_capability if first else "",
        "driver": found.driver or "",
        "tensorrt": found.tensorrt_loaded or found.tensorrt_linked or "",
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Prepared:
    """What all trials share."""

    # Absolute path of the model, and its digest.
    model: str
    digest: str
    # {signature: [{input: shape}]}.
    calls: space_module.Calls
    timed: tuple[Timed, ...]
    scoring: Scoring
    # Text of the call that counts.
    objective: str
    # As in Tuning.
    data: Mapping[str, Any]
    # Warnings, a line each.
    warnings: tuple[str, ...]
    # What runs the model, for people, and what serves it.
    runtime: str
    servers: tuple[choices.Server, ...]


def _specs(model: Model, settings: Settings) -> tuple[dict[str, Sequence[InputSpec]], signatures.Once]:
    """({signature: [InputSpec]} of the original, each function once, signatures.Once of them)."""
    if model.engines:
        raise errors.UsageError(
            f"{model.title} is a converted model itself",
            "tune the original; its manifest in assets.extra/tftrt names it",
        )
    walked = signatures.Once.of(signatures.chosen(list(model.inputs), settings.signature_keys), model.contents.same)
    model.check_dense(walked.names)
    return {name: model.inputs[name] for name in walked.names}, walked


def _comparable(options: Options, names: Sequence[str]) -> Options:
    """The Options without comparisons that only fail: what is compared is made of one signature. Args: names: of those that are tuned."""
    if not options.compared or len(names) == 1:
        return options
    note = (
        f"nothing was tried for comparison: {' and '.join(options.compared)} takes one signature, and {len(names)} are tuned "
        f"(--signature_keys={names[0]} names one)"
    )
    return dataclasses.replace(options, compared=(), notes=(*options.notes, note))


def _rows(timed: Timed) -> int:
    """Of one of its calls."""
    return max((shape[0] for shape in timed.shapes.values() if shape), default=1)


def _maker(
    settings: Settings, options: Options, specs: Mapping[str, Sequence[InputSpec]], walked: signatures.Once
) -> inputs.CallMaker:
    takes = inputs.Takes.walking(walked, specs)
    asked = inputs.Asked(
        data=options.data, reading=options.reading, data_rows=options.data_rows, shapes=settings.shapes
    )
    return inputs.CallMaker(dataclasses.replace(takes, frozen=_frozen(settings, takes.specs)), asked)


def _frozen(settings: Settings, specs: Mapping[str, Sequence[InputSpec]]) -> dict[str, dict[str, Any]]:
    """{signature: {input: its value for good}}."""
    return {name: frozen_inputs.of_signature(settings.freeze, name, listed) for name, listed in specs.items()}


def _of_walked(options: Options, walked: signatures.Once) -> Options:
    """The Options, with names of twin signatures replaced by the names that are called."""
    said = tuple(walked.path(part.strip()) for text in options.output_kind for part in text.split(";"))
    return dataclasses.replace(
        options,
        output=walked.path(options.output),
        objective_shape=walked.path(options.objective_shape),
        output_kind=said,
    )


def check_output(said: str, outputs: Mapping[str, Sequence[str]]) -> None:
    """Refuse an --accuracy_output that the model does not have. Args: outputs: {signature: names}. Raises: UsageError."""
    signature, name = signatures.split(said, outputs)
    mine = outputs.get(signature, ())
    # The outputs of a detector together are named by all of them.
    if said and name not in mine and not set(name.split("+")) <= set(mine):
        raise errors.UsageError(
            f"--accuracy_output={said} is no output of the model",
            errors.nearest(said, [f"{key}/{one}" for key, listed in outputs.items() for one in listed]),
        )


def _prepare(
    model: Model,
    settings: Settings,
    options: Options,
    specs: Mapping[str, Sequence[InputSpec]],
    maker: inputs.CallMaker,
    given: Given,
    cut: tuple[list[Call], int],
    labels: label_reader.Labels | None,
    folder: pathlib.Path,
) -> _Prepared:
    calls, (scored, dropped) = maker.declared(), cut
    timed = _timed(calls, settings, specs)
    rows = sum(call.rows for call in scored)
    digest, data_digest = model.digest(), _data_digest(scored, labels)
    scoring = _reference(model, digest, scored, data_digest, folder, options, labels)
    drew = dict.fromkeys(line for name, listed in calls.items() for line in drawing.drew(specs[name], listed))
    warnings = (
        *given.notes,
        *(f"random, to time: {line}" for line in drew),
        *([f"{dropped} rows of the data were left out: no declared batch size fits them"] if dropped else []),
    )
    return _Prepared(
        model=str(pathlib.Path(model.path).absolute()),
        digest=digest,
        calls=calls,
        timed=timed,
        scoring=scoring,
        objective=_objective(options.objective_shape, specs, timed),
        warnings=warnings,
        runtime=given_model.runtime(model.runtime.package),
        servers=given_model.servers(model.runtime.package),
        data={"source": options.data, "rows": rows, "dropped": dropped, "digest": data_digest},
    )


def _timed(
    calls: space_module.Calls, settings: Settings, specs: Mapping[str, Sequence[InputSpec]]
) -> tuple[Timed, ...]:
    """The calls that are timed, each once. Args: calls: of --shapes."""
    frozen = _frozen(settings, specs)
    timed = tuple(
        Timed(
            call=f"{name}({shape_grammar.call_text(dict(call))})",
            signature=name,
            shapes=dict(call),
            specs=tuple(specs[name]),
            frozen={key: value.item() for key, value in frozen.get(name, {}).items()},
        )
        for name, listed in calls.items()
        for call in listed
    )
    return tuple({one.call: one for one in timed}.values())


def _scored(
    maker: inputs.CallMaker, given: Given, settings: Settings, options: Options, labels: label_reader.Labels | None
) -> tuple[list[Call], int]:
    """As _scored_calls. Raises: UsageError, also where the labels are not as many."""
    ranged = shape_grammar.is_range(settings.shapes)
    scored, dropped = _scored_calls(maker, given, maker.declared(), ranged, options.batch_size)
    if labels is not None and len({call.signature for call in scored}) == 1:
        label_reader.check_count(labels, sum(call.rows for call in scored), dropped)
    return scored, dropped


def _check_calibration(
    settings: Settings, options: Options, specs: Mapping[str, Sequence[InputSpec]], walked: signatures.Once, folder: str
) -> None:
    """Refuse rows to calibrate on that the model does not take: a trial reads them when others have taken long. The first ones are
    looked at. Raises: UsageError."""
    data = options.calibration
    if data is None or not data.source:
        return
    asked = inputs.Asked(data=data.source, reading=data, data_rows=_FIRST_ROWS, said=find.FLAG)
    takes = inputs.Takes.walking(walked, specs)
    maker = inputs.CallMaker(dataclasses.replace(takes, frozen=_frozen(settings, takes.specs)), asked)
    pathlib.Path(folder).mkdir()
    try:
        if given := maker.given(folder):
            maker.cut(given, (1,))
    except errors.UsageError as error:
        raise errors.UsageError(f"{find.FLAG}={data.source}: {error.cause}", error.mend) from None


def _scored_calls(
    maker: inputs.CallMaker, given: Given, calls: space_module.Calls, ranged: bool, batch_size: int
) -> tuple[list[Call], int]:
    """The data cut into calls that engines serve. Returns: ([run.Call], rows left out)."""
    declared = {shape[0] for listed in calls.values() for call in listed for shape in call.values() if shape}
    if batch_size and batch_size not in declared and not ranged:
        raise errors.UsageError(
            f"--batch_size={batch_size} is not among --shapes, so no engine would answer the data",
            "declared batch sizes: " + ", ".join(map(str, sorted(declared))),
        )
    found, dropped = maker.cut(given, (batch_size,) if batch_size else tuple(sorted(declared, reverse=True)))
    scored = [call for listed in found.values() for call in listed]
    if not scored:
        raise errors.UsageError(
            "the data has fewer rows than the smallest batch of --shapes", "give more rows, or declare a smaller batch"
        )
    for call in scored:
        if call.shapes not in calls.get(call.signature, ()) and not ranged:
            raise errors.UsageError(
                f"the data is called at {call.text()}, which --shapes does not declare, so no engine would answer it",
                "add that shape to --shapes",
            )
    return scored, dropped


def _reference(
    model: Model,
    digest: str,
    scored: Sequence[Call],
    data_digest: str,
    folder: pathlib.Path,
    options: Options,
    labels: label_reader.Labels | None,
) -> Scoring:
    """How trials are scored. The original answers once, in float32 without TF32, and its answers are kept."""
    key = journal_module.key(model=digest, data=data_digest).removeprefix("sha256:")[:16]
    place = folder / f"calls-{key}"  # that of a version before, data-…, has pickled strings
    done = place / "calls.json"
    if done.is_file():
        calls = _kept_calls(done)
    else:
        shutil.rmtree(place, ignore_errors=True)
        saved = run.save_calls(scored, place / "in")
        answered = run.run(model, saved, place / "original", "the original", exact=True)
        calls = [
            Scored(
                signature=call.signature,
                rows=call.rows,
                inputs=f"in/{pathlib.Path(path).name}",
                reference=f"original/{pathlib.Path(answer).name}",
            )
            for call, (_, path), answer in zip(scored, saved, answered.answers, strict=True)
        ]
        whole_file.write_text(done, json.dumps([one.to_dict() for one in calls]))
    kept = (place / "labels.npz").absolute()
    if labels is not None:
        labels.save(kept)
    here = place.absolute()
    return Scoring(
        goal=options.goal,
        output=options.output,
        kinds=kinds.parse(options.output_kind),
        labels=str(kept) if labels is not None else "",
        calls=tuple(
            dataclasses.replace(one, inputs=str(here / one.inputs), reference=str(here / one.reference))
            for one in calls
        ),
    )


def _kept_calls(path: pathlib.Path) -> list[Scored]:
    """The calls that an earlier run has kept; their files are in the same folder. Raises: TftrtError for a damaged file, and for one that
    names files elsewhere."""
    home = os.path.realpath(path.parent)
    with documents.reading(path, f"remove {path.parent}: the original then answers again"):
        read: list[dict[str, Any]] = documents.parse(documents.read_text(path))
        documents.check(read, [{"signature!": str, "rows!": int, "inputs!": str, "reference!": str}])
        calls = [Scored.from_dict(one) for one in read]
    for name in (name for one in calls for name in (one.inputs, one.reference)):
        if os.path.dirname(os.path.dirname(os.path.realpath(path.parent / name))) != home:
            raise errors.TftrtError(
                f"{path} names a file outside its folder: {name}",
                f"it was changed by somebody: remove {path.parent}, or take another --work_dir",
            )
    return calls


def check_objective(text: str, shapes: str) -> None:
    """Check what can be seen of --objective_shape without the model. Args: shapes: text of --shapes, "" where that is not known. Raises:
    UsageError."""
    if not text:
        return
    _declared_objective(text)
    known: dict[str, set[tuple[int, ...]]] = {}
    for (_, name), listed in (shape_grammar.parse(shapes) if shapes else {}).items():
        known.setdefault(name, set()).update(listed)
    for (_, name), listed in shape_grammar.parse(text).items():
        if name in known and not known[name] & set(listed):
            raise errors.UsageError(f"--objective_shape={text} is not one of --shapes", f"declared: {shapes}")


def _declared_objective(text: str, specs: Mapping[str, Sequence[InputSpec]] | None = None) -> list[str]:
    """The calls of --objective_shape as texts; [] without specs, where its grammar alone is checked. Raises: UsageError, in its words."""
    parsed = shape_grammar.parse(text, _OBJECTIVE)
    calls = shape_grammar.calls(parsed, specs, _OBJECTIVE) if specs else {}
    return [f"{name}({shape_grammar.call_text(call)})" for name, listed in calls.items() for call in listed]


def _objective(text: str, specs: Mapping[str, Sequence[InputSpec]], timed: Sequence[Timed]) -> str:
    if not text:
        return timed[-1].call
    wanted = _declared_objective(text, specs)
    known = [one.call for one in timed]
    among = [one for one in wanted if one in known]
    if len(wanted) != 1 and len(among) != 1 or not among:
        raise errors.UsageError(f"--objective_shape={text} is not one of --shapes", "declared: " + "; ".join(known))
    return among[0]


def _data_digest(scored: Sequence[Call], labels: label_reader.Labels | None) -> str:
    sha = hashlib.sha256()
    for call in scored:
        sha.update(call.text().encode())
        sha.update("".join(row_module.row_hashes(call.inputs)).encode())
    for array in labels.arrays.values() if labels is not None else ():
        sha.update(
            str(array.dtype).encode()
            + (repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes())
        )
    return "sha256:" + sha.hexdigest()


def _facts_of(calibration: DataOptions | None) -> dict[str, Any] | None:
    """The facts of calibration data: its flags, and the digest of its file or folder."""
    if calibration is None:
        return None
    path = pathlib.Path(calibration.source)
    return {**calibration.to_dict(), "digest": files.digest(path) if calibration.source and path.exists() else ""}


def _sizes(model: str, settings: Settings) -> list[int]:
    plan = inspecting.inspect.run(InspectRequest(model=model, settings=settings), env=ENV).result.plan
    assert plan, "the original is not converted"
    return list(space_module.sizes(plan, settings.minimum_segment_size))


def _calibration_path(chosen: Trial | None, options: Options, trials: Trials) -> str:
    if chosen is None or chosen.settings.precision_mode != "INT8" or chosen.backend != backends_room.default().name:
        return ""
    if options.calibration_table:
        return str(pathlib.Path(options.calibration_table).absolute())
    return str(trials.calibration_path(chosen.settings).absolute()) if options.calibration else ""


def _overlap(table: Calibration | None, calls: Sequence[Scored]) -> Iterator[str]:
    """A warning if the model is scored on rows that calibrated it."""
    if table is None or not table.data.get("rows"):
        return
    known = set(table.data["rows"])
    shared = sum(row_module.overlap(known, npz.load(one.inputs)) for one in calls)
    if shared:
        yield f"{shared} of the {sum(one.rows for one in calls)} rows of --data were used for calibration as well: score on other rows"


def _metric_digest(goal: Goal) -> str:
    """The digest of the module with the user's metric, if it lies in the current folder: a changed text may be another metric."""
    path = pathlib.Path(goal.metric.partition(":")[0].replace(".", "/") + ".py")
    return files.digest(path) if goal.is_function and path.is_file() else ""


def flag_file(model: str | os.PathLike[str], found: Found) -> str:
    """Text for `tftrt convert --flagfile`: what makes the winner, or the best trial if none keeps the goal."""
    work = _work(model, found)
    lines = [
        *([f"--backend={found.chosen.backend}"] if found.maker else []),
        f"--model={pathlib.Path(work.source.path).absolute()}",
        *work.source.flag_lines(),
        *(f"--op_library={path}" for path in ([] if found.exported else op_libraries.named())),
        *(work.data.flag_lines() if work.data else []),
        *space_module.flag_lines(work.settings),
    ]
    return "\n".join(lines) + "\n"


def _work(model: str | os.PathLike[str] | Source, found: Found) -> Work[Any]:
    """What makes the chosen model once more, without a place for it."""
    settings, maker = found.chosen.settings, found.maker
    if maker is None:
        settings = dataclasses.replace(settings, calibration_table=found.calibration)
        return Work(source=of(model), output=None, settings=settings)
    return Work(
        source=maker.source(settings), output=None, settings=maker.built_with(settings), data=maker.data(settings)
    )


def write_winner(
    model: str | os.PathLike[str] | Source, output: str, found: Found, options: Options, overwrite: bool
) -> Made:
    """Make the winner in a directory, as what it is. Args: overwrite: replace a model that is there. Raises: as the conversion."""
    work = dataclasses.replace(
        _work(model, found),
        output=output,
        overwrite=overwrite,
        flag_file=flag_file(model, found),
        cache=options.cache,
        build_minutes=options.build_minutes,
    )
    return backends_room.named(found.chosen.backend).make(work)
