"""Measures models side by side: one process has all of them, and they get the same requests in interleaved rounds.

The rounds, the intervals and the verdicts are those of `tftrt regress`. Each model is held against the first.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tftrt_tools.accuracy.judgement import Rules
from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.execution import npz, run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import names, opening
from tftrt_tools.models.kinds.model import Model, Signature
from tftrt_tools.models.savedmodel import passport, shapes
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.sources.source import Source
from tftrt_tools.servers.load import function_load
from tftrt_tools.servers.load.assignment import Assignment
from tftrt_tools.studies.bench import in_process as makers
from tftrt_tools.studies.bench import subject, workload
from tftrt_tools.studies.regression import answers, in_process, models, rounds, side_by_side
from tftrt_tools.studies.regression import verdict as verdicts
from tftrt_tools.studies.side_by_side.measured import INTERRUPTED, Figure, Row, SideBySide

METRICS = ("p50", "p90", "p99", verdicts.THROUGHPUT)
# All are in memory at once.
MOST_MODELS = 16


class _Answers(NamedTuple):
    """Row.alike and Row.answers of a model."""

    alike: bool | None
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The models, the requests, and the length of the run."""

    models: tuple[Source, ...]
    # "" for the default.
    signature_name: str = ""
    asked: inputs.Asked = inputs.Asked()
    # Rows of a request; None to take them from the shapes or the data.
    batch_size: int | None = None
    distinct: int = 16
    # Requests under way at a time.
    concurrency: int = 1
    # Rounds at the first look, and at the last.
    rounds: int = 30
    max_rounds: int = 90
    # The smallest change of a ratio that counts, as a share.
    min_effect: float = verdicts.MIN_EFFECT
    # FIRST=OTHER for each input and output with another name in the other model.
    rename: tuple[str, ...] = ()
    # Seconds for one call; and after which no new round begins.
    timeout: float = 60.0
    max_seconds: float = 600.0
    # {flag: value} of what was set, for the report.
    given: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def looks(self) -> int:
        """The most times that the data is judged."""
        return len(interleaving.looks(self.rounds, self.most))

    @property
    def most(self) -> int:
        """The most rounds. A single model is measured, and not judged, so it gets no further ones."""
        return self.max_rounds if len(self.models) > 1 else self.rounds


def measure(options: Options) -> SideBySide:
    """Measure. Returns: SideBySide, also after an interrupt behind the first round, with `ended`.

    Raises: UsageError; TftrtError where a model cannot be loaded or does not answer.
    """
    _check(options)
    machine = fingerprint.fingerprint()
    with opening.opened(*options.models) as opened, scratch.folder("bench") as folder:
        return _Run(options, opened, machine, pathlib.Path(folder)).whole()


def _check(options: Options) -> None:
    if len(options.models) > MOST_MODELS:
        raise errors.UsageError(
            f"{len(options.models)} models are more than the {MOST_MODELS} that one process takes", "name fewer"
        )
    if options.max_rounds < options.rounds:
        raise errors.UsageError(f"--max_rounds={options.max_rounds} is below --rounds={options.rounds}", "raise it")
    if options.rename and len(options.models) != 2:
        raise errors.UsageError("--rename is about two models", "name two, or leave it out")
    for model in options.models:
        opening.check(model)


