"""The whole of `tftrt tune`: check, prepare what all trials share, search, and make the winner."""

import dataclasses
import hashlib
import json
import pathlib
import shutil

import numpy as np

from tftrt_tools import child, errors, op_libraries, progress, scratch, whole_file
from tftrt_tools import stack as stack_room
from tftrt_tools.accuracy import constancy, judgement, kinds
from tftrt_tools.accuracy import data as accuracy_data
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.calibration import file as calibration_file
from tftrt_tools.conversion.plan import Plan
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.execution import npz, run
from tftrt_tools.inputs import find
from tftrt_tools.inputs import rows as row_module
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.savedmodel import describe, files, signatures
from tftrt_tools.savedmodel import shapes as shape_grammar
from tftrt_tools.sources.opened import check, opened
from tftrt_tools.sources.source import of
from tftrt_tools.tuning import final as final_module
from tftrt_tools.tuning import journal as journal_module
from tftrt_tools.tuning import ranking
from tftrt_tools.tuning import search as search_module
from tftrt_tools.tuning import space as space_module
from tftrt_tools.tuning.goal import Goal
from tftrt_tools.tuning.result import Latency, Tuning
from tftrt_tools.tuning.trial import ENV, Task, Trials


@dataclasses.dataclass(frozen=True)
class Options:
    """data: scoring data, as `accuracy.data.given` takes it; reading, data_rows: how its files are read, and how many rows; labels,
    label_column, classes: as accuracy.labels.read takes them; output: "signature/output" that the goal speaks of, or
    ""; batch_size: rows of a scoring call, 0 for the declared ones; objective_shape: text of --shapes for one call, "" for the last
    declared; precisions: to try; budget: search.Budget; work_dir: folder of the trials; calibration: DataOptions or None;
    calibration_table: path or ""; methods: of calibration, to try after the settings' own; percentile: of the method of that name; cache:
    of the engine cache, or None; retry_failed: do failed trials again; warnings: to be repeated in the result; allow_constant_outputs:
    accept that the original's answers show nothing; output_kind: texts of the flag."""

    data: str
    goal: Goal
    work_dir: str
    labels: str = ""
    output: str = ""
    batch_size: int = 0
    objective_shape: str = ""
    precisions: tuple = ("FP32", "FP16", "INT8")
    budget: search_module.Budget = search_module.Budget()
    calibration: object = None
    calibration_table: str = ""
    methods: tuple = ()
    percentile: float = Settings().calibration_percentile
    cache: dict | None = None
    retry_failed: bool = False
    log_file: str | None = None
    warnings: tuple = ()
    allow_constant_outputs: bool = False
    output_kind: tuple[str, ...] = ()
    label_column: str = ""
    classes: str = ""
    reading: DataOptions = DataOptions()
    data_rows: int = 0


@dataclasses.dataclass(frozen=True)
class Found:
    """tuning: Tuning; calibration: path of the calibration file that the winner (or the best) uses, or ""."""

    tuning: Tuning
    calibration: str


def tune(model, settings, options):
    """Search the fastest conversion of a model that keeps a goal.

    Args: model: its path, or source.Source. settings: Settings of what is not searched, with shapes. options: Options.

    Returns: Found. Raises: UsageError, TftrtError (without a GPU for one).
    """
    source = check(model)
    shape_grammar.parse(settings.shapes)
    table = calibration_file.read(options.calibration_table) if options.calibration_table else None
    find.find(options.data, "--data")
    with opened(source, options.log_file) as model, scratch.folder("tune") as folder:
        specs, walked = _specs(source, model, settings)
        options = _of_walked(options, walked)
        given = accuracy_data.given(options.data, specs, folder, options.reading, options.data_rows, walked=walked)
        labels = label_reader.read(options.labels, given.rows, options.label_column, options.classes) if options.labels else None
        gpu = _gpu()
        journal = journal_module.Journal(options.work_dir)
        prepared = _prepare(source, model, settings, options, walked, specs, given, labels, journal.folder)
        return _searched(source, settings, options, table, gpu, journal, prepared)


