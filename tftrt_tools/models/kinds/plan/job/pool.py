"""The contexts of a plan: as many as there are calls at a time."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
from typing import Any

import numpy.typing as npt
import tensorrt as trt

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution.job.cudart import Cuda, CudaError
from tftrt_tools.models.kinds.plan.job.context import HOST, Context, Feed, Refused, Shapes
from tftrt_tools.models.kinds.plan.job.engine import Engine

# Shapes that get a CUDA graph, and with it a context of their own for each call at a time; others run without.
MOST_GRAPHS = 8

# The calls that a free context may serve: those of a profile, or only those of certain shapes if it captured a graph of them.
_Key = tuple[int, tuple[tuple[str, tuple[int, ...]], ...] | None]


class Calls:
    """Calls with the same inputs. Args: profile: its number. feed: the inputs, which have these shapes."""

    def __init__(self, profile: int, shapes: Shapes, feed: Feed) -> None:
        self.profile, self.shapes, self.feed = profile, shapes, feed
        self.graph: _Key = (profile, tuple(sorted(shapes.items())))
        self.plain: _Key = (profile, None)


@dataclasses.dataclass
class _Seat:
    """A context, the set of taken profiles of its copy of the engine, and the calls that it serves."""

    context: Context
    taken: set[int]
    key: _Key


class Pool:
    """Gives each call a context that no other call has meanwhile.

    A profile of a network with open dimensions serves one context of an engine at a time (TensorRT 8.5). So a further context of a profile
    is of a further copy of the engine, which takes the memory of its weights again.

    A call takes a free context and gives it back without the lock: in Python it is one step to add to a list or to take from it. What is
    done here comes on top of a call of 0.3 ms, and after a wait for the GPU it runs several times slower than in a loop of its own.
    """

    def __init__(self, cuda: Cuda, engine: Engine, graphs: bool, make: type[Context] = Context) -> None:
        """Args: graphs: whether calls are launched as CUDA graphs. make: the class of its contexts."""
        self._cuda, self._engine, self._graphs, self._make = cuda, engine, graphs, make
        self._lock = threading.Condition()
        # How many threads wait for a context. One counts itself before it looks for the last time, so none is missed.
        self._waiting = 0
        self._copies: list[tuple[trt.ICudaEngine, set[int]]] = [(engine.copy(), set())]
        self._free: dict[_Key, list[_Seat]] = collections.defaultdict(list)
        # {profile: contexts that there are}.
        self._made: dict[int, int] = {}
        self._graphed: set[_Key] = set()
        # How many contexts there are, and how many captured a graph: for tests and measurements.
        self.captured = 0

    @property
    def contexts(self) -> int:
        """The number of contexts."""
        return sum(self._made.values())

    def call(self, calls: Calls) -> dict[str, npt.NDArray[Any]]:
        """Make one call. Raises: Refused, CudaError; TftrtError where the memory is not enough."""
        if self._graphs and self._wants_graph(calls.graph):
            try:
                return self._on_seat(calls, calls.graph)
            except (Refused, CudaError) as error:
                self._graphs = False
                progress.note(f"the plan's calls run without a CUDA graph, because it cannot be captured: {error}")
        return self._on_seat(calls, calls.plain)

    def _wants_graph(self, key: _Key) -> bool:
        if key in self._graphed:
            return True
        with self._lock:
            if len(self._graphed) < MOST_GRAPHS:
                self._graphed.add(key)
            return key in self._graphed

    def _on_seat(self, calls: Calls, key: _Key) -> dict[str, npt.NDArray[Any]]:
        """The call in a context of its own. One in which something fails is given up: what it left on its stream is not known."""
        seat = self._one_free(key) or self._seat(key)
        try:
            seat.context.shaped(calls.shapes)
            if key == calls.graph and not seat.context.captured:
                self._capture(seat.context, calls.feed)
            outputs = seat.context.call(calls.feed)
        except BaseException:
            with self._lock:
                seat.context.close()
                seat.taken.discard(calls.profile)
                self._made[calls.profile] -= 1
                self._lock.notify()
            raise
        self._free[seat.key].append(seat)
        if self._waiting:
            with self._lock:
                self._lock.notify()
        return outputs

    def _capture(self, context: Context, feed: Feed) -> None:
        captured = context.capture(feed)
        with self._lock:
            # A plan that asks for memory in its calls never can be captured.
            self._graphs = self._graphs and captured
            self.captured += captured

    def _one_free(self, key: _Key) -> _Seat | None:
        free = self._free.get(key)
        try:
            return free.pop() if free else None
        except IndexError:  # another thread was faster
            return None

    def _seat(self, key: _Key) -> _Seat:
        with self._lock:
            if seat := self._one_free(key):
                return seat
            try:
                return self._new(key)
            except (Refused, CudaError, errors.TftrtError) as error:
                # The memory is out: any context of the profile will do, as soon as one is free.
                if not self._made.get(key[0]):
                    raise errors.TftrtError(
                        f"the GPU has no memory left for a context of the plan: {error}",
                        "free memory of the GPU, or make fewer calls at a time",
                    ) from None
            self._waiting += 1
            try:
                while not (seat := self._one_of_profile(key[0])):
                    self._lock.wait()
            finally:
                self._waiting -= 1
            seat.key = key
            return seat

    def _one_of_profile(self, profile: int) -> _Seat | None:
        return next((seat for key in list(self._free) if key[0] == profile and (seat := self._one_free(key))), None)

    def _new(self, key: _Key) -> _Seat:
        profile = key[0]
        with HOST:
            context, taken = self._on_a_copy(profile)
        taken.add(profile)
        self._made[profile] = self._made.get(profile, 0) + 1
        return _Seat(context, taken, key)

    def _on_a_copy(self, profile: int) -> tuple[Context, set[int]]:
        """A context of the profile, of a copy of the engine that is there if one gives it, and the taken profiles of that copy."""
        shared = not self._engine.plan.dynamic
        for engine, taken in self._copies:
            if shared or profile not in taken:
                with contextlib.suppress(Refused):
                    return self._make(self._cuda, engine, profile), taken
        self._copies.append((self._engine.copy(), set()))
        engine, taken = self._copies[-1]
        return self._make(self._cuda, engine, profile), taken
