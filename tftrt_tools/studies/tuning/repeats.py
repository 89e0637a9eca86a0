"""Several builds of the same engines, timed in turns, and the fastest of them (`tftrt build --repeat`). No TensorFlow here.

TensorRT chooses kernels by timings, so two builds of one network are two engines: one may be faster. Each build begins anew: without the
engine cache and without TensorRT's timing cache, in a process of its own, else the second would repeat the first.

Builds are compared by the geometric mean of their calls' median times: a factor counts the same at each shape, however long its calls
take, and the order of the builds does not depend on what they are compared with (Fleming and Wallace, "How not to lie with statistics: the
correct way to summarize benchmark results", CACM 29, 1986). The fastest of several is partly the luckiest. So one set of rounds chooses,
and another one, in new processes, says how much faster it is: a process of its own may be slower or faster, too.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tftrt_tools.accuracy import nearness
from tftrt_tools.base import records, results
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child, jobs, progress
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.execution import npz, run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.savedmodel import describe, passport, staging
from tftrt_tools.studies.tuning.final import Faster, Final
from tftrt_tools.studies.tuning.trial import ENV
from tftrt_tools.tftrt.conversion import build as builds
from tftrt_tools.tftrt.conversion.build import Build

# Rounds that choose, and rounds that judge.
ROUNDS = 10
# A model that takes longer hangs: to load it and to make its first calls, which may build engines; and for one block.
_LOADED_WITHIN, _TIMED_WITHIN = child.Silence(1800, 1800), child.Silence(600, 600)

# {number of a build: for each round the median milliseconds of each call}.
Rounds = Mapping[int, Sequence[Sequence[float]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeat(records.Record):
    """One of the builds."""

    # From 1.
    number: int
    # Wall time of the build.
    build_seconds: float = records.field(digits=2)
    # Engine ops that were left without an engine.
    unbuilt: int
    # {call: median milliseconds}, and their geometric mean, in the rounds that judge; {} and None if it was not timed.
    ms: dict[str, float] = records.field(digits=4, default_factory=dict)
    mean_ms: float | None = records.field(digits=4, default=None)
    # How many times as fast the kept build is; None for that itself, and if it was not timed.
    kept_is: Faster | None = None
    # How its answers differ from those of the kept build; "" where they do not, and if it was not timed.
    unlike: str = ""

    @property
    def told_apart(self) -> bool:
        """Whether the kept build is certainly faster."""
        return self.kept_is is not None and self.kept_is.low > 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeats(records.Record):
    """All of them."""

    written_too: ClassVar[tuple[str, ...]] = ("told_apart",)

    # Number of the build that is kept.
    kept: int
    # Texts of the calls that were timed.
    calls: tuple[str, ...]
    builds: tuple[Repeat, ...]

    @property
    def told_apart(self) -> bool:
        """Whether the kept build is certainly faster than any other."""
        return any(one.told_apart for one in self.builds)

    @property
    def slowest(self) -> Repeat | None:
        """The build beside which the kept one gains most, None if only one was timed."""
        return max(
            (one for one in self.builds if one.kept_is),
            key=lambda one: one.kept_is.times if one.kept_is else 0.0,
            default=None,
        )

    def text(self) -> str:
        """The spread, and builds with other answers, for people."""
        unlike = next((one for one in self.builds if one.unlike), None)
        return self._spread() + (
            f"; but the answers of build {unlike.number} differ from its own ({unlike.unlike}): `tftrt verify` says whether it is right"
            if unlike
            else ""
        )

    def _spread(self) -> str:
        slowest = self.slowest
        if slowest is None or slowest.kept_is is None:
            return f"build {self.kept} is kept: there was no other to compare it with"
        found = slowest.kept_is.text(f"build {slowest.number}, the slowest")
        if not self.told_apart:
            return f"build {self.kept} is kept, but the builds cannot be told apart: it is {found}"
        return f"build {self.kept} is kept: it is {found}"


@dataclasses.dataclass(frozen=True, repr=False)
class Repeated(results.Result):
    """build: the Build that is kept; repeats: all of them."""

    build: Build
    repeats: Repeats

    document: ClassVar[str] = "repeated build"

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.build.summary()}; {self.repeats.text()}"

    def to_dict(self) -> dict[str, Any]:
        return {**self.build.to_dict(), "repeats": self.repeats.to_dict()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A model that is timed beside others. model: its path; saved: its calls; tags: of the MetaGraph; from_host: whether a call is timed
    from arrays on the host to arrays on the host, else its inputs lie on the device; answers: a folder for the answer to each call, "" to
    keep none."""

    model: str
    saved: run.SavedCalls
    tags: Sequence[str] = ()
    from_host: bool = False
    answers: str = ""

    def answer(self, number: int) -> pathlib.Path:
        """Where the answer to a call is kept. Args: number: of the call, from 0."""
        return kept_answer(self.answers, number)


