"""Records whole calls of models in one process, whatever runs them: times without a trace, traces, several callers at once, and facts of
the machine.

Every step that fails leaves its reason and nothing else, so that the others still count. What is known is written after each step: native
code may end this process. Most times are taken before the traces and some after them, so that the median holds for the time of the traces.
"""

from __future__ import annotations

import abc
import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.base.process import progress
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.execution import inputs, run_job, trace
from tftrt_tools.models.execution.job import timing
from tftrt_tools.models.execution.run import NamedCall
from tftrt_tools.models.execution.runner import Arrays
from tftrt_tools.studies.bench import gpu_watch
from tftrt_tools.studies.profiling.job.whole_calls import WholeCalls
from tftrt_tools.studies.profiling.recording import Facts, Recorded, Request

T = TypeVar("T")
# A model that is loaded.
L = TypeVar("L")
FACTS = "facts.json"
# Of a trace, compressed; a larger one is taken again with fewer calls.
_MOST_BYTES = 4_000_000
# Seconds of a model's calls in a round, and the number of rounds before and after the traces.
_ROUND_SECONDS, _ROUNDS, _ROUNDS_AFTER = 0.25, 6, 4
_LEAST, _MOST = 10, 100
_WARM_SECONDS = 0.5


class Recorder(abc.ABC, Generic[L]):
    def __init__(self, request: Request) -> None:
        self._request, self._folder = request, pathlib.Path(request.folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found: Facts = {"machine": {}, "models": {}, "calls": [], "failed": {}}

    @abc.abstractmethod
    def machine(self) -> dict[str, Any]:
        """The document of a profile.Machine, without the GPU that ran the model."""

    @abc.abstractmethod
    def load(self, stack: contextlib.ExitStack, model: Recorded) -> tuple[L, dict[str, Any]]:
        """(The model, as long as the stack is open; facts of it: "where" of runner.Where, and what measure._side reads)."""

    @abc.abstractmethod
    def whole(self, loaded: L, signature: str, given: Arrays) -> WholeCalls:
        """The calls of a signature with these inputs."""

    @abc.abstractmethod
    def captured(self, name: str, function: Callable[[], T]) -> tuple[T, dict[str, Any]]:
        """(The function's result, facts of the trace of it, which is kept under that name). Raises: trace.TooLarge."""

    def all(self) -> Facts:
        """Record."""
        self._found["machine"] = self._try("the machine's facts", self.machine) or {}
        with contextlib.ExitStack() as stack:
            loaded = {
                model.name: opened
                for model in self._request.models
                if (opened := self._try(f"loading the {model.name}", self._loaded, stack, model))
            }
            calls = []
            for number in range(max((len(model.calls) for model in self._request.models), default=0)):
                calls.append(dict(self._first(number, loaded)))
                self._turns(calls[-1], _ROUNDS)
            for at_shape in calls:
                for name, (whole_calls, facts) in at_shape.items():
                    for callers in self._request.callers:
                        self._step(
                            f"{callers} callers of the {name}", self._several, whole_calls, callers, facts["callers"]
                        )
            for at_shape in calls:
                for name, (calls_whole, facts) in at_shape.items():
                    self._step(f"tracing the {name}", self._trace, calls_whole, facts)
                    for caller in facts["callers"]:
                        if caller["callers"] > 1 and facts["model"] == self._request.models[0].name:
                            self._step(
                                f"tracing {caller['callers']} callers of the {name}",
                                self._trace_several,
                                calls_whole,
                                facts,
                                caller,
                            )
            for at_shape in calls:
                self._turns(at_shape, _ROUNDS_AFTER)
        result: Facts = _rounded(self._found)
        return result

    def _loaded(self, stack: contextlib.ExitStack, model: Recorded) -> L:
        progress.say(f"loading the {model.name}")
        start = time.perf_counter()
        loaded, facts = self.load(stack, model)
        self._found["models"][model.name] = {"load_seconds": time.perf_counter() - start, **facts}
        return loaded

    def _first(self, number: int, loaded: dict[str, L]) -> Iterator[tuple[str, tuple[WholeCalls, dict[str, Any]]]]:
        """(name for messages, (the call, its facts)) of each model that answers at this shape."""
        for model in self._request.models:
            named_call = model.calls[number]
            if named_call is None or model.name not in loaded:
                continue
            name = f"{model.name} at shape {number + 1}"
            progress.say(f"calling the {name} for the first time")
            answered = self._try(f"the first call of the {name}", self._answered, loaded[model.name], named_call)
            if answered:
                whole_calls, first = answered
                facts = {
                    "model": model.name,
                    "number": number,
                    "signature": named_call.signature,
                    "shapes": whole_calls.shapes,
                    "input_bytes": whole_calls.input_bytes,
                    "dtypes": whole_calls.dtypes,
                    "untraced": [],
                    "callers": [],
                    **first,
                }
                self._found["calls"].append(facts)
                self._write()
                yield name, (whole_calls, facts)

    def _answered(self, loaded: L, named_call: NamedCall) -> tuple[WholeCalls, dict[str, Any]]:
        """A call, and the facts of its first time. A model that refuses drawn values (a float that serves as an index, a string that is no
        picture) gets plain ones."""
        given = run_job.read_inputs(named_call)
        try:
            whole_calls = self.whole(loaded, named_call.signature, given)
            return whole_calls, whole_calls.first()
        except errors.CallFailed:
            whole_calls = self.whole(loaded, named_call.signature, inputs.plain(given))
            return whole_calls, {**whole_calls.first(), "plain": True}

    def _turns(self, calls: dict[str, tuple[WholeCalls, dict[str, Any]]], rounds: int) -> None:
        """Time calls without a trace, some of each model in turn."""
        counts = {}
        for name, (whole_calls, _) in calls.items():
            seconds = self._try(f"timing the {name}", _warm, whole_calls.call)
            if seconds is not None:
                counts[name] = interleaving.calls_of_block(seconds, _LEAST, _MOST, _ROUND_SECONDS)

        def block(name: str) -> list[list[float]]:
            return self._try(f"timing the {name}", interleaving.block, calls[name][0].timed, counts[name]) or []

        for name, blocks in interleaving.in_turns(list(counts), progress.each("timing calls", rounds), block).items():
            calls[name][1]["untraced"] += blocks
        self._write()

    def _several(self, whole_calls: WholeCalls, callers: int, kept: list[dict[str, Any]]) -> None:
        """Callers at once, without a trace."""
        progress.say(f"{callers} callers at once")
        with gpu_watch.watching() as watch:
            since = watch.now
            times, wall = whole_calls.together(callers, self._request.seconds)
            kept.append(
                {
                    "callers": callers,
                    "seconds": times,
                    "wall": wall,
                    "gpu": [use.to_dict() for use in watch.uses(since)],
                }
            )

    def _trace(self, whole_calls: WholeCalls, facts: dict[str, Any]) -> None:
        progress.say("tracing calls")
        count = self._request.traced
        while True:
            try:
                times, recorded = self._traced(_file(facts), whole_calls.all_marked, count)
            except trace.TooLarge:
                if count == 1:
                    raise
            else:
                facts |= {"traced": times, **recorded}
                if recorded["trace_bytes"] <= _MOST_BYTES or count == 1:
                    return
            count = max(1, count // 4)

    def _trace_several(self, one: WholeCalls, facts: dict[str, Any], found: dict[str, Any]) -> None:
        progress.say(f"tracing {found['callers']} callers")
        count = min(len(facts.get("traced") or [1]), max(1, self._request.traced // 2))
        callers = found["callers"]
        found |= self._traced(f"{_file(facts)}-callers{callers}", one.together_marked, callers, count)[1]

    def _traced(self, name: str, function: Callable[..., T], *arguments: object) -> tuple[T, dict[str, Any]]:
        return self.captured(name, lambda: function(*arguments))

    def _step(self, step: str, function: Callable[..., object], *arguments: object) -> None:
        self._try(step, function, *arguments)
        self._write()

    def _try(self, step: str, function: Callable[..., T], *arguments: object) -> T | None:
        try:
            return function(*arguments)
        except errors.TftrtError as error:
            self._found["failed"][step] = error.to_dict()
        except OSError as error:  # of the disk, mostly
            self._found["failed"][step] = errors.from_os_error(error).to_dict()
        except Exception as error:  # a step that fails must not end the others
            text = f"{type(error).__name__}: {errors.first_line(str(error))}"[:500]
            self._found["failed"][step] = errors.TftrtError(text, "").to_dict()
        return None

    def _write(self) -> None:
        plain_file.write_text(self._folder / FACTS, json.dumps(_rounded(self._found)))


def _file(facts: dict[str, Any]) -> str:
    """The name of a call's trace."""
    return f"{facts['model']}-{facts['number']}"


def _rounded(value: object) -> Any:
    """The same with times to a tenth of a microsecond, so that thousands of them take little space."""
    if isinstance(value, float):
        return round(value, 7)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def _warm(call: Callable[[], object]) -> float:
    """Call until it is warm. Returns: seconds of the fastest call."""
    end, times = time.perf_counter() + _WARM_SECONDS, list[float]()
    while len(times) < 3 or (len(times) < 5 * timing.WARM_UP_CALLS and time.perf_counter() < end):
        times.append(timing.seconds(call))
    return max(min(times), 1e-6)
