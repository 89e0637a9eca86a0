"""Runs calls on a model of any kind and keeps the answers; the child's side of `run`."""

from __future__ import annotations

import os
import time

from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import npz
from tftrt_tools.models.execution.run import Answer, Answered, NamedCall, Request
from tftrt_tools.models.execution.runner import Arrays, Load, Ready, Runner, Wanted
from tftrt_tools.models.execution.trace import CallTrace


def answer(request: Request, load: Load) -> Answer:
    """Run calls. A kind's module of jobs has a function `job` that calls this with its own `load`."""
    label, calls = request.label, request.calls
    progress.say(f"loading {label}")
    with load(request.model, Wanted(label=label, exact=request.exact)) as runner:
        results: list[Answered] = []
        served: dict[tuple[object, ...], NamedCall] = {}
        for number, call in enumerate(calls):
            progress.say(f"running {label}", number, len(calls))
            inputs = read_inputs(call)
            ready = runner.ready(call.signature, inputs)
            outputs, seconds, seen = _called(runner, ready, request.trace)
            keep_answers(call, outputs, call.output)
            results.append(Answered(seconds=seconds, trace=seen))
            if request.kernels and seen and seen.engine and not seen.fallback:
                served.setdefault((call.signature, *(array.shape for array in inputs.values())), call)
        again = (runner.ready(call.signature, read_inputs(call)) for call in served.values())
        return Answer(
            calls=tuple(results), where=runner.where, kernels=runner.kernels(again) if request.kernels else {}
        )


def read_inputs(call: NamedCall) -> Arrays:
    """The inputs of a call, by the model's own names. Strings are objects."""
    names = call.renamed.inputs
    return objects({names.get(name, name): array for name, array in npz.load(call.inputs).items()})


def objects(arrays: Arrays) -> Arrays:
    """Arrays with strings as objects, as a Runner takes them."""
    return {name: array.astype(object) if array.dtype.kind in "SU" else array for name, array in arrays.items()}


def keep_answers(call: NamedCall, answers: Arrays, path: str | os.PathLike[str]) -> None:
    """Save the answers to a call, under the caller's names of the outputs."""
    names = call.renamed.outputs
    npz.save(path, {names.get(name, name): array for name, array in answers.items()})


def _called(runner: Runner, ready: Ready, traced: bool) -> tuple[Arrays, float, CallTrace | None]:
    """(answers, seconds, what the engines did)."""
    taken = 0.0

    def timed() -> Arrays:
        nonlocal taken
        start = time.perf_counter()
        answers = ready()
        taken = time.perf_counter() - start
        return answers

    outputs, seen = runner.watched(timed) if traced else (timed(), None)
    return outputs, taken, seen
