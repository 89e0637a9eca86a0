"""The work of a trial in its process: convert, load, watch the engines, answer the data, take the time.

One process runs many trials, because TF-TRT keeps TensorRT's timings of kernels in memory only.
"""

import collections
import functools
import gc
import pathlib
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tftrt_tools import errors, native_log, progress
from tftrt_tools.accuracy import score
from tftrt_tools.accuracy.goal import Goal
from tftrt_tools.conversion import convert_job
from tftrt_tools.conversion.signature_result import SignatureResult, coverage
from tftrt_tools.execution import inputs, npz, run, trace
from tftrt_tools.execution.job import profiling, timing
from tftrt_tools.savedmodel.job import loading
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.tuning import final, turns_job
from tftrt_tools.tuning.tried import NATIVE, Latency, Measured

# A request to `job`, plain values.
Request = Mapping[str, Any]
# {output: array} of a call.
Answer = Mapping[str, npt.NDArray[Any]]

_SECONDS = 0.5
_LEAST_CALLS = 30


def job(request: Request) -> Any:
    """Do request["do"]: "score", "native", "calibrate", "trial" or "final"; the functions of these names say what they take and return."""
    todo = {"score": score_original, "native": native, "calibrate": calibrate, "trial": trial, "final": in_turns}
    try:
        return todo[request["do"]](request)
    finally:
        # A model that is still referenced by a cycle would keep its engines in GPU memory during the next trial.
        gc.collect()


def score_original(request: Request) -> float:
    """Args: request: {"scoring": see _score}. Returns: the goal's metric of the original's own answers."""
    return _score(request["scoring"], [npz.load(one["reference"]) for one in request["scoring"]["calls"]]).value


def native(request: Request) -> dict[str, Any]:
    """Args: request: {"model", "tags", "timed": see _latencies}. Returns: {call: Latency dict} of the original in TensorFlow."""
    progress.say("timing the original")
    model = loading.load(request["model"], tuple(request["tags"]))
    return {call: one.to_dict() for call, one in _latencies(model, request["timed"]).items()}


def calibrate(request: Request) -> dict[str, Any]:
    """Args: request: {"convert": a request of conversion.convert_job:job without output and shapes}.

    Returns: {"tables": EngineTable dicts, "data": DataRecord dicts, "versions", "method", "comparison"}.
    """
    answer = convert_job.job(request["convert"])
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
        made = convert_job.job({**request["convert"], "output": str(stage)})
        results = [SignatureResult.from_dict(one) for one in made["signatures"]]
        facts = _facts(results)
        if not facts["engines"]:
            return Measured(**facts, failure="no segment is worth an engine").to_dict()
        if late := _late(results):
            return Measured(**facts, failure=late).to_dict()
        return _measured(loading.load(stage, tuple(request["tags"])), request, facts).to_dict()


def in_turns(request: Request) -> dict[str, Any]:
    """Time the original and conversions of it in turns.

    Args: request: {"model", "tags", "converts": {number of the trial: as of `trial`}, "folder", "timed": one of those of `trial`}.
    Returns: final.Final.to_dict(). Raises: UsageError, TftrtError.
    """
    (one, feed), = _feeds([request["timed"]])
    # All loaded objects stay alive: an engine goes when its object goes.
    models = {NATIVE: loading.load(request["model"], tuple(request["tags"]))}
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=request["folder"]) as folder:
        for number, asked in request["converts"].items():
            stage = pathlib.Path(folder) / number
            stage.mkdir()
            convert_job.job({**asked, "output": str(stage)})
            models[int(number)] = loading.load(stage, tuple(request["tags"]))
        calls = {}
        for number, model in models.items():
            function = model.root.signatures[one["signature"]]
            calls[number] = functools.partial(loading.answers, function, feed)
            _, problem = _watched(function, feed, one["call"])
            if problem and number != NATIVE:
                raise errors.TftrtError(f"trial {number}: {problem}")
            for _ in range(timing.WARM_UP_CALLS):
                calls[number]()
        progress.say("timing the best in turns")
        return final.final(one["call"], list(calls), turns_job.in_turns(list(calls.values()))).to_dict()


def _late(results: Sequence[SignatureResult]) -> str:
    """Which engines were not ready in time, or "". Without them there is nothing to time: the build goes on beside it."""
    late = [one for result in results for one in result.unbuilt if one.is_late]
    more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
    return f"{late[0].name} was {late[0].reason}{more}" if late else ""


def _facts(results: Sequence[SignatureResult]) -> dict[str, Any]:
    built = [engine for one in results for engine in one.built]
    return {"engines": sum(len(one.engines) for one in results), "coverage": coverage(results),
            "build_seconds": sum(_op_seconds(one.built) for one in results), "cached": sum(one.cached for one in built),
            "engine_bytes": sum(one.bytes for one in built)}


