"""The verification: the same inputs through the original and the converted model, the answers compared, the engines watched."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tftrt_tools.accuracy import (
    held_out,
    judgement,
    kinds,
    metrics,
    rounded_answers,
    score,
    thresholds,
    truth,
    wrapped,
    wrapped_labels,
)
from tftrt_tools.accuracy import labels as label_reader
from tftrt_tools.accuracy.rounded_answers import Simulation
from tftrt_tools.base import errors, results
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child, progress
from tftrt_tools.models.execution import coverage, kernels, run
from tftrt_tools.models.execution.runner import Mode
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import names as name_matching
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel import passport, signatures
from tftrt_tools.models.savedmodel.engine_op import lowest_precision
from tftrt_tools.tftrt.wrapping import added

if TYPE_CHECKING:
    from tftrt_tools.accuracy.labels import Labels
    from tftrt_tools.accuracy.metrics.comparison import Pair
    from tftrt_tools.models.execution.run import Call, Names, Run, Started
    from tftrt_tools.models.kinds.model import Contents, Model
    from tftrt_tools.models.savedmodel.shapes import InputSpec
    from tftrt_tools.models.sources.source import Source
    from tftrt_tools.tftrt.wrapping.added import Wrapped

# The first compute capability with TF32, which TensorRT and TensorFlow then use for float32 by default.
_TF32_SINCE = 8.0
# What an exported file says of itself: the outputs that it has kept, if others were cut off, and inputs that it does not read.
OUTPUTS, FREEZE = "tftrt.outputs", "tftrt.freeze"
# What ONNX Runtime does on a CPU with an FP16 file.
_ORT, _NOT_ROUNDED = "ONNX Runtime", ", which does not round to FP16: `tftrt export` compares a copy that does"
REWRITE_ONLY = "graph rewrite only, no engine arithmetic"
# Behind a verdict for which no engine ran.
_NO_ENGINE = "no engine ran"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared, and how it is judged."""

    # The user's flags about the inputs.
    asked: inputs.Asked = inputs.Asked()
    # Rows of a call, 0 for the declared ones.
    batch_size: int = 0
    # The right answers, as accuracy.labels.read takes them.
    labels: str = ""
    label_column: str = ""
    classes: str = ""
    # "signature/output" that the labels are about, or "".
    label_output: str = ""
    # Texts of the flags.
    thresholds: str = ""
    output_kind: tuple[str, ...] = ()
    # Floor of the divisor of max_rel, in the output's own unit.
    epsilon: float = 1e-3
    # Accept engines that are built inside a call.
    allow_builds: bool = False
    # Accept NaN and Inf where the original has the same.
    allow_matching_nonfinite: bool = False
    # Accept data that calibrated the model.
    allow_calibration_data: bool = False
    # Accept answers that show nothing.
    allow_constant_outputs: bool = False
    # () for all.
    signature_keys: tuple[str, ...] = ()
    # ORIGINAL=CONVERTED each, of inputs and outputs that have another name in the converted model.
    rename: tuple[str, ...] = ()
    # Names of the outputs that are compared, () for all: the converted model may lack the others.
    outputs: tuple[str, ...] = ()
    # Text of --freeze: inputs that have this value in all calls, because the converted model does not read them.
    freeze: str = ""
    # Whose bounds hold, a key of thresholds.DEFAULTS; "" for those of the arithmetic that ran.
    arithmetic: str = ""
    # Where to keep what the runtimes log.
    log_file: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Verification(passport.Stamped, results.Result):
    """A finished verification."""

    document: ClassVar[str] = "verification"
    written_too: ClassVar[tuple[str, ...]] = ("passed", "verdict", "problems", "warnings")
    written_first: ClassVar[tuple[str, ...]] = ("kind", "tool", "created", "passed", "verdict", "problems", "warnings")

    # Paths, and digests.
    original: str
    converted: str
    original_digest: str
    converted_digest: str
    # Where the converted model ran.
    mode: Mode
    # Whose thresholds were used: a key of thresholds.DEFAULTS, or thresholds.FP16_SIMULATED.
    arithmetic: str
    # What the answers show, in words.
    evidence: str
    # {"name", "compute_capability", "driver"}, None without one.
    gpu: dict[str, str] | None
    # The comparison of each output.
    comparisons: tuple[metrics.Comparison, ...]
    # {output: {metric: bound}}.
    bounds: dict[str, dict[str, float]]
    misses: tuple[thresholds.Miss, ...]
    # Lines on what engines did and should not, and on what the converted model lacks or has otherwise.
    engine_problems: tuple[str, ...]
    structure_problems: tuple[str, ...]
    # {engine: runs}, and {engine: builds inside of calls}, of all calls.
    engine_runs: dict[str, int]
    builds: dict[str, int]
    # The number of calls, and their distinct shapes as text.
    calls: int
    shapes: tuple[str, ...]
    # {signature: "data" or "random"}.
    sources: dict[str, str]
    # {signature: rows, or items whose inputs have unlike rows}; and rows of the data that filled no call.
    samples: dict[str, int]
    dropped: int
    # The seed of drawn inputs.
    seed: int
    # The accuracy, as truth.to_dict gives it; None without labels. For a wrapped model it is the lowest of `accuracies`.
    accuracy: dict[str, Any] | None
    # For an INT8 model: how much of the data its calibration used.
    calibration: held_out.CalibrationUse | None = None
    # {arithmetic: seconds of the GPU's kernels} of a call of each shape that engines served.
    kernels: dict[str, float] = dataclasses.field(default_factory=dict)
    # The lowest that engines were asked for, "" without engines.
    precision: Precision | Literal[""] = ""
    # As judgement.Judgement says in `nothing_shown` and `warnings`.
    nothing_shown: tuple[str, ...] = ()
    constant_outputs: tuple[str, ...] = ()
    # What to know about the data.
    notes: tuple[str, ...] = ()
    # {signature: further names of the same function}, for which its result holds as well.
    twins: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    # {engine op that was left without an engine: why}, as the converted model's manifest has it.
    unbuilt: dict[str, str] = dataclasses.field(default_factory=dict)
    # {module:function: its value} of the user's functions in --thresholds.
    functions: dict[str, float] = dataclasses.field(default_factory=dict)
    # {"original", "converted": what ran it}.
    runtimes: dict[str, str] = dataclasses.field(default_factory=dict)
    # Inputs and outputs that have another name in the converted model, a line each.
    matched: tuple[str, ...] = ()
    # The signatures of which `samples` counts items.
    items: tuple[str, ...] = ()
    # The inputs whose drawn values keep to what the model's ops take, a line each.
    drew: tuple[str, ...] = ()
    # Of a wrapped model, the accuracy of each added signature; () else.
    accuracies: tuple[dict[str, Any], ...] = ()
    # What was simulated of engines that did not run; `comparisons` and `accuracy` are then of the simulation.
    simulation: Simulation = Simulation()
    # Beside a simulation: the comparison of the graph, without the engines' rounding, and the bounds that it misses.
    graph: tuple[metrics.Comparison, ...] = ()
    graph_problems: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that makes the verification fail, a line each."""
        return (
            *self.structure_problems,
            *self.engine_problems,
            *self.graph_problems,
            *(miss.text() for miss in self.misses),
            *self.nothing_shown,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the result beside its problems, a line each."""
        not_taken = kernels.not_taken(self.precision, self.kernels)
        left = [
            f"{name} was left without an engine and runs in TensorFlow: {reason}"
            for name, reason in self.unbuilt.items()
        ]
        of_calibration = self.calibration.warnings() if self.calibration else ()
        guessed = dict.fromkeys(filter(None, map(truth.guessed, self.accuracies or filter(None, (self.accuracy,)))))
        return (
            *left,
            *self.notes,
            *guessed,
            *of_calibration,
            *([not_taken] if not_taken else []),
            *self.constant_outputs,
            *self.simulation.warnings(),
        )

    @property
    def passed(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def summary(self) -> str:
        """The summary, as Result.summary."""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        found = f"{self.problems[0]}{more}" if self.problems else self.evidence
        return f"{self.verdict}: {self.converted} against {self.original}; {found}"

    @property
    def unseen(self) -> bool:
        """Whether the model has engines and none ran, because there is no GPU here."""
        return self.mode == "native segments"

    @property
    def verdict(self) -> str:
        """The verdict in words, with what it is about where no engine ran: "PASSED (INT8 simulated; no engine ran)"."""
        if not self.passed:
            return "FAILED"
        if not self.unseen:
            return "PASSED"
        return f"PASSED ({self.simulation.words if self.simulation.whole else 'the graph'}; {_NO_ENGINE})"


def verify(
    original: str | os.PathLike[str] | Source, converted: str | os.PathLike[str] | Source, options: Options
) -> Verification:
    """Compare a model with its conversion.

    Args: original: its path, or source.Source. converted: path of a model of any kind. options: Options.
    Returns: Verification, also for a failed check. Raises: UsageError, TftrtError where it cannot be carried out.
    """
    original, converted = opening.check(original), opening.check(converted, as_it_is=True)
    renamed = name_matching.parse(options.rename)
    rules = judgement.Rules.of(options)
    if options.labels and not options.asked.data:
        raise errors.UsageError(
            "--labels needs --data: random inputs have no right class",
            "add --data with the rows that the labels are about",
        )
    with opening.opened(original, converted, log_file=options.log_file) as (first, second):
        record = wrapped.of(second) if wrapped.of(first) is None else None
        if record:
            return _around(first, second, record, rules, options)
        return _compared(first, second, rules, options, renamed)


def check_labels(
    original: str | os.PathLike[str] | Source, options: Options, sizes: Sequence[int] = (), metric: str = ""
) -> None:
    """Refuse labels that `verify` would refuse, before there is a converted model: the original answers the first call of the data.

    Args: original, options: as of `verify`. sizes: rows of a call, largest first; () as without engines. metric: of a goal; labels that
      cannot have it are refused, too. Raises: UsageError, TftrtError.
    """
    rules = judgement.Rules.of(options)
    with opening.opened(opening.check(original)) as (model,), scratch.folder("labels") as folder:
        walked = signatures.Once.of(signatures.chosen(list(model.inputs), options.signature_keys), model.contents.same)
        model.check_dense(walked.names)
        options = dataclasses.replace(options, label_output=walked.path(options.label_output))
        rules = dataclasses.replace(rules, kinds=walked.renamed(rules.kinds))
        maker = inputs.CallMaker(inputs.Takes.walking(walked, model.inputs).with_frozen(options.freeze), options.asked)
        given = maker.given(folder)
        cut_calls, dropped = maker.cut(given, sizes or _batch_sizes({}, options)) if given else ({}, 0)
        labels = _labels(
            inputs.Calls(calls=cut_calls, origins=dict.fromkeys(cut_calls, "data"), given=given, dropped=dropped),
            options,
        )
        calls = [listed[0] for listed in cut_calls.values() if listed]
        if labels is None or not calls:
            return
        answers = run.run(model, run.save_calls(calls, folder + "/in"), folder + "/answers", "the original", exact=True)
        first = {call.signature: answers.answer(place) for place, call in enumerate(calls)}
        judged = judgement.judge(
            ((call, first[call.signature], first[call.signature]) for call in calls), "rewrite", list(first), rules
        )
        target = _target(labels, first, judged, options, rules)
        truth.check(labels, target, first[target.signature])
        if metric:
            score.check(metric, target)


def _around(first: Model, second: Model, record: Wrapped, rules: judgement.Rules, options: Options) -> Verification:
    """The Verification of a model with the signatures of `tftrt wrap`, against the model that was wrapped."""
    _check_original(first)
    if options.rename:
        raise errors.UsageError("--rename has no effect on signatures that `tftrt wrap` has added", "leave it out")
    manifest = second.document(passport.MANIFEST) or {}
    with scratch.folder("verify") as folder:
        exchange = wrapped.exchange(
            record, first, second, options.asked, _batch_sizes(manifest, options), options.signature_keys, folder
        )
        used = held_out.check(
            second.document(passport.CALIBRATION),
            exchange.rows(),
            {item.call.signature: item.source for item in exchange.sent},
            options.allow_calibration_data,
        )
        labels = wrapped_labels.read(exchange, options) if options.labels else {}
        saved = run.save_calls(exchange.originals, folder + "/in")
        theirs = run.save_calls([item.call for item in exchange.sent], folder + "/theirs")
        origins: dict[str, inputs.Origin] = {
            exchange.originals[item.original].signature: "data" if item.source == "data" else "signature"
            for item in exchange.sent
        }
        with inputs.explained(origins):
            reference, answers = _run_both(first, second, saved, folder, options, {}, theirs)
        sent = [item.call for item in exchange.sent]
        own = {item.call.signature for item in exchange.sent if item.source == "data"}
        simulation, rounded = rounded_answers.simulated(second, sent, answers, own, {}, theirs, folder + "/rounded")
        progress.say("comparing")
        ran = _arithmetic(answers, first, second)
        judged, wrong = _judged_around(exchange, reference, rounded, rules, simulation.arithmetic, ran)
        plain, _ = _judged_around(exchange, reference, answers, rules, {}, ran) if simulation.simulated else ([], {})
        answers = rounded
        accuracies, short = (
            wrapped_labels.accuracies(exchange, labels, reference, answers, rules, options) if labels else ((), ())
        )
    rows: dict[str, int] = {}
    for sent_call in exchange.sent:
        rows[sent_call.label] = rows.get(sent_call.label, 0) + sent_call.call.rows
    unbuilt = _unbuilt(manifest)
    return Verification(
        original=str(pathlib.Path(first.source).absolute()),
        converted=str(pathlib.Path(second.source).absolute()),
        original_digest=first.digest(),
        converted_digest=second.digest(),
        mode=answers.mode,
        arithmetic=simulation.lowest or ran,
        evidence=_evidence(reference, answers, second, simulation),
        gpu=answers.gpu,
        simulation=simulation,
        **_of_graph(plain),
        comparisons=tuple(comparison for each in judged for comparison in each.comparisons),
        bounds={name: bound for each in judged for name, bound in each.bounds.items()},
        misses=(*(miss for each in judged for miss in each.misses), *short),
        engine_problems=tuple(_engine_problems(sent, answers, second, options, unbuilt)),
        structure_problems=(*wrong, *(line for each in judged for line in each.problems)),
        engine_runs=_totals(answers, "engine"),
        builds=_totals(answers, "build"),
        calls=len(sent),
        shapes=_distinct_shapes(sent),
        sources=dict(exchange.sources),
        samples=rows,
        drew=exchange.drew,
        items=tuple(dict.fromkeys(item.label for item in exchange.sent if item.call.whole)),
        dropped=0,
        seed=options.asked.seed,
        calibration=used,
        accuracy=accuracies[0] if accuracies else None,
        accuracies=accuracies,
        kernels=answers.kernels,
        precision=_lowest(second),
        nothing_shown=tuple(line for each in judged for line in each.nothing_shown),
        constant_outputs=tuple(line for each in judged for line in each.warnings),
        notes=(*exchange.notes, *_remarks(reference, answers)),
        unbuilt=unbuilt,
        runtimes={"original": reference.where.text(), "converted": answers.where.text()},
    )


def _judged_around(
    exchange: wrapped.Exchange,
    reference: Run,
    answers: Run,
    rules: judgement.Rules,
    arithmetic: Mapping[str, str],
    ran: str,
) -> tuple[list[judgement.Judgement], dict[str, None]]:
    """(Judgements, what the added signatures answer otherwise, a line each). Args: arithmetic: {signature: its own}; ran: of the others."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    wrong: dict[str, None] = {}
    for place, sent in enumerate(exchange.sent):
        before, after, problems = wrapped.compared(sent, reference.answer(sent.original), answers.answer(place))
        wrong.update(dict.fromkeys(problems))
        key = sent.label, sent.arithmetic(arithmetic.get(sent.call.signature, ran))
        groups.setdefault(key, []).append((dataclasses.replace(sent.call, signature=sent.label), before, after))
    own = [label for label, source in exchange.sources.items() if source == "data"]
    return [judgement.judge(pairs, key, own, rules) for (_, key), pairs in groups.items()], wrong


def _of_graph(judged: Sequence[judgement.Judgement]) -> dict[str, Any]:
    """The fields of a Verification about the graph beside a simulation. Args: judged: of the answers without rounding, () where there is no
    simulation."""
    lines = dict.fromkeys(
        f"the graph, without the engines' rounding: {line}"
        for signature in judged
        for line in (*signature.problems, *(miss.text() for miss in signature.misses))
    )
    return {
        "graph": tuple(comparison for each in judged for comparison in each.comparisons),
        "graph_problems": tuple(lines),
    }


def _check_original(first: Model) -> None:
    if first.engines:
        raise errors.UsageError(
            f"the original {first.title} is a converted model itself", "usage: tftrt verify ORIGINAL CONVERTED"
        )


def _unbuilt(manifest: Mapping[str, Any]) -> dict[str, str]:
    """{engine op that was left without an engine: why}."""
    return {
        engine["name"]: engine["reason"]
        for signature in manifest.get("signatures", [])
        for engine in signature.get("unbuilt", ())
    }


def _compared(
    first: Model, second: Model, rules: judgement.Rules, options: Options, renamed: Mapping[str, str]
) -> Verification:
    """The Verification. Args: first, second: models.model.Model of the original and the converted model; renamed: of names.parse."""
    _check_original(first)
    options = _as_it_says(second.contents.facts, options)
    _check_outputs(first, options.outputs)
    matched = name_matching.match(first, second, options.signature_keys, renamed)
    ours, theirs = (_with_outputs(contents, options.outputs) for contents in (first.contents, matched.second))
    structure = _structure(ours, theirs, matched.signatures)
    names = [
        name
        for name in matched.signatures
        if name in matched.second.signatures and _takes_the_same(first, matched.second, name)
    ]
    kinds.check(rules.kinds, ((name, spec.name) for name in first.outputs for spec in first.outputs[name]))
    if not names:
        raise errors.CheckFailed(
            f"no signature takes the same inputs in both models: {structure[0]}",
            "check that CONVERTED was made from ORIGINAL",
        )
    first.check_dense(names)
    manifest = second.document(passport.MANIFEST) or {}
    unbuilt = _unbuilt(manifest)
    walked = signatures.Once.of(names, first.contents.same, second.contents.same)
    options = dataclasses.replace(options, label_output=walked.path(options.label_output))
    rules = dataclasses.replace(rules, bounds=walked.renamed(rules.bounds), kinds=walked.renamed(rules.kinds))
    with scratch.folder("verify") as folder:
        takes = inputs.Takes.walking(
            walked, {**first.inputs, **_specs(first, matched.second, names)}, manifest
        ).with_frozen(options.freeze)
        chosen = _calls(takes.with_pictures(added.pictures(second.source.path)), manifest, options, folder)
        calls, sources = chosen.all, {name: "data" if name in chosen.own else "random" for name in chosen.calls}
        labels = _labels(chosen, options)
        used = held_out.check(second.document(passport.CALIBRATION), calls, sources, options.allow_calibration_data)
        saved = run.save_calls(calls, folder + "/in")
        with inputs.explained(chosen.origins):
            reference, answers = _run_both(first, second, saved, folder, options, matched.names)
        simulation, rounded = rounded_answers.simulated(
            second, calls, answers, chosen.own, matched.names, saved, folder + "/rounded"
        )
        progress.say("comparing")

        def pairs(run_of: Run) -> Iterator[Pair]:
            return (
                (
                    call,
                    _wanted(reference.answer(index), options.outputs),
                    _wanted(run_of.answer(index), options.outputs),
                )
                for index, call in enumerate(calls)
            )

        arithmetic = options.arithmetic or _arithmetic(answers, first, second)
        judged = judgement.judge(pairs(rounded), arithmetic, list(chosen.own), rules, labels, simulation.arithmetic)
        plain = (
            [judgement.judge(pairs(answers), arithmetic, list(chosen.own), rules, labels)]
            if simulation.simulated
            else []
        )
        accuracy, short = _accuracy(chosen, reference, rounded, judged, labels, options, rules)
    return Verification(
        original=str(pathlib.Path(first.source).absolute()),
        converted=str(pathlib.Path(second.source).absolute()),
        original_digest=first.digest(),
        converted_digest=second.digest(),
        mode=answers.mode,
        arithmetic=simulation.lowest or arithmetic,
        evidence=_evidence(reference, answers, second, simulation),
        gpu=answers.gpu,
        comparisons=judged.comparisons,
        bounds=judged.bounds,
        simulation=simulation,
        **_of_graph(plain),
        misses=(*judged.misses, *short),
        engine_problems=tuple(_engine_problems(calls, answers, second, options, unbuilt)),
        structure_problems=(*structure, *judged.problems),
        engine_runs=_totals(answers, "engine"),
        builds=_totals(answers, "build"),
        calls=len(calls),
        shapes=_distinct_shapes(calls),
        sources=sources,
        samples=chosen.rows,
        dropped=chosen.dropped,
        seed=options.asked.seed,
        accuracy=accuracy,
        calibration=used,
        kernels=answers.kernels,
        precision=_lowest(second),
        nothing_shown=judged.nothing_shown,
        constant_outputs=judged.warnings,
        notes=(*(chosen.given.notes if chosen.given else ()), *_remarks(reference, answers)),
        twins={name: twins for name, twins in walked.twins.items() if twins},
        unbuilt=unbuilt,
        functions=dict(judged.functions),
        runtimes={"original": reference.where.text(), "converted": answers.where.text()},
        matched=matched.notes,
        items=chosen.items,
        drew=chosen.drew,
    )


def _as_it_says(facts: Mapping[str, str], options: Options) -> Options:
    """The Options with what an exported file says of itself. Args: facts: of the converted model."""
    return dataclasses.replace(
        options,
        freeze=options.freeze or facts.get(FREEZE, ""),
        outputs=options.outputs or tuple(filter(None, facts.get(OUTPUTS, "").split(","))),
    )


def _check_outputs(first: Model, names: Sequence[str]) -> None:
    known = dict.fromkeys(spec.name for specs in first.outputs.values() for spec in specs)
    for name in names:
        if name not in known:
            raise errors.UsageError(f"--outputs: {first.title} has no output {name!r}", errors.nearest(name, known))


def _with_outputs(contents: Contents, names: Sequence[str]) -> Contents:
    """The Contents with only these outputs; () keeps all."""
    return dataclasses.replace(
        contents,
        signatures={
            key: dataclasses.replace(
                signature, outputs=tuple(spec for spec in signature.outputs if not names or spec.name in names)
            )
            for key, signature in contents.signatures.items()
        },
    )


def _wanted(answer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if not names or name in names}


def _structure(first: Contents, second: Contents, names: Iterable[str]) -> list[str]:
    """The parts that the converted model lacks or names differently."""
    problems: list[str] = []
    for name in names:
        if name not in second.signatures:
            problems.append(f"signature {name!r} is missing in the converted model")
            continue
        for kind in ("input", "output"):
            before, after = (_types(getattr(model.signatures[name], kind + "s")) for model in (first, second))
            problems += [f"{name!r} lost its {kind} {lost!r}" for lost in before if lost not in after]
            problems += [f"{name!r} has a new {kind} {new!r}" for new in after if new not in before]
            problems += [
                f"{kind} {spec!r} of {name!r} became {after[spec]}, it was {before[spec]}"
                for spec in before
                if after.get(spec, before[spec]) != before[spec]
            ]
        problems += [
            f"input {spec.name!r} of {name!r} became {other.text()}, it was {spec.text()}"
            for spec, other in _other_shapes(first.signatures[name].inputs, second.signatures[name].inputs)
            if spec.dtype == other.dtype
        ]
    return problems


def _types(specs: Iterable[InputSpec]) -> dict[str, str]:
    return {spec.name: spec.dtype for spec in specs}


def _takes_the_same(first: Model, second: Contents, name: str) -> bool:
    """Whether signature `name` of two models takes inputs of the same names, dtypes and ranks."""
    mine, theirs = first.signatures[name].inputs, second.signatures[name].inputs
    return _types(mine) == _types(theirs) and not _other_shapes(mine, theirs)


def _other_shapes(ours: Iterable[InputSpec], theirs: Iterable[InputSpec]) -> list[tuple[InputSpec, InputSpec]]:
    """[(InputSpec, the other model's InputSpec)] of inputs for which no array fits both."""
    there = {spec.name: spec for spec in theirs}
    return [
        (spec, there[spec.name])
        for spec in ours
        if spec.name in there and not name_matching.fits(spec, there[spec.name])
    ]


def _specs(first: Model, second: Contents, names: Iterable[str]) -> dict[str, list[InputSpec]]:
    """{signature: [InputSpec]} that both models accept."""
    return {
        name: [
            name_matching.narrowed(
                spec, next(other for other in second.signatures[name].inputs if other.name == spec.name)
            )
            for spec in first.signatures[name].inputs
        ]
        for name in names
    }


def _calls(takes: inputs.Takes, manifest: Mapping[str, Any], options: Options, folder: str) -> inputs.Calls:
    """calls.Calls of the signatures that are walked. Args: takes: what both models take."""
    sizes = _batch_sizes(manifest, options)
    if options.asked.shapes:
        # Then the shapes that engines were built for do not apply to the other signatures.
        takes = takes.with_known({})
    return inputs.choose(takes, options.asked, folder, sizes)


def _batch_sizes(manifest: Mapping[str, Any], options: Options) -> tuple[int, ...]:
    """Rows of a call, largest first: the batches that engines were built for, so that engines serve data of any length."""
    declared = inputs.built_for(manifest)
    if options.batch_size:
        return (options.batch_size,) if declared else inputs.up_to(options.batch_size)
    return inputs.batch_sizes(call for calls in declared.values() for call in calls)


def _run_both(
    original: Model,
    converted: Model,
    saved: Sequence[tuple[str, str]],
    folder: str,
    options: Options,
    names: Mapping[str, Names],
    theirs: Sequence[tuple[str, str]] | None = None,
) -> tuple[Run, Run]:
    """(Run of the original, Run of the converted model): on a GPU in a process each, because the first model would keep its GPU memory.
    Args: theirs: the calls of the converted model, if they are others."""
    theirs = saved if theirs is None else theirs
    with run.worker(original.runtime, log_file=options.log_file) as first:
        # The reference should be the best float32 answer, not another approximation.
        reference = run.run(original, saved, folder + "/original", "the original", exact=True, started=first)
        if not reference.gpu and converted.runtime == original.runtime:
            return reference, _run_converted(converted, theirs, folder, options, names, first)
    return reference, _run_converted(converted, theirs, folder, options, names)


def _run_converted(
    converted: Model,
    saved: Sequence[tuple[str, str]],
    folder: str,
    options: Options,
    names: Mapping[str, Names],
    started: Started | None = None,
) -> Run:
    try:
        return run.run(
            converted,
            saved,
            folder + "/converted",
            "the converted model",
            trace=True,
            log_file=options.log_file,
            started=started,
            kernels=True,
            names=names,
        )
    except child.ChildDied as death:
        raise errors.TftrtError(
            f"the converted model aborts: {death.cause}",
            "engines built by another TensorRT or for another GPU do that; build them here\n  " + death.mend,
        ) from None


def _remarks(*runs: Run) -> tuple[str, ...]:
    """What to know of how the models were loaded, a line each."""
    return tuple(dict.fromkeys(one.where.remark for one in runs if one.where.remark))


def _arithmetic(answers: Run, first: Model, second: Model) -> str:
    if not answers.gpu or not second.engines:
        # If only one of two runtimes states its arithmetic, take that one.
        arithmetic = second.kind.arithmetic(second.path) or first.kind.arithmetic(first.path)
        return arithmetic.key if arithmetic else "rewrite"
    lowest = _lowest(second)
    return "TF32" if lowest == "FP32" and float(answers.gpu["compute_capability"] or 0) >= _TF32_SINCE else lowest


def _lowest(second: Model) -> Precision | Literal[""]:
    return lowest_precision({engine.precision for engine in second.engines})


def _evidence(reference: Run, answers: Run, second: Model, simulation: Simulation) -> str:
    if not second.engines:
        ours, theirs = reference.where, answers.where
        alike = ours.runtime == theirs.runtime
        arithmetic = second.kind.arithmetic(second.path)
        return (
            "the model holds no engine ops: "
            + (f"{ours.runtime} on both sides" if alike else f"{ours.text()} and {theirs.text()}")
            + (_NOT_ROUNDED if arithmetic and arithmetic.key == "FP16" and _ORT in theirs.runtime else "")
        )
    if answers.gpu:
        return "engines watched on " + answers.gpu["name"]
    if simulation.whole:
        return f"{simulation.words}, {_NO_ENGINE}"
    return REWRITE_ONLY + (
        f", {simulation.words} for {', '.join(simulation.simulated)} alone" if simulation.simulated else ""
    )


def _engine_problems(
    calls: Sequence[Call], answers: Run, second: Model, options: Options, unbuilt: Mapping[str, str]
) -> list[str]:
    if not answers.gpu or not second.engines:
        return []
    problems: list[str] = []
    traces = [recorded for recorded in answers.traces if recorded is not None]
    for call, trace in zip(calls, traces, strict=True):
        problems += coverage.misses(
            call, dataclasses.replace(trace, build={}) if options.allow_builds else trace, unbuilt
        )
    ran = {name for trace in traces for kind in ("engine", "fallback") for name in getattr(trace, kind)}
    if not options.signature_keys:
        problems += [
            f"{engine.name} ran in no call" for engine in second.engines if engine.name not in {*ran, *unbuilt}
        ]
    return problems


def _totals(answers: Run, kind: str) -> dict[str, int]:
    totals: dict[str, int] = {}
    for trace in answers.traces:
        for name, times in (getattr(trace, kind) if trace else {}).items():
            totals[name] = totals.get(name, 0) + times
    return totals


def _distinct_shapes(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(call.text() for call in calls))


def _labels(chosen: inputs.Calls, options: Options) -> Labels | None:
    """The labels.Labels of --labels, or None; checked before the work if it is certain which signature's rows they belong to."""
    if not options.labels or chosen.given is None:
        return None
    labels = label_reader.read(options.labels, chosen.given.rows, options.label_column, options.classes)
    if len(chosen.own) == 1:
        label_reader.check_count(labels, chosen.rows[chosen.own[0]], chosen.dropped)
    return labels


def _accuracy(
    chosen: inputs.Calls,
    reference: Run,
    answers: Run,
    judged: judgement.Judgement,
    labels: Labels | None,
    options: Options,
    rules: judgement.Rules,
) -> tuple[dict[str, object] | None, Sequence[thresholds.Miss]]:
    """({"output", "labels", "original", "converted", …} as truth.to_dict says, Misses of the bounds on it); (None, ()) without labels."""
    if labels is None:
        return None, ()
    picked: dict[str, list[int]] = {}
    for index, call in enumerate(chosen.all):
        if call.signature in chosen.own:
            picked.setdefault(call.signature, []).append(index)
    first = {signature: reference.answer(listed[0]) for signature, listed in picked.items()}
    target = _target(labels, first, judged, options, rules)
    there = answers.answer(picked[target.signature][0])
    if any(name not in there for name in (target.group.members if target.group else (target.output,))):
        # The comparison says that the converted model lost it.
        return None, ()
    both = [
        truth.score(labels, target, (run_of.answer(index) for index in picked[target.signature]))
        for run_of in (reference, answers)
    ]
    return truth.to_dict(target, *both), thresholds.of_labels(both[1].values, rules.bounds)


def _target(
    labels: Labels,
    first: Mapping[str, Mapping[str, Any]],
    judged: judgement.Judgement,
    options: Options,
    rules: judgement.Rules,
) -> truth.Target:
    """The output that the labels are about. Args: first: as of truth.find. Raises: UsageError."""
    classes = [comparison.name for comparison in judged.comparisons if comparison.classes]
    return truth.find(labels, first, rules.kinds, classes, options.label_output, "--label_output")
