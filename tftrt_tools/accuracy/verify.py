"""The verification: the same inputs through the original and the converted model, the answers compared, the engines watched."""

import dataclasses
import pathlib

from tftrt_tools import child, errors, progress, scratch
from tftrt_tools.accuracy import data, held_out, judgement, kinds, thresholds, truth
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.execution import coverage, kernels, run
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.savedmodel import describe, files, frozen_inputs, passport, signatures
from tftrt_tools.savedmodel.engine_op import lowest_precision
from tftrt_tools.sources.opened import check, opened

# The first compute capability with TF32, which TensorRT and TensorFlow then use for float32 by default.
_TF32_SINCE = 8.0
REWRITE_ONLY = "graph rewrite only, no engine arithmetic"


@dataclasses.dataclass(frozen=True)
class Options:
    """data: path, glob or module:function, or ""; reading, data_rows: how its files are read, and how many rows (0 for all);
    shapes, thresholds, ranges: texts of the flags; batch_size: rows of a call, 0 for the declared ones; labels, label_column, classes: of
    the truth, as accuracy.labels.read takes them; label_output: "signature/output" or ""; allow_builds: accept
    engines that are built inside a call; allow_calibration_data: accept data that calibrated the model; allow_constant_outputs: accept
    answers that show nothing; output_kind: texts of the flag; signature_keys: () for all; epsilon: floor of the divisor of max_rel."""

    data: str = ""
    shapes: str = ""
    thresholds: str = ""
    ranges: str = ""
    seed: int = 0
    batch_size: int = 0
    labels: str = ""
    label_output: str = ""
    label_column: str = ""
    classes: str = ""
    reading: DataOptions = DataOptions()
    data_rows: int = 0
    allow_builds: bool = False
    allow_matching_nonfinite: bool = False
    allow_calibration_data: bool = False
    allow_constant_outputs: bool = False
    output_kind: tuple[str, ...] = ()
    signature_keys: tuple = ()
    epsilon: float = 1e-3
    log_file: str | None = None


@dataclasses.dataclass(frozen=True)
class Verification:
    """A finished verification. arithmetic: whose thresholds were used; evidence: what the answers show, in words; problems: everything
    that makes it fail, in words; engine_runs: {engine: calls in which it ran}; calibration: held_out.CalibrationUse of an INT8 model, or
    None; kernels: {arithmetic: seconds of the GPU's kernels} of a call of each shape that engines served; precision: the lowest that
    engines were asked for, "" without engines; nothing_shown, constant_outputs: what judgement.Judgement says in `nothing_shown` and
    `warnings`; notes: what to know about the data; twins: {signature: further names of the same function}, for which its result holds
    as well; unbuilt: {engine op that was left without an engine: why}, as the converted model's manifest has it."""

    original: str
    converted: str
    original_digest: str
    converted_digest: str
    mode: str
    arithmetic: str
    evidence: str
    gpu: dict | None
    comparisons: tuple
    bounds: dict
    misses: tuple
    engine_problems: tuple
    structure_problems: tuple
    engine_runs: dict
    builds: dict
    calls: int
    shapes: tuple
    sources: dict
    samples: dict
    dropped: int
    seed: int
    accuracy: dict | None
    calibration: object = None
    kernels: dict = dataclasses.field(default_factory=dict)
    precision: str = ""
    nothing_shown: tuple[str, ...] = ()
    constant_outputs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    twins: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    unbuilt: dict[str, str] = dataclasses.field(default_factory=dict)
    stamp: dict = dataclasses.field(default_factory=passport.stamp)

    @property
    def problems(self):
        """Everything that makes the verification fail, a line each."""
        return (*self.structure_problems, *self.engine_problems, *(miss.text() for miss in self.misses), *self.nothing_shown)

    @property
    def warnings(self):
        """What to know about the result beside its problems, a line each."""
        not_taken = kernels.not_taken(self.precision, self.kernels)
        left = [f"{name} was left without an engine and runs in TensorFlow: {reason}" for name, reason in self.unbuilt.items()]
        of_calibration = self.calibration.warnings() if self.calibration else ()
        return (*left, *self.notes, *of_calibration, *([not_taken] if not_taken else []), *self.constant_outputs)

    @property
    def passed(self):
        """Whether nothing was found."""
        return not self.problems

    def to_dict(self):
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "stamp"}
        plain |= {"comparisons": [one.to_dict() for one in self.comparisons], "misses": [one.to_dict() for one in self.misses],
                  "engine_problems": list(self.engine_problems), "structure_problems": list(self.structure_problems),
                  "shapes": list(self.shapes), "nothing_shown": list(self.nothing_shown), "constant_outputs": list(self.constant_outputs),
                  "calibration": self.calibration.to_dict() if self.calibration else None}
        return {"kind": "verification", **self.stamp, "passed": self.passed,
                "problems": list(self.problems), "warnings": list(self.warnings), **plain}