def kept_answer(folder: str, number: int) -> pathlib.Path:
    """Where the answer to a call is kept. Args: folder: of the answers. number: of the call, from 0."""
    return pathlib.Path(folder) / f"{number}.npz"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load(records.Record):
    """Load a model. calls: (signature, .npz path of its inputs) of each; the others are of Side."""

    model: str
    calls: tuple[tuple[str, str], ...]
    tags: tuple[str, ...] = ()
    from_host: bool = False
    answers: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """First `load`, then blocks of so many calls each."""

    load: Load | None = None
    counts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """counts: of a Load, calls of a block, for each call. seconds: of blocks, of each call of each."""

    counts: tuple[int, ...] = ()
    seconds: tuple[tuple[float, ...], ...] = ()


@jobs.job
def time_model() -> Callable[[Request], Answer]:
    """One model, loaded once, and timed block by block. Raises: TftrtError."""
    from tftrt_tools.studies.tuning import repeats_job

    return repeats_job.job


class Timed:
    """A Side that is loaded in a process of its own: models with engine ops of the same names do not fit into one. counts: calls of a
    block, for each call."""

    def __init__(self, worker: jobs.Worker[Request, Answer], side: Side) -> None:
        self._worker = worker
        asked = Load(
            model=side.model,
            calls=tuple(side.saved),
            tags=tuple(side.tags),
            from_host=side.from_host,
            answers=side.answers,
        )
        self.counts: Sequence[int] = worker.call(Request(load=asked), silence=_LOADED_WITHIN).result.counts

    def medians(self, counts: Sequence[int]) -> list[float]:
        """Median milliseconds of each call, in a block of so many calls each."""
        answer = self._worker.call(Request(counts=tuple(counts)), silence=_TIMED_WITHIN).result
        return [1e3 * statistics.median(block) for block in answer.seconds]


