"""Builds engine ops in other processes, each on another GPU of this machine, beside the process that converts.

That process takes the engine ops in their order, the helpers from the end; who comes first builds. A helper starts when there is something
to build that the cache does not have, and ends with the block.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import background, child, jobs
from tftrt_tools.base.stack import local_gpus
from tftrt_tools.models.engine_cache.key import Fed
from tftrt_tools.models.engine_cache.store import Place, Store
from tftrt_tools.tftrt.conversion.signature_result import BuiltEngine

if TYPE_CHECKING:
    from tftrt_tools.models.savedmodel.job.lone_engine import LoneEngine

_END_SECONDS = 10
VARIABLE = local_gpus.HELPERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """How an engine op is built; as the arguments of engines.written and the fields of engines.Site. cache: of its timings."""

    feeds: tuple[tuple[Fed, ...], ...]
    dynamic: bool
    path: str
    gpu: Mapping[str, str]
    versions: Mapping[str, str]
    cache: Place | None
    what: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """An engine op alone: the file of its graph, and the fields of LoneEngine."""

    graph: str
    node: str
    inputs: tuple[str, ...]
    asked: Asked


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """What became of it. refused: the reason, None where it was built."""

    built: tuple[BuiltEngine, ...] = ()
    refused: str | None = None


Call = Callable[["LoneEngine", Asked], Answer]


@jobs.job
def build() -> Callable[[Request], Answer]:
    """Build an engine op, and write its engines."""
    from tftrt_tools.tftrt.conversion.job import beside_job

    return beside_job.job


def gpus() -> tuple[str, ...]:
    """What the user gives to helpers."""
    return tuple(filter(None, os.environ.get(VARIABLE, "").split(",")))


def place(store: Store | None) -> Place | None:
    """The arguments of a Store."""
    if store is None:
        return None
    return Place(folder=str(store.folder) if store.folder else None, max_bytes=store.max_bytes)


Make = Callable[[str, Call], list[BuiltEngine]]


class Helpers:
    """Processes that make what this one has not begun; made by `helpers`."""

    def __init__(self, names: Sequence[str], make: Make, folder: str) -> None:
        self._left, self._make, self._folder, self._lock = list(names), make, pathlib.Path(folder), threading.Lock()
        self._begun: dict[str, concurrent.futures.Future[list[BuiltEngine]]] = {}
        self._workers: list[jobs.Worker[Request, Answer]] = []
        # Whether the block is over.
        self.ended = False

    def begun(self, name: str) -> concurrent.futures.Future[list[BuiltEngine]] | None:
        """What a helper makes of a name; None where none has begun, and none will: it is for the caller."""
        with self._lock:
            if name in self._left:
                self._left.remove(name)
            return self._begun.get(name)

    def work(self, gpu: str) -> None:
        """Make one name after the other, until none is left. Args: gpu: CUDA_VISIBLE_DEVICES of the process."""
        with contextlib.ExitStack() as stack:
            # A process that this thread started ends with it at the latest.
            started = functools.cache(lambda: self._started(stack, gpu))
            call = functools.partial(self._call, started)
            while (name := self._next()) is not None:
                future = self._begun[name]
                try:
                    future.set_result(self._make(name, call))
                except BaseException as error:
                    future.set_exception(error)
                    if isinstance(error, child.ChildDied):
                        return

    def end(self) -> None:
        """End what still runs."""
        with self._lock:
            self.ended = True
            self._left.clear()
            workers = list(self._workers)
        for worker in workers:
            worker.end()

    def _next(self) -> str | None:
        with self._lock:
            if not self._left:
                return None
            name = self._left.pop()
            self._begun[name] = concurrent.futures.Future()
            return name

    def _started(self, stack: contextlib.ExitStack, gpu: str) -> jobs.Worker[Request, Answer]:
        worker = stack.enter_context(build.worker({"CUDA_VISIBLE_DEVICES": gpu, VARIABLE: None}))
        with self._lock:
            self._workers.append(worker)
            if self.ended:
                raise errors.TftrtError("the conversion has ended")
        return worker

    def _call(self, started: Callable[[], jobs.Worker[Request, Answer]], lone: LoneEngine, asked: Asked) -> Answer:
        worker = started()
        path = self._folder / lone.node
        path.write_bytes(lone.graph_def.SerializeToString())
        try:
            request = Request(graph=str(path), node=lone.node, inputs=lone.inputs, asked=asked)
            return worker.call(request).result
        finally:
            path.unlink()


@contextlib.contextmanager
def helpers(gpus: Sequence[str], names: Sequence[str], make: Make) -> Iterator[Helpers]:
    """Processes that help inside the block. Args: gpus: CUDA_VISIBLE_DEVICES of each. names: of engine ops, in the order in which this
    process makes them. make: makes one, and is given what asks a helper; it is called in other threads. Yields: Helpers."""
    with scratch.folder("engine-graphs") as folder:
        found = Helpers(names, make, folder)
        threads = [background.start(functools.partial(found.work, gpu)) for gpu in gpus]
        try:
            yield found
        finally:
            found.end()
            concurrent.futures.wait(threads, timeout=_END_SECONDS)
