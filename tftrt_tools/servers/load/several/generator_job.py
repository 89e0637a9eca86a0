"""A generator on its machine: it answers short calls, and sends in a thread of its own."""

import concurrent.futures
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tftrt_tools.base import errors
from tftrt_tools.base.process import background
from tftrt_tools.fleet.task import Said
from tftrt_tools.servers.load import generator, load_plan
from tftrt_tools.servers.load.load_plan import Plan, Progress, Target
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import clock
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.servers.load.several import travelling
from tftrt_tools.servers.load.several.travelling import Begin, Look, Part
from tftrt_tools.servers.load.workers import UnequalAnswer


class Generator:
    """Called with what the machine that asks wants done: "load", "begin", "look", "start", "enough", "stop", "interrupt", "part"."""

    def __init__(self) -> None:
        self._load: tuple[Target, Payload] | None = None
        self._run: _Run | None = None

    def __call__(self, said: Said) -> Said:
        """Raises: TftrtError of a run that failed."""
        facts, do = said.facts, said.facts["do"]
        if do == "load":
            self._load = travelling.read_load(said.content)
        elif do == "begin":
            assert self._load and (self._run is None or self._run.done)
            asked = Begin.from_dict(facts["begin"])
            self._run = _Run(
                *self._load, travelling.plan_of(asked, said.content), load_plan.Share(asked.number, asked.of)
            )
        elif self._run:
            return self._run.asked(do, facts)
        # What ends a run may come where it has not begun.
        return Said({})


class _Run(generator.Together):
    """One run, in a thread."""

    def __init__(self, target: Target, payload: Payload, plan: Plan, share: load_plan.Share) -> None:
        self._plan, self._lock = plan, threading.Lock()
        self._ready = self._enough = self._stopped = self._interrupted = False
        self._start: int | None = None
        self._last: Progress | None = None
        self._latencies: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._answers: Sequence[UnequalAnswer] = ()
        self._done: concurrent.futures.Future[Records] = background.start(
            lambda: generator.run(target, payload, plan, self._progress, share, self)
        )

    @property
    def done(self) -> bool:
        return self._done.done()

    def asked(self, do: str, facts: Mapping[str, Any]) -> Said:
        if do == "look":
            return self._look()
        if do == "part":
            part = Part(records=self._done.result(), answers=tuple(self._answers), processes=self._processes())
            return Said(*travelling.part(part))
        if do == "start":
            self._start = facts["instant"]
        elif do == "enough":
            self._enough = True
        elif do == "stop":
            self._stopped = True
        elif do == "interrupt":
            self._interrupted = True
        else:
            raise ValueError(do)
        return Said({})

    def _processes(self) -> int:
        return generator.processes(self._plan)

    def _look(self) -> Said:
        done = self._done.done()
        if done and (error := self._done.exception()):
            raise error if isinstance(error, errors.TftrtError) else RuntimeError(f"{type(error).__name__}: {error}")
        with self._lock:
            last, latencies, self._latencies = self._last, self._latencies, []
        look = Look(
            phase=last.phase if last else "warm-up",
            seconds=last.seconds if last else 0.0,
            ended=last.ended if last else 0,
            failed=last.failed if last else 0,
            ready=self._ready,
            done=done,
            partial=self._done.result().partial if done else "",
        )
        return Said(look.to_dict(), np.concatenate([np.zeros(0, np.int64), *latencies]).tobytes())

    def _progress(self, moment: Progress) -> bool:
        with self._lock:
            if self._last and self._last.phase != moment.phase:
                self._latencies = []
            self._last = moment
            self._latencies.append(moment.latency_ns)
        return self._stopped

    def ready(self) -> None:
        self._ready = True

    def start(self) -> int | None:
        return self._start

    def enough(self) -> bool:
        # Told, or forgotten: what tells it may be gone.
        return self._enough or (self._start is not None and clock() > self._start + self._plan.longest * 1e9)

    def interrupted(self) -> bool:
        return self._interrupted

    def unequal(self, answers: Sequence[UnequalAnswer]) -> None:
        self._answers = answers
