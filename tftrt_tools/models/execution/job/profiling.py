"""Calls under TensorFlow's profiler."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import tensorflow as tf

from tftrt_tools.base.files import scratch
from tftrt_tools.base.tf_private import xplane_pb2
from tftrt_tools.models.execution import kernels, timeline
from tftrt_tools.models.execution.spans import Span
from tftrt_tools.models.execution.trace import EVENTS, Events, TooLarge

T = TypeVar("T")


def profiled(function: Callable[[], T]) -> tuple[T, dict[str, int]]:
    """Call `function` under the profiler. Returns: (its result, {kind: count of profiler events})."""
    result, planes = _traced(function, device=0)
    counts: collections.Counter[str] = collections.Counter()
    for plane in planes:
        kinds = {key: EVENTS[meta.name] for key, meta in plane.event_metadata.items() if meta.name in EVENTS}
        counts.update(
            kinds[event.metadata_id] for line in plane.lines for event in line.events if event.metadata_id in kinds
        )
    return result, dict(counts)


def events(function: Callable[[], object]) -> Events:
    """Call `function` under the profiler, the GPU's kernels included.

    Returns: {plane, as "/device:GPU:0" or "/host:CPU": [(event, start, end in seconds)]}.
    """
    return _events(_traced(function, device=1)[1])


def split(function: Callable[[], object]) -> timeline.Split:
    """What the time of the calls that `function` makes one after the other is spent on. Raises: ValueError where it makes none."""
    planes = _traced(function, device=1)[1]
    return timeline.split(_events(planes), _engine_kernels(planes))


def _events(planes: Iterable[xplane_pb2.XPlane]) -> Events:
    found: Events = collections.defaultdict(list)
    for plane in planes:
        found[plane.name] += [(plane.event_metadata[event.metadata_id].name, *span) for event, span in _spans(plane)]
    return dict(found)


def _spans(plane: xplane_pb2.XPlane) -> Iterator[tuple[xplane_pb2.XEvent, Span]]:
    """(event, its start and end in seconds) of a plane."""
    for line in plane.lines:
        for event in line.events:
            start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
            yield event, (start, start + event.duration_ps * 1e-12)


def _engine_kernels(planes: Sequence[xplane_pb2.XPlane]) -> list[Span]:
    """The times of the GPU's kernels and copies that engines launched. A launch and its kernel have the same number in the trace."""
    windows = [
        span
        for plane in planes
        for event, span in _spans(plane)
        if EVENTS.get(plane.event_metadata[event.metadata_id].name) == "engine"
    ]
    launched = (
        set()
        if not windows
        else {
            number
            for plane in planes
            if not kernels.is_gpu(plane.name)
            for event, (start, _) in _spans(plane)
            if (number := _correlation(plane, event)) is not None
            and any(begin <= start <= end for begin, end in windows)
        }
    )
    return [
        span
        for plane in planes
        if kernels.is_gpu(plane.name)
        for event, span in _spans(plane)
        if _correlation(plane, event) in launched
    ]


def _correlation(plane: xplane_pb2.XPlane, event: xplane_pb2.XEvent) -> int | None:
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "correlation_id":
            return int(stat.uint64_value or stat.int64_value)
    return None


def built(found: Events) -> bool:
    """Whether an engine was built, by `events`."""
    builds = [name for name, kind in EVENTS.items() if kind == "build"]
    return any(name in builds for listed in found.values() for name, _, _ in listed)


def kernels_of(calls: Iterable[Callable[[], object]]) -> dict[str, float]:
    """{arithmetic: seconds of the GPU's kernels} of functions without arguments, called once each.

    Do not time these calls: watching kernels slows them down. Do not build engines in them: TensorRT tries kernels in a build. {} on a
    machine without a GPU.
    """
    total: dict[str, float] = collections.defaultdict(float)
    for call in calls:
        call_events = events(call)
        if not built(call_events):
            for name, seconds in kernels.seconds(call_events).items():
                total[name] += seconds
    return dict(total)


def recorded(function: Callable[[], T], most_bytes: int | None = None) -> tuple[T, bytes]:
    """Call `function` under the profiler, the GPU's kernels and every op on the host included.

    Args: most_bytes: of a trace that is read. Returns: (its result, the trace: an XSpace message). Raises: TooLarge.
    """
    result, files = _files(function, device=1, host=3, most_bytes=most_bytes)
    return result, b"".join(files)  # messages put together are one message with the planes of all


def _traced(function: Callable[[], T], device: int) -> tuple[T, list[xplane_pb2.XPlane]]:
    """(The result of `function`, the planes of the profiler's trace). device: how closely GPUs are watched, 0 for not at all."""
    result, files = _files(function, device)
    return result, [plane for content in files for plane in _planes(content)]


def _files(
    function: Callable[[], T], device: int, host: int = 2, most_bytes: int | None = None
) -> tuple[T, list[bytes]]:
    """(The result of `function`, the content of each file that the profiler wrote). Args: host: how closely the host is watched; ops whose
    work is on a GPU are seen from 3 on. Raises: TooLarge."""
    with scratch.folder("trace") as folder:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=host, python_tracer_level=0, device_tracer_level=device
        )
        tf.profiler.experimental.start(folder, options)
        try:
            result = function()
        finally:
            tf.profiler.experimental.stop()
        paths = list(pathlib.Path(folder).rglob("*.xplane.pb"))
        size = sum(path.stat().st_size for path in paths)
        if most_bytes is not None and size > most_bytes:
            raise TooLarge(
                f"the trace takes {size / 1e6:.0f} MB, more than this machine's memory allows to read",
                "trace a smaller shape, or free memory",
            )
        return result, [path.read_bytes() for path in paths]


def _planes(content: bytes) -> list[xplane_pb2.XPlane]:
    space = xplane_pb2.XSpace()
    space.ParseFromString(content)
    return list(space.planes)