def verify(original, converted, options):
    """Compare a model with what it became.

    Args: original: its path, or source.Source. converted: SavedModel directory. options: Options.
    Returns: Verification, also for a failed check. Raises: UsageError, TftrtError where it cannot be carried out.
    """
    original = check(original)
    files.check(converted)
    rules = judgement.Rules.of(options)
    if options.labels and not options.data:
        raise errors.UsageError("--labels needs --data: random inputs have no right class", "add --data with the rows the labels speak of")
    with opened(original, options.log_file) as folder:
        return _compared(original, folder, converted, rules, options)


def _compared(original, opened_original, converted, rules, options):
    """The Verification. Args: original: Source; opened_original: the SavedModel behind it."""
    first, second = describe.describe(opened_original, converted)
    if first.engines:
        raise errors.UsageError(f"the original {original} is a converted model itself", "usage: tftrt verify ORIGINAL CONVERTED")
    names = signatures.chosen(list(first.inputs), options.signature_keys)
    structure = _structure(first, second, names)
    names = [name for name in names if name in second.inputs and _types(second.inputs[name]) == _types(first.inputs[name])]
    kinds.check(rules.kinds, ((name, spec.name) for name in first.outputs for spec in first.outputs[name]))
    if not names:
        raise errors.CheckFailed(f"no signature takes the same inputs in both models: {structure[0]}",
                                 "check that CONVERTED was made from ORIGINAL")
    manifest = passport.read(converted, passport.MANIFEST) or {}
    unbuilt = {one["name"]: one["reason"] for signature in manifest.get("signatures", []) for one in signature.get("unbuilt", ())}
    walked = signatures.Once.of(names, first.same, second.same)
    options = dataclasses.replace(options, label_output=walked.path(options.label_output))
    rules = dataclasses.replace(rules, bounds=walked.renamed(rules.bounds), kinds=walked.renamed(rules.kinds))
    with scratch.folder("verify") as folder:
        calls, given = _calls(first, walked, manifest, options, folder)
        labels = _labels(calls, given, options)
        used = held_out.check(passport.read(converted, passport.CALIBRATION), calls.calls, calls.sources, options.allow_calibration_data)
        saved = run.save_calls(calls.calls, folder + "/in")
        reference, answers = _run_both(opened_original, converted, saved, folder, options)
        progress.say("comparing")
        pairs = ((call, reference.answer(index), answers.answer(index)) for index, call in enumerate(calls.calls))
        arithmetic = _arithmetic(answers, second)
        own = [name for name, source in calls.sources.items() if source == "data"]
        judged = judgement.judge(pairs, arithmetic, own, rules)
        accuracy, short = _accuracy(calls, reference, answers, judged, labels, options, rules)
    return Verification(
        str(pathlib.Path(original).absolute()), str(pathlib.Path(converted).absolute()), files.digest(original), files.digest(converted),
        answers.mode, arithmetic, _evidence(answers, second), answers.gpu, judged.comparisons, judged.bounds, (*judged.misses, *short),
        tuple(_engine_problems(calls.calls, answers, second, options, unbuilt)), (*structure, *judged.problems), _totals(answers, "engine"),
        _totals(answers, "build"), len(calls.calls), _distinct_shapes(calls.calls), calls.sources, calls.samples, calls.dropped,
        options.seed, accuracy, used, answers.kernels, _lowest(second), judged.nothing_shown, judged.warnings,
        given.notes if given else (), {name: twins for name, twins in walked.twins.items() if twins}, unbuilt)