class _Run:
    def __init__(
        self, options: Options, opened: Sequence[Model], machine: fingerprint.Fingerprint, folder: pathlib.Path
    ) -> None:
        self._options, self._opened, self._machine, self._folder = options, opened, machine, folder
        self._begun = time.monotonic()
        self._names = _titles(opened)
        self._facts = [models.of(one, name) for one, name in zip(opened, self._names, strict=True)]
        self._notes: list[str] = []
        self._done: dict[str, list[rounds.Round]] = {name: [] for name in self._names}
        self._errors: dict[str, list[str]] = {}
        self._per_block = 0

    def whole(self) -> SideBySide:
        options, first = self._options, self._opened[0]
        self._signature = workload.choose_signature(list(first.signatures), options.signature_name)
        self._matched = [
            names.match(first, other, (self._signature,), names.parse(options.rename)) for other in self._opened[1:]
        ]
        self._notes += dict.fromkeys(line for one in self._matched for line in one.notes)
        self._load = self._requests()
        ended = ""
        with rounds.asking_several(
            self._assignment(),
            {name: place * len(self._load.calls) for place, name in enumerate(self._names)},
            len(self._load.calls),
            self._limits(),
            options.concurrency,
        ) as turns:
            said = self._compared()
            try:
                self._rounds(turns)
            except KeyboardInterrupt:
                if not self._usable:
                    raise
                ended = INTERRUPTED
        return self._result(said, ended)

    def _requests(self) -> workload.Workload:
        """The requests, which every model takes. Raises: UsageError where there are none."""
        options, first = self._options, self._opened[0]
        mine = first.signatures[self._signature]
        specs = mine.inputs
        for title, one in zip(self._names[1:], self._matched, strict=True):
            specs = _narrowed(self._signature, specs, mine, title, one.second.signatures.get(self._signature))
        sides = {name: (one.inputs, one.outputs) for name, one in first.signatures.items()}
        sides[self._signature] = (specs, mine.outputs)
        converted = next((one.source for one in self._opened if one.document(passport.MANIFEST)), "")
        takes = subject.takes(self._signature, sides, [one.contents.same for one in self._opened], converted)
        sizes = [options.batch_size] if options.batch_size else []
        (found,) = workload.workloads(takes, sizes, options.asked, options.distinct)
        return found

    def _assignment(self) -> Assignment:
        saved = run.save_calls(self._load.calls, self._folder / "calls")
        requests = []
        for place, model in enumerate(self._opened):
            kept = self._answers_of(place)
            kept.mkdir()
            renamed = self._matched[place - 1].names if place else {}
            requests.append(
                side_by_side.Side(
                    job=makers.maker(model.kind.runtime).target,
                    load=run.LoadRequest(model=model.path, calls=tuple(run.named(saved, renamed)), answers=str(kept)),
                )
            )
        request = side_by_side.Request(tuple(requests))
        return function_load.assignment_of(side_by_side.make, request, self._options.concurrency)

    def _answers_of(self, place: int) -> pathlib.Path:
        return self._folder / f"answers-{place}"

    def _limits(self) -> rounds.Limits:
        """The first call of a shape may build engines on a GPU, which takes minutes."""
        call = self._options.timeout
        first = max(call, in_process.LOAD_SECONDS) if self._machine.gpus else call
        return rounds.Limits(load_seconds=in_process.LOAD_SECONDS, first_seconds=first, call_seconds=call)

    def _compared(self) -> list[_Answers]:
        """The first answers of each model beside those of the first."""
        found, calls = [_Answers(None, "")], self._load.calls
        each = [
            [npz.load(self._answers_of(place) / f"{number}.npz") for number in range(len(calls))]
            for place in range(len(self._opened))
        ]
        for place in range(1, len(each)):
            kind = models.arithmetic(self._facts[0], self._facts[place], bool(self._machine.gpus))
            here, there = (
                _text(one.signatures[self._signature].outputs)
                for one in (self._opened[0], self._matched[place - 1].second)
            )
            if here != there:
                found.append(_Answers(None, f"not compared with the first model's: its outputs are {there}"))
                continue
            # That a model shows nothing on these requests is no difference.
            rules = Rules(allow_constant_outputs=True)
            try:
                judged = answers.judge(calls, each[0], each[place], kind, bool(self._options.asked.data), rules)
            except errors.TftrtError as error:
                found.append(_Answers(False, f"not like the first model's: {error.cause}"))
                continue
            found.append(
                _Answers(False, f"not like the first model's: {judged.problems[0]}")
                if judged.problems
                else _Answers(True, f"like the first model's: {judged.text}")
            )
        return found

    def _rounds(self, turns: rounds.Turns[str]) -> None:
        options = self._options
        turns.until = self._begun + options.max_seconds
        latency = max(turns.warm_up().values())
        self._per_block = rounds.requests_of_block(latency, options.concurrency)

        def one_round(number: int) -> None:
            progress.say(f"round {number + 1}", number, options.most)
            for name, one in turns.turn(number, self._per_block).items():
                self._done[name].append(one)
                self._errors[name] = turns.failures(name)

        def decided() -> bool:
            return all(one.verdict != verdicts.UNSURE for name in self._names[1:] for one in self._judged(name)[:1])

        looks = interleaving.looks(options.rounds, options.most)
        if interleaving.until_decided(looks, one_round, decided, turns.late):
            self._notes.append(rounds.ended_early(options.max_seconds))

    @property
    def _usable(self) -> int:
        """How many rounds, counted from the first, have answers of all models."""
        return rounds.usable(*self._done.values())

    def _series(self, name: str) -> tuple[list[rounds.Floats], rounds.Floats]:
        """(seconds of each round, rate of each round) of a model."""
        used = self._done[name][: self._usable]
        return [one.seconds for one in used], np.array([one.rate for one in used])

    def _judged(self, name: str) -> tuple[verdicts.Judgement, ...]:
        """A model against the first. Bonferroni: the level is shared among the models, too."""
        (first, first_rates), (other, rates) = self._series(self._names[0]), self._series(name)
        return verdicts.judge(
            first,
            other,
            METRICS,
            min_effect=self._options.min_effect,
            alpha=verdicts.ALPHA / (len(self._names) - 1),
            looks=self._options.looks,
            seed=self._options.asked.seed,
            native_rates=first_rates,
            candidate_rates=rates,
        ).judgements

    def _result(self, said: Sequence[_Answers], ended: str) -> SideBySide:
        options = self._options
        rows = [self._row(place, said[place]) for place in range(len(self._opened))]
        self._notes += [
            f"{row.name}: whether its engines ran was not watched: `tftrt verify` does"
            for row, facts, one in zip(rows, self._facts, self._opened, strict=True)
            if facts.engine_ops and self._machine.gpus and not one.kind.alone
        ]
        return SideBySide(
            rows=tuple(rows),
            signature=self._signature,
            shapes=tuple(dict.fromkeys(shapes.call_text(call.shapes) for call in self._load.calls)),
            values=self._load.source,
            distinct=len(self._load.calls),
            concurrency=options.concurrency,
            rounds=self._usable,
            requests=self._per_block * rounds.BLOCKS,
            min_effect=options.min_effect,
            alpha=verdicts.ALPHA,
            machine=self._machine,
            settings=options.given,
            notes=tuple(self._notes),
            ended=ended,
            seconds=time.monotonic() - self._begun,
        )

    def _row(self, place: int, said: _Answers) -> Row:
        name, model = self._names[place], self._opened[place]
        seconds, rates = self._series(name)
        failed = sum(one.failed for one in self._done[name])
        not_judged = self._not_judged(place) or (place and self._not_judged(0))
        judged = self._judged(name) if place else ()
        lost = sum(one.failed for other in (self._names[0], name) for one in self._done[other])
        why = not_judged or (lost and f"{terminal.counted(lost, 'request')} failed; the times are of the others") or ""
        if why:
            judged = verdicts.without_verdict(verdicts.Verdict(judged, 0, 0, 1), why).judgements
        return Row(
            name=name,
            model=model.source.path,
            digest=self._facts[place].digest,
            form=model.kind.name,
            figures=tuple(_figure(metric, seconds, rates, options_seed=self._options.asked.seed) for metric in METRICS),
            answered=sum(map(len, seconds)),
            failed=failed,
            errors=tuple(self._errors.get(name, ())),
            against_first=judged,
            alike=said.alike,
            answers=said.text,
            not_judged=why,
        )

    def _not_judged(self, place: int) -> str:
        """Why a model's times say nothing of its engines, "" where they do."""
        if self._machine.gpus or not self._facts[place].engine_ops or self._opened[place].kind.alone:
            return ""
        return f"there is no GPU here, so the engine ops of {self._names[place]} ran as TensorFlow ops"


