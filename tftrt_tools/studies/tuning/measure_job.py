"""The work of a trial in its process: convert, load, watch the engines, answer the data, take the time.

One process runs many trials, because TF-TRT keeps TensorRT's timings of kernels in memory only.
"""

import collections
import contextlib
import gc
import importlib
import pathlib
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tftrt_tools.accuracy import score
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import inputs, npz, run, run_job
from tftrt_tools.models.execution.job import timing
from tftrt_tools.models.execution.runner import Arrays, Load, Ready, Runner, Wanted
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.tuning import final, turns_job
from tftrt_tools.studies.tuning.tried import NATIVE, Latency, Measured
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult, coverage

# A request to `job`, plain values.
Request = Mapping[str, Any]

_SECONDS = 0.5
_LEAST_CALLS = 30


def job(request: Request) -> Any:
    """Do request["do"]: "score", "native", "calibrate", "trial", "plan" or "final"; the functions of these names say what they take and
    return."""
    todo = {
        "score": score_original,
        "native": native,
        "calibrate": calibrate,
        "trial": trial,
        "plan": plan,
        "final": in_turns,
    }
    try:
        return todo[request["do"]](request)
    finally:
        # A model that is still referenced by a cycle would keep its engines in GPU memory during the next trial.
        gc.collect()


def score_original(request: Request) -> float:
    """Args: request: {"scoring": see _score}. Returns: the goal's metric of the original's own answers."""
    return _score(request["scoring"], [npz.load(one["reference"]) for one in request["scoring"]["calls"]]).value


def native(request: Request) -> dict[str, Any]:
    """Args: request: {"model", "jobs": of its Runtime, "tags", "timed": see _ready}. Returns: {call: Latency dict} of the original."""
    progress.say("timing the original")
    with _original(request) as model:
        return {call: one.to_dict() for call, one in _latencies(model, request["timed"]).items()}


def calibrate(request: Request) -> dict[str, Any]:
    """Args: request: {"convert": a request of conversion.convert_job:job without output and shapes}.

    Returns: {"tables": EngineTable dicts, "data": DataRecord dicts, "versions", "method", "comparison"}.
    """
    answer = _convert(request["convert"])
    return {name: answer[name] for name in ("tables", "data", "versions", "method", "comparison")}


def trial(request: Request) -> dict[str, Any]:
    """Convert and measure.

    Args: request: {"convert": a request of conversion.convert_job:job without "output", "folder": for the temporary model, "tags", "timed",
      "scoring"}.

    Returns: Measured.to_dict() without seconds; its failure says why the model is unusable, if it is. Raises: UsageError, TftrtError.
    """
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=request["folder"]) as folder:
        stage = pathlib.Path(folder) / "model"
        stage.mkdir()
        made = _convert({**request["convert"], "output": str(stage)})
        results = [SignatureResult.from_dict(one) for one in made["signatures"]]
        facts = _facts(results)
        if not facts["engines"]:
            return Measured(**facts, failure="no segment is worth an engine").to_dict()
        if missing := _missing(results):
            return Measured(**facts, failure=missing).to_dict()
        with _converted(stage, request) as model:
            return _measured(model, request, facts).to_dict()


def plan(request: Request) -> dict[str, Any]:
    """Measure a plan.

    Args: request: {"plan": its directory, "plan_jobs": of its Runtime, "facts": fields of Measured that its build told, "timed",
      "scoring"}.

    Returns: as `trial`. Raises: UsageError, TftrtError.
    """
    with _plan(request["plan"], request) as model:
        return _measured(model, request, request["facts"]).to_dict()


def in_turns(request: Request) -> dict[str, Any]:
    """Time the original and conversions of it in turns.

    Args: request: {"model", "jobs": of its Runtime, "tags", "converts": {number of the trial: as of `trial`}, "plans": {number: directory
      of a plan}, "plan_jobs": as of `plan`, "folder", "timed": one of those of `trial`}.
    Returns: final.Final.to_dict(). Raises: UsageError, TftrtError.
    """
    one = request["timed"]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".trial-", dir=request["folder"]))
        # All of them stay alive: an engine goes when its model goes.
        models = {NATIVE: stack.enter_context(_original(request))}
        for number, asked in request["converts"].items():
            place = pathlib.Path(folder) / number
            place.mkdir()
            _convert({**asked, "output": str(place)})
            models[int(number)] = stack.enter_context(_converted(place, request))
        for number, path in request["plans"].items():
            models[int(number)] = stack.enter_context(_plan(path, request))
        calls: dict[int, Ready] = {}
        for number, model in models.items():
            calls[number] = _ready(model, one)
            _, problem = _watched(model, calls[number], one["call"])
            if problem and number != NATIVE:
                raise errors.TftrtError(f"trial {number}: {problem}")
            for _ in range(timing.WARM_UP_CALLS):
                calls[number]()
        progress.say("timing the best in turns")
        return final.final(one["call"], list(calls), turns_job.in_turns(list(calls.values()))).to_dict()


def _convert(request: Mapping[str, Any]) -> Any:
    """convert_job.job. Plans alone are measured without TensorFlow, which that imports."""
    from tftrt_tools.tftrt.conversion import convert_job

    return convert_job.job(request)