def _searched(source, settings, options, table, gpu, journal, prepared):
    """Try, choose, and time the best in turns. Args: source: as the user named it. Returns: Found."""
    shown = nothing_shown(prepared.scoring["calls"], options.allow_constant_outputs)
    data_facts = {"model": prepared.digest, "tensorrt": gpu["tensorrt"], "calibration": _facts_of(options.calibration)}
    facts = {"model": prepared.digest, "data": prepared.data["digest"], "metric": options.goal.metric, "higher": options.goal.higher,
             "metric_digest": _metric_digest(options.goal), "output": options.output, **_kind_facts(options),
             "timed": [one["call"] for one in prepared.timed], **gpu}
    task = Task(prepared.model, prepared.timed, prepared.scoring, options.calibration, table, options.cache, facts,
                data_facts, str(pathlib.Path(source).absolute()))
    with Trials(task, journal, options.log_file, options.retry_failed, options.budget.trial_minutes) as trials:
        key = journal_module.key(**facts)
        original = float(journal.fact("original", key, lambda: str(trials.ask({"do": "score", "scoring": prepared.scoring}))))
        if not options.goal.kept(original, original):
            raise errors.CheckFailed(f"the original itself misses the goal {options.goal.text(original)}: its {options.goal.metric} is "
                                     f"{original:.6g}", "ask for what the original can do, or use max-degradation")
        native = journal.fact("native", key, lambda: trials.ask({"do": "native", "model": task.model, "tags": list(settings.tags),
                                                                 "timed": list(prepared.timed)}))
        base = dataclasses.replace(settings, precision_mode="FP32")
        if "INT8" in options.precisions:
            table = _first_table(trials, space_module.with_precision(base, "INT8"))
        sizes = journal.fact("sizes", journal_module.key(settings=base.to_dict(), model=prepared.digest), lambda: _sizes(task.model, base))
        # Where no engine needs a table, as of a quantization-aware model, all methods are one.
        methods = options.methods if table is not None and table.engines else ()
        space = space_module.Space(base, options.precisions, tuple(sizes), space_module.strategies(base, prepared.calls), methods,
                                   options.percentile)
        simulated = ranking.Ranking(task, journal, trials)
        outcome = search_module.search(trials, space, prepared.objective, options.goal, original, simulated, simulated.snr_db,
                                       options.budget)
        winner, final, said = _in_turns(outcome, prepared, trials, options)
        calibration = _calibration_path(winner or outcome.best, options, trials)
    warnings = (*options.warnings, *prepared.warnings, *shown, *_overlap(table, prepared.scoring["calls"]))
    done = Tuning(task.named, options.goal, original, tuple(one["call"] for one in prepared.timed), prepared.objective,
                  {call: Latency(**one) for call, one in native.items()}, outcome.trials, winner, outcome.best, outcome.ended,
                  (*outcome.notes, *said), gpu["gpu"], gpu["tensorrt"], prepared.data, warnings, final)
    return Found(done, calibration)


def nothing_shown(calls, allowed=False):
    """What the original's answers do not show. Args: calls: of the scoring part of a request, on disk. allowed: --allow_constant_outputs.

    Returns: warnings, a line each. Raises: CheckFailed where they show nothing: any conversion would keep any goal.
    """
    watch = constancy.Watch()
    for one in calls:
        watch.add(run.Call(one["signature"], npz.load(one["inputs"])), npz.load(one["reference"]))
    nothing, beside = watch.findings()
    if nothing and not allowed:
        raise errors.CheckFailed(next(iter(nothing.values())), judgement.mend(own_data=True))
    return (*(f"{text} (accepted)" for text in nothing.values()), *beside)


def _in_turns(outcome, prepared, trials, options):
    """The winner chosen once more, with the best timed in turns. Returns: (Trial or None, Final or None, notes)."""
    if outcome.winner is None:
        return None, None, ()
    if not options.cache:
        return outcome.winner, None, ("the best were not timed in turns: without an engine cache all would be built once more",)
    best = final_module.finalists(outcome.trials, outcome.winner, prepared.objective)
    timed = next(one for one in prepared.timed if one["call"] == prepared.objective)
    try:
        found = trials.in_turns({one.number: one.settings for one in best}, timed)
    except errors.Interrupted:
        raise
    except errors.TftrtError as error:
        return outcome.winner, None, (f"the best could not be timed in turns: {error.cause}",)
    winner = final_module.chosen(found, outcome.trials, options.goal)
    if winner == outcome.winner:
        return winner, found, ()
    return winner, found, (f"timed on its own trial {outcome.winner.number} was the one to take; timed in turns, trial {winner.number} is",)


def _first_table(trials, settings):
    """The table of plain INT8. Data that cannot be read is told now, not after the trials of the other precisions; what else goes wrong
    is a failure of the INT8 trials."""
    try:
        return trials.calibration(settings)
    except (errors.UsageError, errors.Interrupted):
        raise
    except errors.TftrtError:
        return None


