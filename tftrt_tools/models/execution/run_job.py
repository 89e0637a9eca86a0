"""Runs calls on a model of any kind and keeps the answers; the child's side of `run`."""

from __future__ import annotations

import os
import time
from typing import Any

from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import npz
from tftrt_tools.models.execution.runner import Arrays, Load, Ready, Runner, Wanted
from tftrt_tools.models.execution.trace import CallTrace


def answer(request: dict[str, Any], load: Load) -> dict[str, Any]:
    """Run calls. A kind's module of jobs has a function `job` that calls this with its own `load`.

    Args:
      request: {"model": path, "calls": [{"signature", "inputs": .npz path, "output": .npz path, "renamed": {"inputs": {name in the file:
        the model's}, "outputs": {the model's: name in the file}}}], "trace": bool, "kernels": bool, "exact": bool, "label": text for the
        progress line}.
      load: of the kind.

    Returns: {"calls": [{"seconds", "trace": CallTrace dict or None}], "where": Where dict, "kernels": {arithmetic: seconds} of one more
      call at each shape that engines served}.
    """
    label, calls = request["label"], request["calls"]
    progress.say(f"loading {label}")
    with load(request["model"], Wanted(label=label, exact=request["exact"])) as runner:
        results: list[dict[str, Any]] = []
        served: dict[tuple[Any, ...], dict[str, Any]] = {}
        for number, call in enumerate(calls):
            progress.say(f"running {label}", number, len(calls))
            inputs = read_inputs(call)
            ready = runner.ready(call["signature"], inputs)
            outputs, seconds, seen = _called(runner, ready, request["trace"])
            keep_answers(call, outputs, call["output"])
            results.append({"seconds": seconds, "trace": seen.to_dict() if seen else None})
            if request["kernels"] and seen and seen.engine and not seen.fallback:
                served.setdefault((call["signature"], *(array.shape for array in inputs.values())), call)
        again = (runner.ready(call["signature"], read_inputs(call)) for call in served.values())
        return {
            "calls": results,
            "where": runner.where.to_dict(),
            "kernels": runner.kernels(again) if request["kernels"] else {},
        }


def read_inputs(call: dict[str, Any]) -> Arrays:
    """The inputs of a call in a request, by the model's own names. Strings are objects."""
    names = call["renamed"]["inputs"]
    return objects({names.get(name, name): array for name, array in npz.load(call["inputs"]).items()})


def objects(arrays: Arrays) -> Arrays:
    """Arrays with strings as objects, as a Runner takes them."""
    return {name: array.astype(object) if array.dtype.kind in "SU" else array for name, array in arrays.items()}


def keep_answers(call: dict[str, Any], answers: Arrays, path: str | os.PathLike[str]) -> None:
    """Save the answers to a call in a request, by the names of who asked."""
    names = call["renamed"]["outputs"]
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
