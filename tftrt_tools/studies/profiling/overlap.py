"""How much really happened at the same time when several callers called, from a trace's timeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tftrt_tools.base import records
from tftrt_tools.models.execution import spans
from tftrt_tools.models.execution.spans import Span
from tftrt_tools.studies.profiling import traces
from tftrt_tools.studies.profiling.traces import Track


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap(records.Record):
    """What a trace of several callers shows, from the first call's begin to the last one's end."""

    # Calls under way, on average.
    calls_under_way: float
    # Share of the time in which the GPU computes or copies.
    gpu_busy: float
    # Share of the GPU's busy time in which two or more kernels run.
    kernels_at_once: float
    # Share of the GPU's copies during which a kernel runs.
    copies_beside_kernels: float
    # Streams of the GPU with kernels.
    streams: int


def of(tracks: Sequence[Track]) -> Overlap | None:
    """The Overlap of a trace; None where it holds no marked call."""
    calls = [event.span for track in tracks if not track.gpu for event in track.events if event.name == traces.CALL]
    if not calls:
        return None
    window = [(min(start for start, _ in calls), max(end for _, end in calls))]
    whole = spans.length(window)
    kernels, copies, streams = list[Span](), list[Span](), 0
    for track in tracks:
        if track.gpu:
            own = spans.inside(spans.union(event.span for event in track.events if not traces.copy(event.name)), window)
            streams += bool(own)
            kernels += own
            copies += spans.inside(spans.union(event.span for event in track.events if traces.copy(event.name)), window)
    some, moved = spans.union(kernels), spans.union(copies)
    busy = spans.length(spans.union([*some, *moved]))
    return Overlap(
        calls_under_way=spans.length(calls) / whole,
        gpu_busy=busy / whole,
        kernels_at_once=spans.length(several(kernels)) / busy if busy else 0.0,
        copies_beside_kernels=spans.length(spans.inside(moved, some)) / spans.length(moved) if moved else 0.0,
        streams=streams,
    )


def several(found: Iterable[Span]) -> list[Span]:
    """The instants that two or more of the stretches cover, as a union."""
    edges = sorted([(start, 1) for start, _ in found] + [(end, -1) for _, end in found])
    running, begun, at_once = 0, 0.0, list[Span]()
    for at, step in edges:
        if running == 2 and step < 0 and at > begun:
            at_once.append((begun, at))
        running += step
        if running == 2 and step > 0:
            begun = at
    return spans.union(at_once)