def _kind_facts(options):
    """What --output_kind says; nothing where it says nothing, so that earlier trials are found again."""
    said = kinds.parse(options.output_kind)
    return {"kinds": said} if said else {}


def _gpu():
    """{"gpu", "compute_capability", "driver", "tensorrt"} of this machine. Raises: TftrtError where engines cannot be built here."""
    progress.say("looking for a GPU")
    found = stack_room.diagnose(60)
    able = found.can("build")
    if not able.can:
        raise errors.TftrtError(f"tune measures speed, and engines cannot be built here: {able.cause}",
                                able.mend or "run it on the machine that the model is for; `tftrt doctor` says what is missing")
    first = found.gpus[0] if found.gpus else None
    return {"gpu": first.name if first else "unknown", "compute_capability": first.compute_capability if first else "",
            "driver": found.driver or "", "tensorrt": found.tensorrt_loaded or found.tensorrt_linked or ""}


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """What all trials share. model: absolute path; digest: of the model; calls: {signature: [{input: shape}]}; timed, scoring:
    as measure.job takes them; objective: text of the call that counts; data: for Tuning."""

    model: str
    digest: str
    calls: dict
    timed: tuple
    scoring: dict
    objective: str
    data: dict
    warnings: tuple


def _specs(source, model, settings):
    """({signature: [InputSpec]} of the original, each function once, signatures.Once of them). Args: source: as the user named it; model:
    the SavedModel behind it."""
    described = describe.describe(model)[0]
    if described.engines:
        raise errors.UsageError(f"{source} is a converted model itself", "tune the original; its manifest in assets.extra/tftrt names it")
    walked = signatures.Once.of(signatures.chosen(list(described.inputs), settings.signature_keys), described.same)
    return {name: described.inputs[name] for name in walked.names}, walked


def _of_walked(options, walked):
    """The Options with the names of signatures that are walked."""
    said = tuple(walked.path(part.strip()) for text in options.output_kind for part in text.split(";"))
    return dataclasses.replace(options, output=walked.path(options.output), objective_shape=walked.path(options.objective_shape),
                               output_kind=said)


def _prepare(source, model, settings, options, walked, specs, given, labels, folder):
    calls = walked.merged(shape_grammar.calls(shape_grammar.parse(settings.shapes), walked.with_twins(specs)))
    timed = tuple({"call": f"{name}({shape_grammar.call_text(call)})", "signature": name,
                   "shapes": {key: list(shape) for key, shape in call.items()}, "specs": [spec.to_dict() for spec in specs[name]]}
                  for name, listed in calls.items() for call in listed)
    timed = tuple({one["call"]: one for one in timed}.values())
    scored, dropped = _scored_calls(given, specs, calls, shape_grammar.is_range(settings.shapes), options.batch_size)
    rows = sum(call.rows for call in scored)
    if labels is not None and len({call.signature for call in scored}) == 1:
        label_reader.check_count(labels, rows, dropped)
    digest, data_digest = files.digest(source), _data_digest(scored, labels)
    scoring = _reference(model, digest, scored, data_digest, folder, options, labels)
    warnings = (*given.notes, *([f"{dropped} rows of the data were left out: no declared batch size fits them"] if dropped else []))
    return _Prepared(str(pathlib.Path(model).absolute()), digest, calls, timed, scoring, _objective(options.objective_shape, specs, timed),
                     {"source": options.data, "rows": rows, "dropped": dropped, "digest": data_digest}, warnings)


def _scored_calls(given, specs, calls, ranged, batch_size):
    """The data cut into calls that engines serve. Returns: ([run.Call], rows left out)."""
    declared = {shape[0] for listed in calls.values() for call in listed for shape in call.values() if shape}
    if batch_size and batch_size not in declared and not ranged:
        raise errors.UsageError(f"--batch_size={batch_size} is not among --shapes, so no engine would answer the data",
                                "declared batch sizes: " + ", ".join(map(str, sorted(declared))))
    found, dropped = given.cut(specs, (batch_size,) if batch_size else tuple(sorted(declared, reverse=True)))
    scored = [call for listed in found.values() for call in listed]
    if not scored:
        raise errors.UsageError("the data has fewer rows than the smallest batch of --shapes", "give more rows, or declare a smaller batch")
    for call in scored:
        if call.shapes not in calls.get(call.signature, ()) and not ranged:
            raise errors.UsageError(f"the data is called at {call.text()}, which --shapes does not declare, so no engine would answer it",
                                    "add that shape to --shapes")
    return scored, dropped


