"""The work of a trial in its process: convert, load, watch the engines, answer the data, take the time.

One process runs many trials, because TF-TRT keeps TensorRT's timings of kernels in memory only.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from tftrt_tools.accuracy import score
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import inputs, npz, run, run_job
from tftrt_tools.models.execution.job import timing
from tftrt_tools.models.execution.runner import Arrays, Captures, Load, Ready, Runner, Wanted
from tftrt_tools.models.kinds import loader_job
from tftrt_tools.models.savedmodel import files
from tftrt_tools.studies.tuning import final, turns_job
from tftrt_tools.studies.tuning.latency import Latency
from tftrt_tools.studies.tuning.measuring import (
    Answer,
    Converting,
    InTurns,
    OfConversion,
    OfMade,
    OfOriginal,
    Original,
    Request,
    Scored,
    Scoring,
    Timed,
)
from tftrt_tools.studies.tuning.tried import NATIVE, Measured
from tftrt_tools.tftrt.calibration.calibrated import Calibrated
from tftrt_tools.tftrt.conversion.converting import Converted, ConvertRequest, TablesFrom
from tftrt_tools.tftrt.conversion.signature_result import BuiltEngine, SignatureResult, coverage

_SECONDS = 0.5
# Any threshold: the value alone is asked for.
_SNR = Goal("snr_db", "threshold", 0.0, True)
_LEAST_CALLS = 30
# Makes a call. Returns: the answers, and what did not run in a saved engine, or "".
_Watch = Callable[[Runner, Ready, str], tuple[Arrays, str]]


def job(request: Request, load_made: Load | None = None) -> Answer:
    """Do what is asked. Args: load_made: loads what a back end made; by its kind by default. Raises: UsageError, TftrtError."""
    try:
        return _done(request, load_made or loader_job.load)
    finally:
        # A model that is still referenced by a cycle would keep its engines in GPU memory during the next trial.
        gc.collect()


def _done(request: Request, load_made: Load) -> Answer:
    if request.score:
        return Answer(score=score_original(request.score))
    if request.native:
        return Answer(native=native(request.native))
    if request.calibrate:
        return Answer(calibrated=calibrate(request.calibrate))
    if request.trial:
        return Answer(measured=trial(request.trial))
    if request.made:
        return Answer(measured=made(request.made, load_made))
    assert request.final
    return Answer(final=in_turns(request.final, load_made))


def score_original(scoring: Scoring) -> float:
    """The goal's metric of the original's own answers."""
    return _score(scoring, [npz.load(one.reference) for one in scoring.calls]).value


def native(asked: OfOriginal) -> dict[str, Latency]:
    """{call: Latency} of the original."""
    progress.say("timing the original")
    with _original(asked.original) as model:
        return _latencies(model, asked.timed)


def calibrate(asked: Converting) -> Calibrated:
    """The tables of a conversion, of which nothing is written."""
    return _convert(asked, None)


def trial(asked: OfConversion) -> Measured:
    """Convert and measure. Raises: UsageError, TftrtError."""
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=asked.folder) as folder:
        stage = pathlib.Path(folder) / "model"
        stage.mkdir()
        made = _convert(asked.convert, stage)
        results = made.signatures
        facts = _facts(results)
        if not facts.engines:
            return dataclasses.replace(facts, failure="no segment is worth an engine")
        if missing := _missing(results):
            return dataclasses.replace(facts, failure=missing)
        with _converted(stage, asked.convert) as model:
            return _measured(model, asked, dataclasses.replace(facts, model_bytes=files.size(stage)))


def made(asked: OfMade, load_made: Load) -> Measured:
    """Measure what a back end made. Raises: UsageError, TftrtError."""
    facts = dataclasses.replace(asked.facts, model_bytes=files.size(asked.path))
    # Whatever the environment says: the journal does not know that, and the row of calls as CUDA graphs is another one.
    with load_made(asked.path, Wanted(label=f"the {asked.title}", graphs=False)) as model:
        measured, can_capture = _measured(model, asked, facts), isinstance(model, Captures)
        first = {} if measured.failure or not can_capture else {one.call: _ready(model, one)() for one in asked.timed}
    return dataclasses.replace(measured, graphs=_graphs(asked, first, load_made)) if first else measured


def _graphs(asked: OfMade, first: Mapping[str, Arrays], load_made: Load) -> dict[str, Latency]:
    """{call: Latency} of calls that are launched as CUDA graphs, {} where not all could be. A graph that answers otherwise is none.

    Args: first: {call: its answer without a graph}."""
    try:
        with load_made(asked.path, Wanted(label=f"the {asked.title} with CUDA graphs", graphs=True)) as model:
            return _latencies(model, asked.timed) if _launched(model, asked.timed, first) else {}
    except errors.TftrtError as error:
        progress.note(f"calls were not timed as CUDA graphs: {error.cause}")
        return {}


def _launched(model: Runner, timed: Sequence[Timed], first: Mapping[str, Arrays]) -> bool:
    """Whether each call is captured as a graph and answers as it did before."""
    assert isinstance(model, Captures)
    for number, one in enumerate(timed, 1):
        ready = _ready(model, one)
        # The second call is the first that is launched as what the first one captured.
        answers = [ready(), ready()]
        if model.captured < number or any(not _equal(answer, first[one.call]) for answer in answers):
            progress.note(f"calls of {one.call} are not timed as CUDA graphs: none was captured that answers alike")
            return False
    return True


def _equal(one: Arrays, other: Arrays) -> bool:
    return all(np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f") for name in other)


def in_turns(asked: InTurns, load_made: Load) -> final.Final:
    """Time the original and what was made of it in turns. Raises: UsageError, TftrtError."""
    one = asked.timed
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".trial-", dir=asked.folder))
        # All of them stay alive: an engine goes when its model goes.
        models = {NATIVE: stack.enter_context(_original(asked.original))}
        for number, convert in asked.converts.items():
            place = pathlib.Path(folder) / str(number)
            place.mkdir()
            _convert(convert, place)
            models[number] = stack.enter_context(_converted(place, convert))
        for number, path in asked.made.items():
            models[number] = stack.enter_context(load_made(path, Wanted(label=f"trial {number}", graphs=False)))
        calls: dict[int, Ready] = {}
        for number, model in models.items():
            calls[number] = _ready(model, one)
            if number not in (NATIVE, *asked.without_engines):
                _, problem = _watched(model, calls[number], one.call)
            else:
                problem = ""
            if problem:
                raise errors.TftrtError(f"trial {number}: {problem}")
            for _ in range(timing.WARM_UP_CALLS):
                calls[number]()
        progress.say("timing the best in turns")
        return final.final(one.call, list(calls), turns_job.in_turns(list(calls.values())))


def _convert(asked: Converting, output: pathlib.Path | None) -> Converted:
    """convert_job.job. Plans alone are measured without TensorFlow, which that imports. Args: output: an empty folder, or None to write
    nothing."""
    from tftrt_tools.tftrt.conversion import convert_job

    return convert_job.job(
        ConvertRequest(
            source=asked.source,
            output=str(output) if output else None,
            settings=asked.settings,
            int8=TablesFrom(options=asked.data, given=asked.table),
            cache=asked.cache,
            build_minutes=asked.build_minutes,
        )
    )


def _missing(results: Sequence[SignatureResult]) -> str:
    """Which engines were not ready in time or were refused, or "". Without them there is nothing to time."""
    missing = [one for result in results for one in result.unbuilt if one.is_late or one.refused]
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return f"{missing[0].name}: {missing[0].reason}{more}" if missing else ""


def _original(asked: Original) -> AbstractContextManager[Runner]:
    wanted = Wanted(label="the original", tags=asked.tags)
    return loader_job.load(asked.path, wanted)


def _converted(path: pathlib.Path, asked: Converting) -> AbstractContextManager[Runner]:
    return loader_job.load(str(path), Wanted(label="the conversion", tags=asked.settings.tags))


def _facts(results: Sequence[SignatureResult]) -> Measured:
    """What the conversion tells."""
    built = [engine for one in results for engine in one.built]
    return Measured(
        engines=sum(len(one.engines) for one in results),
        coverage=coverage(results),
        build_seconds=sum(_op_seconds(one.built) for one in results),
        cached=sum(one.cached for one in built),
        engine_bytes=sum(one.bytes for one in built),
    )


def _op_seconds(built: Iterable[BuiltEngine]) -> float:
    """Seconds to build the engines: all engines of one engine op carry the same time, so each op counts once."""
    return sum({one.name: one.seconds or 0.0 for one in built}.values())


def _measured(model: Runner, asked: OfConversion | OfMade, facts: Measured) -> Measured:
    """`facts` with what was measured."""
    watch = _watched if facts.engines else _without_engines
    problem, arithmetic = _served(model, asked.timed, watch)
    if problem:
        return dataclasses.replace(facts, failure=problem)
    answers = _answers(model, asked.scoring.calls, watch)
    if isinstance(answers, str):
        return dataclasses.replace(facts, failure=answers)
    found = _score(asked.scoring, answers)
    if found.nonfinite:
        return dataclasses.replace(
            facts, failure=f"{found.nonfinite} NaN or Inf in its answers, where the original has none"
        )
    return dataclasses.replace(
        facts,
        accuracy=found.value,
        snr_db=_snr_db(asked.scoring, answers),
        latencies=_latencies(model, asked.timed),
        kernels=arithmetic,
    )


def _snr_db(scoring: Scoring, answers: Sequence[Arrays]) -> float | None:
    """Of the worst float output against the original's, None where there is none."""
    try:
        return _score(dataclasses.replace(scoring, goal=_SNR, output="", labels=""), answers).value
    except errors.UsageError:
        return None