def _op_seconds(built: Iterable[Any]) -> float:
    """Seconds to build the engines: all engines of one engine op carry the same time, so each op counts once."""
    return sum({one.name: one.seconds or 0.0 for one in built}.values())


def _measured(model: Any, request: Request, facts: Mapping[str, Any]) -> Measured:
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


def _score(scoring: Mapping[str, Any], answers: Sequence[Answer]) -> score.Score:
    """Args: scoring: {"goal": Goal dict, "output", "kinds": of the outputs, "labels": of Labels.save, or "", "calls": [{"signature",
      "inputs", "reference"}], .npz paths}."""
    labels = None
    if scoring["labels"]:
        from tftrt_tools.accuracy import labels as label_reader

        labels = label_reader.Labels.load(scoring["labels"])
    calls = scoring["calls"]
    return score.score(Goal.from_dict(scoring["goal"]), [one["signature"] for one in calls], [npz.load(one["reference"]) for one in calls],
                       answers, labels, scoring["output"], scoring.get("kinds"))


def _feeds(timed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Args: timed: [{"call": text, "signature", "shapes": {input: shape}, "specs": [InputSpec dicts], "frozen": {input: value} of
    inputs with one value for good, left out for none}]. Yields: (one of them, feed)."""
    for one in timed:
        shapes = {name: tuple(shape) for name, shape in one["shapes"].items()}
        arrays = inputs.random([InputSpec.from_dict(spec) for spec in one["specs"]], shapes, seed=0)
        arrays |= {name: np.asarray(value, arrays[name].dtype) for name, value in one.get("frozen", {}).items()}
        yield one, {name: tf.identity(tf.constant(value)) for name, value in arrays.items()}


def _served(model: Any, timed: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, float]]:
    """Returns: (what did not run in a saved engine at the declared shapes, in words, or ""; {arithmetic: seconds of the GPU's kernels})."""
    total: dict[str, float] = collections.defaultdict(float)
    for one, feed in _feeds(timed):
        function = model.root.signatures[one["signature"]]
        _, problem = _watched(function, feed, one["call"])
        if problem:
            return problem, {}
        for name, seconds in profiling.kernels_of([functools.partial(loading.answers, function, feed)]).items():
            total[name] += seconds
    return "", dict(total)


def _watched(function: Any, feed: Mapping[str, Any], text: str) -> tuple[Answer, str]:
    """Call under the profiler. Returns: ({output: array}, what did not run in a saved engine, or "")."""
    with native_log.captured() as log:
        answer, counts = profiling.profiled(lambda: loading.answers(function, feed))
    seen = trace.combine(counts, log[0])
    reason = f" ({seen.reasons[0]})" if seen.reasons else ""
    for kind, said in (("fallback", "engine ops ran in TensorFlow"), ("build", "engines were built inside the call"),
                       ("calibration", "engine ops are still in calibration mode")):
        if getattr(seen, kind):
            return answer, f"{sum(getattr(seen, kind).values())} {said} at {text}{reason}"
    return answer, "" if seen.engine else f"no engine ran at {text}"


def _answers(model: Any, calls: Sequence[Mapping[str, Any]]) -> list[Answer] | str:
    """The answers to the data, or what did not run in an engine; each shape is watched once."""
    answers: list[Answer] = []
    watched: set[str] = set()
    for number, one in enumerate(calls):
        progress.say("answering the data", number, len(calls))
        arrays = npz.load(one["inputs"])
        feed = {name: tf.constant(array.astype(object) if array.dtype.kind in "SU" else array) for name, array in arrays.items()}
        call = run.Call(one["signature"], arrays)
        function = model.root.signatures[one["signature"]]
        if call.text() in watched:
            answers.append(loading.answers(function, feed))
            continue
        watched.add(call.text())
        answer, problem = _watched(function, feed, call.text())
        if problem:
            return problem
        answers.append(answer)
    return answers


def _latencies(model: Any, timed: Sequence[Mapping[str, Any]]) -> dict[str, Latency]:
    found: dict[str, Latency] = {}
    for number, (one, feed) in enumerate(_feeds(timed)):
        progress.say(f"timing {one['call']}", number, len(timed))
        found[one["call"]] = _latency(model.root.signatures[one["signature"]], feed)
    return found


def _latency(function: Any, feed: Mapping[str, Any]) -> Latency:
    """Latency of one call at a time, input on the device, answer to the host."""
    for _ in range(timing.WARM_UP_CALLS):
        loading.answers(function, feed)
    seconds: list[float] = []
    start = time.perf_counter()
    while len(seconds) < _LEAST_CALLS or time.perf_counter() - start < _SECONDS:
        seconds.append(timing.seconds(functools.partial(loading.answers, function, feed)))
    return Latency.of(seconds)

