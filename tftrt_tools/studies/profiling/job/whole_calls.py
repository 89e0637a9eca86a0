"""Whole calls, whatever runs them: from arrays on the host to arrays on the host, plain, timed by stages, marked for a trace, and by
several callers at once."""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tftrt_tools.models.execution.runner import Arrays
from tftrt_tools.models.execution.trace import CallTrace

if TYPE_CHECKING:
    import numpy.typing as npt


class WholeCalls(abc.ABC):
    """Whole calls of a signature: from arrays on the host to arrays on the host. Args: inputs: of the calls."""

    def __init__(self, inputs: Arrays) -> None:
        self.shapes = {name: list(array.shape) for name, array in inputs.items()}
        self.dtypes = {name: _type(array) for name, array in inputs.items()}
        self.input_bytes = {name: _bytes(array) for name, array in inputs.items()}

    @abc.abstractmethod
    def call(self) -> Arrays:
        """Make one call."""

    @abc.abstractmethod
    def timed(self) -> list[float]:
        """One call: [seconds until the inputs are there, of running, of reading the answer]."""

    @abc.abstractmethod
    def marked(self, number: int, caller: int = 0) -> list[float]:
        """As `timed`, with marks for the trace."""

    @abc.abstractmethod
    def watched(self) -> tuple[Arrays, CallTrace]:
        """Make one call, and tell what engines did in it."""

    def all_marked(self, count: int) -> list[list[float]]:
        """`count` marked calls, one after the other. The first call of a trace is slower than the others, so one without marks precedes."""
        self.call()
        return [self.marked(number) for number in range(count)]

    def first(self) -> dict[str, Any]:
        """The first call, watched: what engines did, what was said, bytes of the answer; then a second one."""
        start = time.perf_counter()
        answers, first = self.watched()
        seconds = time.perf_counter() - start
        second = self.watched()[1]
        return {
            "first_seconds": seconds,
            "first": first.to_dict(),
            "second": second.to_dict(),
            "output_bytes": {name: _bytes(array) for name, array in answers.items()},
            "output_shapes": {name: list(array.shape) for name, array in answers.items()},
            "output_dtypes": {name: _type(array) for name, array in answers.items()},
        }

    def together(self, callers: int, seconds: float) -> tuple[list[float], float]:
        """Callers in threads, each calls again as soon as its answer is there. Returns: (seconds of each call, seconds of all)."""
        times: list[float] = []
        end = [0.0]

        def work(_: int) -> None:
            while (now := time.perf_counter()) < end[0]:
                self.call()
                times.append(time.perf_counter() - now)

        def begin() -> None:
            end[0] = time.perf_counter() + seconds

        wall = _threads(callers, work, begin)
        return times, wall

    def together_marked(self, callers: int, count: int) -> float:
        """Callers in threads, `count` calls each, marked for a trace, after one without marks. Returns: seconds of all."""
        self.call()
        return _threads(callers, lambda caller: [self.marked(number, caller) for number in range(count)])


def _type(array: npt.NDArray[Any]) -> str:
    return "string" if array.dtype.kind == "O" else array.dtype.name


def _bytes(array: npt.NDArray[Any]) -> int:
    """Its size; of strings, that of all together."""
    return sum(map(len, array.ravel())) if array.dtype.kind == "O" else int(array.nbytes)


def _threads(callers: int, work: Callable[[int], object], begin: Callable[[], None] = lambda: None) -> float:
    """Call work(caller) in threads that start together. Returns: seconds until all are done. Raises: what one of them raised."""
    failures: list[BaseException] = []
    started = [0.0]

    def go() -> None:
        begin()
        started[0] = time.perf_counter()

    barrier = threading.Barrier(callers, action=go)

    def one(caller: int) -> None:
        try:
            barrier.wait()
            work(caller)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        # A caller that failed at the start has broken the barrier of the others.
        raise next(
            (failure for failure in failures if not isinstance(failure, threading.BrokenBarrierError)), failures[0]
        )
    return time.perf_counter() - started[0]