def _score(scoring: Scoring, answers: Sequence[Arrays]) -> score.Score:
    labels = None
    if scoring.labels:
        from tftrt_tools.accuracy import labels as label_reader

        labels = label_reader.Labels.load(scoring.labels)
    return score.score(
        scoring.goal,
        [one.signature for one in scoring.calls],
        [npz.load(one.reference) for one in scoring.calls],
        answers,
        labels,
        scoring.output,
        scoring.kinds,
    )


def _ready(model: Runner, one: Timed) -> Ready:
    """A call that is timed."""
    return model.ready(one.signature, _inputs(one))


def _inputs(one: Timed) -> Arrays:
    arrays = inputs.random(one.specs, one.shapes, seed=0)
    return arrays | {name: np.asarray(value, arrays[name].dtype) for name, value in one.frozen.items()}


def _served(model: Runner, timed: Sequence[Timed], watch: _Watch) -> tuple[str, dict[str, float]]:
    """Returns: (what did not run in a saved engine at the declared shapes, in words, or ""; {arithmetic: seconds of the GPU's kernels})."""
    total: dict[str, float] = collections.defaultdict(float)
    for one in timed:
        ready = _ready(model, one)
        _, problem = watch(model, ready, one.call)
        if problem:
            return problem, {}
        for name, seconds in model.kernels([ready]).items():
            total[name] += seconds
    return "", dict(total)