def _reference(model, digest, scored, data_digest, folder, options, labels):
    """The scoring part of a trial's request. The original answers once, in float32 without TF32, and its answers are kept."""
    key = journal_module.key(model=digest, data=data_digest).removeprefix("sha256:")[:16]
    place = folder / f"data-{key}"
    done = place / "calls.json"
    if done.is_file():
        calls = json.loads(done.read_text())
    else:
        shutil.rmtree(place, ignore_errors=True)
        saved = run.save_calls(scored, place / "in")
        answered = run.run(model, saved, place / "original", "the original", tf32=False)
        calls = [{"signature": call.signature, "rows": call.rows, "inputs": f"in/{pathlib.Path(path).name}",
                  "reference": f"original/{pathlib.Path(answer).name}"}
                 for call, (_, path), answer in zip(scored, saved, answered.answers, strict=True)]
        whole_file.write_text(done, json.dumps(calls))
    absolute = [{**one, **{name: str((place / one[name]).absolute()) for name in ("inputs", "reference")}} for one in calls]
    kept = (place / "labels.npz").absolute()
    if labels is not None:
        labels.save(kept)
    return {"goal": options.goal.to_dict(), "output": options.output, "kinds": kinds.parse(options.output_kind),
            "labels": str(kept) if labels is not None else "", "calls": absolute}


def _objective(text, specs, timed):
    if not text:
        return timed[-1]["call"]
    wanted = [f"{name}({shape_grammar.call_text(call)})" for name, listed in
              shape_grammar.calls(shape_grammar.parse(text), specs).items() for call in listed]
    known = [one["call"] for one in timed]
    among = [one for one in wanted if one in known]
    if len(wanted) != 1 and len(among) != 1 or not among:
        raise errors.UsageError(f"--objective_shape={text} is not one of --shapes", "declared: " + "; ".join(known))
    return among[0]


def _data_digest(scored, labels):
    sha = hashlib.sha256()
    for call in scored:
        sha.update(call.text().encode())
        sha.update("".join(row_module.row_hashes(call.inputs)).encode())
    for array in labels.arrays.values() if labels is not None else ():
        sha.update(str(array.dtype).encode() + (repr(array.tolist()).encode() if array.dtype == object else
                                                np.ascontiguousarray(array).tobytes()))
    return "sha256:" + sha.hexdigest()


def _facts_of(calibration):
    """What calibration data a DataOptions names: its flags, and the digest of a file or folder."""
    if calibration is None:
        return None
    path = pathlib.Path(calibration.source)
    return {**calibration.to_dict(), "digest": files.digest(path) if calibration.source and path.exists() else ""}


def _sizes(model, settings):
    request = {"model": model, "settings": settings.to_dict()}
    plan = Plan.from_dict(child.run("tftrt_tools.conversion.inspect:job", request, env=ENV).result)
    return list(space_module.sizes(plan, settings.minimum_segment_size))


def _calibration_path(chosen, options, trials):
    if chosen is None or chosen.settings.precision_mode != "INT8":
        return ""
    if options.calibration_table:
        return str(pathlib.Path(options.calibration_table).absolute())
    return str(trials.calibration_path(chosen.settings).absolute()) if options.calibration else ""


def _overlap(table, calls):
    """A warning where the model is scored on rows that it was calibrated on. Args: calls: of the scoring part of a request, on disk."""
    if table is None or not table.data.get("rows"):
        return
    known = set(table.data["rows"])
    shared = sum(row_module.overlap(known, npz.load(one["inputs"])) for one in calls)
    if shared:
        yield f"{shared} of the {sum(one['rows'] for one in calls)} rows of --data were used for calibration as well: score on other rows"


def _metric_digest(goal):
    """Of the module that holds the user's metric, where it lies in the current folder: another text may be another metric."""
    path = pathlib.Path(goal.metric.partition(":")[0].replace(".", "/") + ".py")
    return files.digest(path) if goal.is_function and path.is_file() else ""


def flag_file(model, found):
    """Text for `tftrt convert --flagfile`: the settings of the winner, or of the best where no trial keeps the goal."""
    chosen = found.tuning.winner or found.tuning.best
    settings = dataclasses.replace(chosen.settings, calibration_table=found.calibration)
    lines = [f"--input_saved_model_dir={pathlib.Path(model).absolute()}", *of(model).flag_lines(),
             *(f"--op_library={path}" for path in op_libraries.named()), *space_module.flag_lines(settings)]
    return "\n".join(lines) + "\n"


def settings_of(found):
    """Settings of the winner, for pipeline.convert."""
    return dataclasses.replace(found.tuning.winner.settings, calibration_table=found.calibration)