def fastest(
    model: str,
    output: str | os.PathLike[str] | None,
    options: builds.Options,
    repeat: int,
    *,
    overwrite: bool = False,
    log_file: str | None = None,
    layers: bool = False,
    build_minutes: float | None = None,
    build: Callable[..., Build] = builds.build,
) -> Repeated:
    """Build the engines of a model several times, and keep the fastest.

    Args: model, output, options, overwrite, layers, build_minutes: as of conversion.build.build. repeat: builds, from 2 on. log_file: the
      log of the first build; those of the others end in .2, .3 and so on. build: conversion.build.build.
    Returns: Repeated. Raises: as conversion.build.build. The target is then as it was.
    """
    target = staging.check_target(model, True) if output is None else staging.check_target(output, overwrite, [model])
    with scratch.folder("repeats") as folder:
        made: dict[int, Build] = {}
        for number in range(1, repeat + 1):
            progress.say(f"build {number} of {repeat}")
            log = f"{log_file}.{number}" if log_file and number > 1 else log_file
            made[number] = build(
                model,
                f"{folder}/{number}",
                options,
                cache=None,
                log_file=log,
                layers=layers,
                build_minutes=build_minutes,
            )
        # What is not whole may well be fast, and is no candidate.
        least = min(len(one.unbuilt) for one in made.values())
        whole = {number: f"{folder}/{number}" for number, one in made.items() if len(one.unbuilt) == least}
        times = timed(whole, options.tags, folder)
        found = judged(times.texts, times.rounds, {n: (one.seconds, len(one.unbuilt)) for n, one in made.items()})
        found = compared(found, times)
        with staging.staged(target, overwrite or output is None) as stage:
            shutil.copytree(f"{folder}/{found.kept}", stage, dirs_exist_ok=True)
            document = passport.read(stage, passport.MANIFEST) or {}
            passport.write(
                stage,
                passport.MANIFEST,
                {**document, "build": {**document.get("build", {}), "repeats": found.to_dict()}},
            )
    kept = dataclasses.replace(made[found.kept], output=str(target), seconds=sum(one.seconds for one in made.values()))
    return Repeated(kept, found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
    """Builds that were timed."""

    # Those that were timed; the rounds that choose, and those that judge.
    calls: Sequence[run.Call]
    rounds: tuple[Rounds, Rounds]
    # {number of a build: its answer to each call}.
    answers: Mapping[int, Sequence[Mapping[str, npz.Array]]]
    # Of the engines.
    precisions: Sequence[Precision]

    @property
    def texts(self) -> tuple[str, ...]:
        """Of the calls."""
        return tuple(call.text() for call in self.calls)


def timed(models: Mapping[int, str], tags: Sequence[str], folder: str) -> Times:
    """Time builds in turns, twice, in new processes each time.

    Args: models: {number: path}; they take the same calls, at the shapes that their engines were built for. tags: of the MetaGraph.
      folder: for inputs and answers.
    """
    first = next(iter(models.values()))
    described = describe.describe(first)[0]
    takes = inputs.Takes.of(described.inputs, described.same, manifest=passport.read(first, passport.MANIFEST))
    takes = inputs.only(list(takes.known), takes) if takes.known else takes
    chosen = inputs.choose(takes, inputs.Asked(), folder, inputs.up_to(1)).all
    saved = run.save_calls(chosen, pathlib.Path(folder) / "calls")
    sides = {
        number: Side(model=path, saved=saved, tags=tags, answers=str(pathlib.Path(folder) / f"answers-{number}"))
        for number, path in models.items()
    }
    for side in sides.values():
        pathlib.Path(side.answers).mkdir(parents=True, exist_ok=True)
    both = turns(sides, "choosing among the builds"), turns(sides, "comparing the builds")
    return Times(
        calls=chosen,
        rounds=both,
        answers={
            number: [npz.load(side.answer(place)) for place in range(len(chosen))] for number, side in sides.items()
        },
        precisions=tuple(engine.precision for engine in described.engines),
    )


def compared(found: Repeats, times: Times) -> Repeats:
    """The builds, with how the answers of each differ from those of the kept one."""
    kept = times.answers[found.kept]
    unlike = {}
    for number, answers in times.answers.items():
        alike, how = nearness.alike(zip(times.calls, kept, answers, strict=True), times.precisions)
        unlike[number] = "" if alike else how
    builds = tuple(dataclasses.replace(one, unlike=unlike.get(one.number, "")) for one in found.builds)
    return dataclasses.replace(found, builds=builds)


def turns(sides: Mapping[int, Side], what: str, rounds: int = ROUNDS) -> Rounds:
    """Rounds in turns. Args: sides: {number: Side} of as many calls each. what: is done, for the progress. rounds: how many."""
    with contextlib.ExitStack() as stack:
        progress.say("loading " + " and ".join(f"model {number}" for number in sides))
        # Each loads in a process of its own, for seconds; the measuring begins when all have.
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(len(sides)))
        workers = [stack.enter_context(time_model.worker(ENV)) for _ in sides]
        asked = dict(zip(sides, pool.map(Timed, workers, sides.values()), strict=True))
        counts = next(iter(asked.values())).counts
        said = progress.each(f"{what} in turns", rounds)
        return interleaving.in_turns(list(sides), said, lambda number: asked[number].medians(counts))


def judged(calls: Sequence[str], rounds: tuple[Rounds, Rounds], made: Mapping[int, tuple[float, int]]) -> Repeats:
    """The fastest by the rounds that choose, and how much faster it is by those that judge.

    Args: calls: their texts. rounds: of `timed`. made: {number: (seconds of the build, engine ops without an engine)} of all builds.
    """
    choosing, judging = rounds
    kept = min(choosing, key=lambda number: _mean_ms(_medians(choosing[number])))
    by_round = Final("geometric mean", {}, {number: tuple(map(_mean_ms, one)) for number, one in judging.items()})
    found = []
    for number, (seconds, unbuilt) in made.items():
        if number not in judging:
            found.append(Repeat(number=number, build_seconds=seconds, unbuilt=unbuilt))
            continue
        medians = _medians(judging[number])
        found.append(
            Repeat(
                number=number,
                build_seconds=seconds,
                unbuilt=unbuilt,
                ms=dict(zip(calls, medians, strict=True)),
                mean_ms=_mean_ms(medians),
                kept_is=None if number == kept else by_round.faster(kept, number),
            )
        )
    return Repeats(kept=kept, calls=tuple(calls), builds=tuple(found))


def _medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Of each call, over the rounds."""
    return [statistics.median(one) for one in zip(*rounds, strict=True)]


def _mean_ms(medians: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, medians)))