def _structure(first, second, names):
    """What the converted model lacks or names otherwise."""
    problems = []
    for name in names:
        if name not in second.inputs:
            problems.append(f"signature {name!r} is missing in the converted model")
            continue
        for kind in ("input", "output"):
            before, after = (_types(getattr(model, kind + "s")[name]) for model in (first, second))
            problems += [f"{name!r} lost its {kind} {lost!r}" for lost in before if lost not in after]
            problems += [f"{name!r} has a new {kind} {new!r}" for new in after if new not in before]
            problems += [f"{kind} {one!r} of {name!r} became {after[one]}, it was {before[one]}" for one in before
                         if after.get(one, before[one]) != before[one]]
    return problems


def _types(specs):
    return {spec.name: spec.dtype for spec in specs}


def _calls(first, walked, manifest, options, folder):
    """(data.Calls, data.Given or None)."""
    names = walked.names
    specs = {name: first.inputs[name] for name in names}
    frozen = frozen_inputs.of_manifest(manifest, specs)
    found, dropped = {}, 0
    given = data.given(options.data, specs, folder, options.reading, options.data_rows, walked=walked) if options.data else None
    if given:
        found, dropped = given.cut(_without(frozen, specs, given), _batch_sizes(manifest, options))
    sources = {name: "data" if name in found else "random" for name in names}
    missing = {name: specs[name] for name in names if name not in found}
    declared = _shapes(manifest, walked.with_twins(specs), options, walked)
    ranges = _ranges(options, specs)
    for name, inputs_of in missing.items():
        shapes = declared.get(name) or data.default_shapes(name, inputs_of)
        found[name] = data.random_calls(name, inputs_of, shapes, options.seed, ranges)
    empty = [name for name, calls in found.items() if not calls]
    if empty:
        raise errors.UsageError(f"the data has fewer rows than the smallest batch of signature {empty[0]!r}",
                                "give more rows, or --batch_size")
    calls = tuple(_with(frozen.get(name, {}), call, sources[name] == "data") for name in names for call in found[name])
    samples = {name: sum(call.rows for call in found[name]) for name in names}
    return data.Calls(calls, sources, samples, dropped), given


def _without(frozen, specs, given):
    """The inputs that the data has to fill: not those that the conversion froze, unless it has them."""
    has = {name.rpartition("/")[2] for name in given.arrays}
    return {name: [spec for spec in inputs_of if spec.name in has or spec.name not in frozen.get(name, {})]
            for name, inputs_of in specs.items()}


def _with(frozen, call, from_data):
    """The call with the values to which inputs were frozen: with those alone both models have to agree."""
    for name, value in frozen.items():
        if from_data and name in call.inputs and (call.inputs[name] != value).any():
            raise errors.UsageError(f"the data gives input {name!r} of {call.signature!r} another value than {value.item()}, to which it "
                                    "was frozen", f"leave {name} out of the data: it is sent as {value.item()}")
    return dataclasses.replace(call, inputs={**call.inputs, **frozen})


def _batch_sizes(manifest, options):
    """Rows of a call, largest first: those that engines were built for, so that data of any length is served by them."""
    if options.batch_size:
        return (options.batch_size, *(range(options.batch_size - 1, 0, -1) if not _declared(manifest) else ()))
    declared = {shape[0] for signature in _declared(manifest) for call in signature["calls"] for shape in call.values() if shape}
    return tuple(sorted(declared, reverse=True)) or tuple(range(data.DEFAULT_BATCH, 0, -1))


def _declared(manifest):
    return [signature for signature in manifest.get("signatures", []) if signature.get("calls")]


def _shapes(manifest, specs, options, walked):
    """Shapes for random inputs: --shapes, else those the engines were built for."""
    if options.shapes:
        return walked.merged(data.declared_shapes(options.shapes, specs))
    return {name: [{key: tuple(shape) for key, shape in call.items()} for call in one["calls"]]
            for name, one in passport.signatures(manifest).items() if name in specs and one.get("calls")}


