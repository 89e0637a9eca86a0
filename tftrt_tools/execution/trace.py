"""Which engines ran, fell back or were built inside a call, from the profiler's trace and the op's log.

TF-TRT answers a request natively without telling the caller, and its warnings stop after five. Each execution leaves two traces
that do not stop: profiler events `TRTEngineOp::…` (the count), and, with TF_CPP_VMODULE=trt_engine_op=1, a line with the engine's
name. Seen with TF 2.14.1 on an H100; see docs/dev/decisions/answers.md.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tftrt_tools import records, scratch

T = TypeVar("T")
# {plane, as "/device:GPU:0" or "/host:CPU": [(event, start, end in seconds)]}.
Events = dict[str, list[tuple[str, float, float]]]

EVENTS = {"TRTEngineOp::ExecuteTrtEngine": "engine", "TRTEngineOp::ExecuteNativeSegment": "fallback", "TRTEngineOp::BuildEngine": "build",
          "TRTEngineOp::ExecuteCalibration": "calibration"}
_LINES = (("engine", re.compile(r"Executing TRT engine: (\S+)")), ("fallback", re.compile(r"Executing native segment: (\S+)")),
          ("build", re.compile(r"Building a new TensorRT engine for (\S+)")),
          ("calibration", re.compile(r"Executing TRT calibration: (\S+)")))
_REASON = re.compile(r"(failure in verifying input shapes|Found no engine in cache matching input shapes|Engine creation for \S+ failed|"
                     r"Failed to execute engine|Engine retrieval for input shapes: .* failed)")


@dataclasses.dataclass(frozen=True)
class CallTrace(records.Record):
    """What the engine ops of one call did. Each field: {engine name: times}; "?" stands for an engine the log did not name.
    reasons: lines in which TF-TRT explained itself."""

    engine: dict[str, int]
    fallback: dict[str, int]
    build: dict[str, int]
    calibration: dict[str, int]
    reasons: tuple[str, ...] = ()


def profiled(function: Callable[[], T]) -> tuple[T, dict[str, int]]:
    """Call `function` under the profiler. Returns: (its result, {kind: count of profiler events})."""
    result, planes = _traced(function, device=0)
    counts: collections.Counter[str] = collections.Counter()
    for plane in planes:
        kinds = {key: EVENTS[meta.name] for key, meta in plane.event_metadata.items() if meta.name in EVENTS}
        counts.update(kinds[event.metadata_id] for line in plane.lines for event in line.events if event.metadata_id in kinds)
    return result, dict(counts)


def events(function: Callable[[], object]) -> Events:
    """Call `function` under the profiler, the GPU's kernels included.

    Returns: {plane, as "/device:GPU:0" or "/host:CPU": [(event, start, end in seconds)]}.
    """
    found: Events = collections.defaultdict(list)
    for plane in _traced(function, device=1)[1]:
        for line in plane.lines:
            for event in line.events:
                start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                found[plane.name].append((plane.event_metadata[event.metadata_id].name, start, start + event.duration_ps * 1e-12))
    return dict(found)


def built(found: Events) -> bool:
    """Whether an engine was built, by `events`."""
    builds = [name for name, kind in EVENTS.items() if kind == "build"]
    return any(name in builds for listed in found.values() for name, _, _ in listed)


def _traced(function: Callable[[], T], device: int) -> tuple[T, list[Any]]:
    """(The result of `function`, the planes of the profiler's trace). device: how closely GPUs are watched, 0 for not at all."""
    import tensorflow as tf

    with scratch.folder("trace") as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=device)
        tf.profiler.experimental.start(folder, options)
        try:
            result = function()
        finally:
            tf.profiler.experimental.stop()
        return result, [plane for path in pathlib.Path(folder).rglob("*.xplane.pb") for plane in _planes(path)]


def _planes(path: pathlib.Path) -> list[Any]:
    from tftrt_tools.tf_private import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    return list(space.planes)


def _engine(logged: str) -> str:
    """The engine's own name: the log adds the scopes of the calling functions."""
    return logged.rstrip(",:;.").rsplit("/", 1)[-1]


def combine(counts: Mapping[str, int], log: str) -> CallTrace:
    """A CallTrace from the profiler's counts and the log's names; where they differ, the larger count is kept."""
    named = {kind: collections.Counter(_engine(name) for name in pattern.findall(log)) for kind, pattern in _LINES}
    for kind, total in counts.items():
        missing = total - sum(named[kind].values())
        if missing > 0:
            named[kind]["?"] += missing
    reasons = tuple(dict.fromkeys(line.split("] ", 1)[-1].strip()[:300] for line in log.splitlines() if _REASON.search(line)))
    return CallTrace(reasons=reasons, **{kind: dict(found) for kind, found in named.items()})