def _missing(results: Sequence[SignatureResult]) -> str:
    """Which engines were not ready in time or were refused, or "". Without them there is nothing to time."""
    missing = [one for result in results for one in result.unbuilt if one.is_late or one.refused]
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return f"{missing[0].name}: {missing[0].reason}{more}" if missing else ""


def _original(request: Request) -> AbstractContextManager[Runner]:
    load: Load = importlib.import_module(request["jobs"]).load
    return load(request["model"], Wanted(label="the original", tags=tuple(request["tags"])))


def _plan(path: str, request: Request) -> AbstractContextManager[Runner]:
    load: Load = importlib.import_module(request["plan_jobs"]).load
    return load(path, Wanted(label="the plan"))


def _converted(path: pathlib.Path, request: Request) -> AbstractContextManager[Runner]:
    """A conversion is a SavedModel, whatever the original is."""
    from tftrt_tools.models.kinds.savedmodel import runner_job

    return runner_job.load(str(path), Wanted(label="the conversion", tags=tuple(request["tags"])))


def _facts(results: Sequence[SignatureResult]) -> dict[str, Any]:
    built = [engine for one in results for engine in one.built]
    return {
        "engines": sum(len(one.engines) for one in results),
        "coverage": coverage(results),
        "build_seconds": sum(_op_seconds(one.built) for one in results),
        "cached": sum(one.cached for one in built),
        "engine_bytes": sum(one.bytes for one in built),
    }


def _op_seconds(built: Iterable[Any]) -> float:
    """Seconds to build the engines: all engines of one engine op carry the same time, so each op counts once."""
    return sum({one.name: one.seconds or 0.0 for one in built}.values())


def _measured(model: Runner, request: Request, facts: Mapping[str, Any]) -> Measured:
    problem, arithmetic = _served(model, request["timed"])
    if problem:
        return Measured(**facts, failure=problem)
    answers = _answers(model, request["scoring"]["calls"])
    if isinstance(answers, str):
        return Measured(**facts, failure=answers)
    found = _score(request["scoring"], answers)
    if found.nonfinite:
        return Measured(**facts, failure=f"{found.nonfinite} NaN or Inf in its answers, where the original has none")
    return Measured(**facts, accuracy=found.value, latencies=_latencies(model, request["timed"]), kernels=arithmetic)


def _score(scoring: Mapping[str, Any], answers: Sequence[Arrays]) -> score.Score:
    """Args: scoring: {"goal": Goal dict, "output", "kinds": of the outputs, "labels": of Labels.save, or "", "calls": [{"signature",
    "inputs", "reference"}], .npz paths}."""
    labels = None
    if scoring["labels"]:
        from tftrt_tools.accuracy import labels as label_reader

        labels = label_reader.Labels.load(scoring["labels"])
    calls = scoring["calls"]
    return score.score(
        Goal.from_dict(scoring["goal"]),
        [one["signature"] for one in calls],
        [npz.load(one["reference"]) for one in calls],
        answers,
        labels,
        scoring["output"],
        scoring.get("kinds"),
    )


def _ready(model: Runner, one: Mapping[str, Any]) -> Ready:
    """A call that is timed. Args: one: as of _inputs, with its "call" as text, and "signature"."""
    return model.ready(one["signature"], _inputs(one))


def _inputs(one: Mapping[str, Any]) -> Arrays:
    """Args: one: {"shapes": {input: shape}, "specs": [InputSpec dicts], "frozen": {input: value} of inputs with one value for good, left
    out for none}."""
    shapes = {name: tuple(shape) for name, shape in one["shapes"].items()}
    arrays = inputs.random([InputSpec.from_dict(spec) for spec in one["specs"]], shapes, seed=0)
    return arrays | {name: np.asarray(value, arrays[name].dtype) for name, value in one.get("frozen", {}).items()}


def _served(model: Runner, timed: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, float]]:
    """Returns: (what did not run in a saved engine at the declared shapes, in words, or ""; {arithmetic: seconds of the GPU's kernels})."""
    total: dict[str, float] = collections.defaultdict(float)
    for one in timed:
        ready = _ready(model, one)
        _, problem = _watched(model, ready, one["call"])
        if problem:
            return problem, {}
        for name, seconds in model.kernels([ready]).items():
            total[name] += seconds
    return "", dict(total)


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


def _answers(model: Runner, calls: Sequence[Mapping[str, Any]]) -> list[Arrays] | str:
    """The answers to the data, or what did not run in an engine; each shape is watched once."""
    answers: list[Arrays] = []
    watched: set[str] = set()
    for number, one in enumerate(calls):
        progress.say("answering the data", number, len(calls))
        call = run.Call(one["signature"], npz.load(one["inputs"]))
        ready = model.ready(call.signature, run_job.objects(call.inputs))
        if call.text() in watched:
            answers.append(ready())
            continue
        watched.add(call.text())
        answer, problem = _watched(model, ready, call.text())
        if problem:
            return problem
        answers.append(answer)
    return answers


def _latencies(model: Runner, timed: Sequence[Mapping[str, Any]]) -> dict[str, Latency]:
    found: dict[str, Latency] = {}
    for number, one in enumerate(timed):
        progress.say(f"timing {one['call']}", number, len(timed))
        found[one["call"]] = _latency(_ready(model, one))
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