def _ranges(options, specs):
    ranges = random_inputs.parse_ranges(options.ranges)
    known = {spec.name for inputs_of in specs.values() for spec in inputs_of}
    for name in ranges:
        if name not in known:
            raise errors.UsageError(f"--ranges: no input {name!r}", "inputs here: " + ", ".join(sorted(known)))
    return ranges


def _run_both(original, converted, saved, folder, options):
    """(Run of the original, Run of the converted model): on a GPU in a process each, since the first would keep its memory there."""
    with run.worker(log_file=options.log_file) as first:
        # TF32 is off for the original: the reference should be the best float32 answer, not another approximation.
        reference = run.run(original, saved, folder + "/original", "the original", tf32=False, started=first)
        if not reference.gpu:
            return reference, _run_converted(converted, saved, folder, options, first)
    return reference, _run_converted(converted, saved, folder, options)


def _run_converted(converted, saved, folder, options, started=None):
    try:
        return run.run(converted, saved, folder + "/converted", "the converted model", trace=True, log_file=options.log_file,
                       started=started, kernels=True)
    except child.ChildDied as death:
        raise errors.TftrtError(f"the converted model aborts: {death.cause}",
                                "engines built by another TensorRT or for another GPU do that; build them here\n  " + death.mend) from None


def _arithmetic(answers, second):
    if answers.mode != "gpu" or not second.engines:
        return "rewrite"
    lowest = _lowest(second)
    return "TF32" if lowest == "FP32" and float(answers.gpu["compute_capability"] or 0) >= _TF32_SINCE else lowest


def _lowest(second):
    return lowest_precision({engine.precision for engine in second.engines})


def _evidence(answers, second):
    if not second.engines:
        return "the model holds no engine ops: TensorFlow on both sides"
    if answers.mode == "gpu":
        return "engines watched on " + answers.gpu["name"]
    return REWRITE_ONLY


def _engine_problems(calls, answers, second, options, unbuilt):
    if answers.mode != "gpu" or not second.engines:
        return []
    problems = []
    for call, trace in zip(calls, answers.traces, strict=True):
        problems += coverage.misses(call, dataclasses.replace(trace, build={}) if options.allow_builds else trace, unbuilt)
    ran = {name for trace in answers.traces for kind in ("engine", "fallback") for name in getattr(trace, kind)}
    if not options.signature_keys:
        problems += [f"{engine.name} ran in no call" for engine in second.engines if engine.name not in {*ran, *unbuilt}]
    return problems


def _totals(answers, kind):
    totals = {}
    for trace in answers.traces:
        for name, times in (getattr(trace, kind) if trace else {}).items():
            totals[name] = totals.get(name, 0) + times
    return totals


def _distinct_shapes(calls):
    return tuple(dict.fromkeys(call.text() for call in calls))


def _labels(calls, given, options):
    """The labels.Labels of --labels, or None; checked before the work where one signature's rows are those that they speak of."""
    if not options.labels:
        return None
    labels = label_reader.read(options.labels, given.rows, options.label_column, options.classes)
    filled = [name for name, source in calls.sources.items() if source == "data"]
    if len(filled) == 1:
        label_reader.check_count(labels, calls.samples[filled[0]], calls.dropped)
    return labels


def _accuracy(calls, reference, answers, judged, labels, options, rules):
    """({"output", "labels", "original", "converted", …} as truth.to_dict says, Misses of the bounds on it); (None, ()) without labels."""
    if labels is None:
        return None, ()
    picked = {}
    for index, call in enumerate(calls.calls):
        if calls.sources[call.signature] == "data":
            picked.setdefault(call.signature, []).append(index)
    first = {signature: reference.answer(listed[0]) for signature, listed in picked.items()}
    classes = [one.name for one in judged.comparisons if one.classes]
    target = truth.find(labels, first, rules.kinds, classes, options.label_output, "--label_output")
    both = [truth.score(labels, target, (run_of.answer(index) for index in picked[target.signature])) for run_of in (reference, answers)]
    return truth.to_dict(target, *both), thresholds.of_labels(both[1].values, rules.bounds)
