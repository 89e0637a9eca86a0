"""The contexts of a plan: as many as there are calls at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import tensorrt as trt

from tftrt_tools import errors, progress
from tftrt_tools.execution.job.cudart import Cuda, CudaError
from tftrt_tools.models.plan.job.context import HOST, Arrays, Context, Refused, Shapes
from tftrt_tools.models.plan.job.engine import Engine

# Shapes that get a CUDA graph, and with it a context of their own for each call at a time; others run without.
MOST_GRAPHS = 8


@dataclasses.dataclass
class _Seat:
    """A context, and the set of taken profiles of its copy of the engine. own: the only shapes that it serves, because of its graph."""

    context: Context
    taken: set[int]
    own: Shapes | None


class Pool:
    """Gives each call a context that no other call has meanwhile.

    A profile of a network with open dimensions serves one context of an engine at a time (TensorRT 8.5). So a further context of a profile
    is of a further copy of the engine, which takes the memory of its weights again.
    """

    def __init__(self, cuda: Cuda, engine: Engine, graphs: bool, make: type[Context] = Context) -> None:
        """Args: graphs: whether calls are launched as CUDA graphs. make: the class of its contexts."""
        self._cuda, self._engine, self._graphs, self._make = cuda, engine, graphs, make
        self._lock = threading.Condition()
        self._copies: list[tuple[trt.ICudaEngine, set[int]]] = [(engine.copy(), set())]
        self._free: list[_Seat] = []
        # {profile: contexts that there are}.
        self._made: dict[int, int] = {}
        self._graphed: list[Shapes] = []
        # How many contexts there are, and how many captured a graph: for tests and measurements.
        self.captured = 0

    @property
    def contexts(self) -> int:
        """How many there are."""
        return sum(self._made.values())

    def call(self, profile: int, shapes: Shapes, feed: Arrays) -> dict[str, npt.NDArray[Any]]:
        """One call. Args: feed: in page-locked memory. Raises: Refused, CudaError; TftrtError where memory is out."""
        if self._graphs and self._wants_graph(shapes):
            try:
                with self._context(profile, shapes, shapes) as context:
                    if not context.captured:
                        captured = context.capture(feed)
                        with self._lock:
                            # A plan that asks for memory in its calls never can be captured.
                            self._graphs = self._graphs and captured
                            self.captured += captured
                    return context.call(feed)
            except (Refused, CudaError) as error:
                self._graphs = False
                progress.note(f"the plan's calls run without a CUDA graph, because it cannot be captured: {error}")
        with self._context(profile, shapes, None) as context:
            return context.call(feed)

    def _wants_graph(self, shapes: Shapes) -> bool:
        with self._lock:
            if shapes not in self._graphed and len(self._graphed) < MOST_GRAPHS:
                self._graphed.append(shapes)
            return shapes in self._graphed

    @contextlib.contextmanager
    def _context(self, profile: int, shapes: Shapes, own: Shapes | None) -> Iterator[Context]:
        """A context that is ready for the shapes. One in which something fails is given up: what it left on its stream is not known."""
        seat = self._seat(profile, own)
        useful = False
        try:
            seat.context.shaped(shapes)
            yield seat.context
            useful = True
        finally:
            with self._lock:
                if useful:
                    self._free.append(seat)
                else:
                    seat.context.close()
                    seat.taken.discard(profile)
                    self._made[profile] -= 1
                self._lock.notify()

    def _seat(self, profile: int, own: Shapes | None) -> _Seat:
        with self._lock:
            while True:
                if seat := self._one_free(profile, own):
                    return seat
                try:
                    return self._new(profile, own)
                except (Refused, CudaError, errors.TftrtError) as error:
                    # The memory is out: any context of the profile will do, as soon as one is free.
                    if not self._made.get(profile):
                        raise errors.TftrtError(f"the GPU has no memory left for a context of the plan: {error}",
                                                "free memory of the GPU, or make fewer calls at a time") from None
                if seat := next((one for one in self._free if one.context.profile == profile), None):
                    self._free.remove(seat)
                    seat.own = own
                    return seat
                self._lock.wait()

    def _one_free(self, profile: int, own: Shapes | None) -> _Seat | None:
        found = next((one for one in self._free if one.context.profile == profile and one.own == own), None)
        if found:
            self._free.remove(found)
        return found

    def _new(self, profile: int, own: Shapes | None) -> _Seat:
        with HOST:
            context, taken = self._on_a_copy(profile)
        taken.add(profile)
        self._made[profile] = self._made.get(profile, 0) + 1
        return _Seat(context, taken, own)

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