def _titles(opened: Sequence[Model]) -> list[str]:
    """Short names of the models, each its own: the last part of the path, the whole one where two have the same."""
    last = [pathlib.Path(one.source.path).absolute().name or one.title for one in opened]
    longer = [name if last.count(name) == 1 else one.title for name, one in zip(last, opened, strict=True)]
    return [
        name if longer.count(name) == 1 else f"{name} ({longer[:place].count(name) + 1})"
        for place, name in enumerate(longer)
    ]


def _narrowed(
    signature: str, specs: tuple[InputSpec, ...], mine: Signature, title: str, theirs: Signature | None
) -> tuple[InputSpec, ...]:
    """The inputs as both models take them. Raises: UsageError where they do not take the same."""
    if theirs is None:
        raise errors.UsageError(
            f"{title} has no signature {signature!r}", "--signature_keys names one that all models have"
        )
    texts = [_text(side.inputs) for side in (mine, theirs)]
    if texts[0] != texts[1]:
        raise errors.UsageError(
            f"signature {signature!r} of {title} takes {texts[1]}, and that of the first model {texts[0]}",
            "measure models that take the same requests; --rename says what has another name",
        )
    others = {spec.name: spec for spec in theirs.inputs}
    for spec in specs:
        if not names.fits(spec, others[spec.name]):
            raise errors.UsageError(
                f"input {spec.name!r} of {signature!r} is {others[spec.name].text()} in {title}, and {spec.text()} before it",
                "measure models that take the same requests",
            )
    return tuple(names.narrowed(spec, others[spec.name]) for spec in specs)


def _text(specs: Sequence[InputSpec]) -> str:
    return ", ".join(sorted(f"{spec.name} {spec.dtype}" for spec in specs))


def _figure(metric: str, seconds: Sequence[rounds.Floats], rates: rounds.Floats, options_seed: int) -> Figure:
    wanted = verdicts.requests_needed(metric)
    if sum(map(len, seconds)) < wanted:
        return Figure(metric=metric, unknown=f"needs {wanted}")
    found = verdicts.alone(metric, seconds, rates, seed=options_seed)
    return Figure(metric=metric, value=found[0], low=found[1], high=found[2])
