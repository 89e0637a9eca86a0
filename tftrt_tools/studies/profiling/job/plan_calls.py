"""Whole calls of a plan by its own runner, with the begins and ends of their stages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tftrt_tools.models.execution.runner import Arrays
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.kinds.plan import runner_job
from tftrt_tools.models.kinds.plan.job.context import Context, Feed
from tftrt_tools.studies.profiling.job.whole_calls import WholeCalls
from tftrt_tools.studies.profiling.traces import CALL, INPUT, OUTPUT, RUN, RUN_OF_PLAN

_NANOSECONDS = 1e-9


class Marks:
    """When the stages of calls began and ended, in nanoseconds; one for a process."""

    def __init__(self) -> None:
        self._clock: Callable[[], int] = time.perf_counter_ns
        # [name, start, end, thread, further facts], None where nothing is traced.
        self._rows: list[list[Any]] | None = None
        self._own = threading.local()

    def now(self) -> int:
        """Seconds by the host's clock; during a trace, by the trace's clock."""
        return self._clock()

    def end(self, name: str, begun: int, **facts: int) -> float:
        """A stage of this thread's call that began at `begun` is over. Returns: its seconds."""
        now = self._clock()
        if self._rows is not None:
            self._rows.append([name, begun, now, threading.get_ident() & 0xFFFFFFFF, facts])
        spent = self.spent()
        spent[name] = spent.get(name, 0) + now - begun
        return (now - begun) * _NANOSECONDS

    def spent(self) -> dict[str, int]:
        """{stage: nanoseconds} of this thread since it was cleared."""
        if not hasattr(self._own, "spent"):
            self._own.spent = dict[str, int]()
        seconds: dict[str, int] = self._own.spent
        return seconds

    def trace(self, clock: Callable[[], int] | None) -> list[list[Any]]:
        """Keep marks from now on, by this clock; None ends it. Returns: those that were kept."""
        kept = self._rows or []
        self._rows = None if clock is None else []
        self._clock = clock or time.perf_counter_ns
        return kept


MARKS = Marks()


class Marked(Context):
    """A context of the runner that marks the stages of its calls."""

    def upload(self, feed: Feed) -> None:
        """Start copying the inputs, as Context.upload, and mark it."""
        begun = MARKS.now()
        super().upload(feed)
        MARKS.end(INPUT, begun)

    def enqueue(self) -> None:
        """Put one call on the stream, as Context.enqueue, and mark it."""
        begun = MARKS.now()
        super().enqueue()
        MARKS.end(RUN_OF_PLAN, begun)

    def download(self) -> dict[str, Any]:
        """Read the answer, as Context.download, and mark it."""
        begun = MARKS.now()
        outputs = super().download()
        MARKS.end(OUTPUT, begun)
        return outputs


class PlanCalls(WholeCalls):
    """Args: runner: whose contexts are Marked."""

    def __init__(self, runner: runner_job.Loaded, signature: str, inputs: Arrays) -> None:
        super().__init__(inputs)
        self._runner = runner
        self._ready = runner.ready(signature, inputs)

    def call(self) -> Arrays:
        """Make one call, as WholeCalls.call."""
        return self._ready()

    def timed(self) -> list[float]:
        """As WholeCalls.timed; running is all that is neither starting the copies of the inputs nor waiting and copying the answer."""
        MARKS.spent().clear()
        begun = MARKS.now()
        self._ready()
        return self._stages((MARKS.now() - begun) * _NANOSECONDS)

    def marked(self, number: int, caller: int = 0) -> list[float]:
        """As WholeCalls.marked. What is no stage of the context is of Python around it."""
        MARKS.spent().clear()
        begun = MARKS.now()
        self._ready()
        MARKS.end(RUN, begun)
        return self._stages(MARKS.end(CALL, begun, number=number, caller=caller))

    def watched(self) -> tuple[Arrays, CallTrace]:
        """Make one call and tell what engines did, as WholeCalls.watched."""
        answers, said = self._runner.watched(self._ready)
        assert said is not None
        return answers, said

    def _stages(self, whole: float) -> list[float]:
        copied, read = (MARKS.spent().get(name, 0) * _NANOSECONDS for name in (INPUT, OUTPUT))
        return [copied, max(0.0, whole - copied - read), read]