def _without_engines(model: Runner, ready: Ready, text: str) -> tuple[Arrays, str]:
    """As _watched, of a model that has none."""
    return ready(), ""


def _watched(model: Runner, ready: Ready, text: str) -> tuple[Arrays, str]:
    """Make a call and watch the engines. Returns: (the answers, what did not run in a saved engine, or "")."""
    answers, seen = model.watched(ready)
    if seen is None:
        return answers, f"no engine ran at {text}"
    reason = f" ({seen.reasons[0]})" if seen.reasons else ""
    for kind, said in (
        ("fallback", "engine ops ran in TensorFlow"),
        ("build", "engines were built inside the call"),
        ("calibration", "engine ops are still in calibration mode"),
    ):
        if getattr(seen, kind):
            return answers, f"{sum(getattr(seen, kind).values())} {said} at {text}{reason}"
    return answers, "" if seen.engine else f"no engine ran at {text}"


def _answers(model: Runner, calls: Sequence[Scored], watch: _Watch) -> list[Arrays] | str:
    """The answers to the data, or what did not run in an engine; each shape is watched once."""
    answers: list[Arrays] = []
    watched: set[str] = set()
    for number, one in enumerate(calls):
        progress.say("answering the data", number, len(calls))
        call = run.Call(one.signature, npz.load(one.inputs))
        ready = model.ready(call.signature, run_job.objects(call.inputs))
        if call.text() in watched:
            answers.append(ready())
            continue
        watched.add(call.text())
        answer, problem = watch(model, ready, call.text())
        if problem:
            return problem
        answers.append(answer)
    return answers


def _latencies(model: Runner, timed: Sequence[Timed]) -> dict[str, Latency]:
    found: dict[str, Latency] = {}
    for number, one in enumerate(timed):
        progress.say(f"timing {one.call}", number, len(timed))
        found[one.call] = _latency(_ready(model, one))
    return found


def _latency(ready: Ready) -> Latency:
    """Latency of one call at a time, input where the model's runner takes it, answer to the host."""
    for _ in range(timing.WARM_UP_CALLS):
        ready()
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < _LEAST_CALLS or time.perf_counter() - start < _SECONDS:
        seconds.append(timing.seconds(ready))
    return Latency.of(seconds)
