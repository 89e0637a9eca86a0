"""Traces of TensorFlow's profiler in a small form that is read without TensorFlow; `profiling.traces` reads it.

    {"complaints": [what the profiler said], "memory": [lowest, highest] or null, "tracks": [{"name", "gpu": bool, "names": [...],
    "events": [[name's number, start, duration, {stat: value}], ...]}]}

Times are nanoseconds from the first event on. A track is a thread of the host or a stream of the GPU. Memory is what TensorFlow's
allocator on the GPU had given out, in bytes.
"""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from tftrt_tools.base.files import plain_file
from tftrt_tools.base.tf_private import xplane_pb2
from tftrt_tools.models.execution import kernels

# The stats that are kept: a launch's number, the op that launched, what a copy copied, and the numbers of a marked call.
_STATS = ("correlation_id", "tf_op", "memcpy_details", "Memset_details", "number", "caller")
_STREAM = "Stream"
_MEMORY = ("MemoryAllocation", "MemoryDeallocation")


def write(raw: bytes, path: pathlib.Path) -> tuple[int, list[str]]:
    """Write an XSpace in the small form, compressed. Returns: (bytes of the file, what the profiler complained about)."""
    found = of(raw)
    plain_file.write_bytes(path, gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 6))
    return path.stat().st_size, found["complaints"]


def of(raw: bytes) -> dict[str, Any]:
    """The small form of an XSpace."""
    space = xplane_pb2.XSpace()
    space.ParseFromString(raw)
    planes = [plane for plane in space.planes if plane.name.startswith("/host:CPU") or kernels.is_gpu(plane.name)]
    lines = [(plane, line) for plane in planes for line in _lines(plane) if line.events]
    begin = min((_start(line, event) for _, line in lines for event in line.events), default=0.0)
    return {
        "complaints": [*space.errors, *space.warnings],
        "memory": _memory(lines),
        "tracks": [_track(plane, line, begin) for plane, line in lines],
    }


def _lines(plane: xplane_pb2.XPlane) -> Iterable[xplane_pb2.XLine]:
    """Lines of a plane. A GPU's plane can have lines beside its streams, which group the same kernels."""
    streams = [line for line in plane.lines if line.name.startswith(_STREAM)]
    return streams if kernels.is_gpu(plane.name) and streams else plane.lines


def _start(line: xplane_pb2.XLine, event: xplane_pb2.XEvent) -> float:
    return float(line.timestamp_ns + event.offset_ps * 1e-3)


def _track(plane: xplane_pb2.XPlane, line: xplane_pb2.XLine, begin: float) -> dict[str, Any]:
    names: dict[str, int] = {}
    events = []
    for event in sorted(line.events, key=lambda raw: (raw.offset_ps, -raw.duration_ps)):
        name = plane.event_metadata[event.metadata_id].name
        if name in _MEMORY:
            continue
        number = names.setdefault(name, len(names))
        row: list[Any] = [number, round(_start(line, event) - begin, 3), round(event.duration_ps * 1e-3, 3)]
        stats = dict(_stats(plane, event))
        events.append([*row, stats] if stats else row)
    gpu = kernels.is_gpu(plane.name)
    return {
        "name": f"{plane.name} {line.name}" if gpu else line.name,
        "gpu": gpu,
        "names": list(names),
        "events": events,
    }


def _memory(lines: Iterable[tuple[xplane_pb2.XPlane, xplane_pb2.XLine]]) -> list[int] | None:
    rows = []
    for plane, line in lines:
        for event in line.events:
            if plane.event_metadata[event.metadata_id].name in _MEMORY:
                stats = dict(_values(plane, event))
                if str(stats.get("allocator_name", "")).startswith("GPU"):
                    rows.append(int(stats.get("bytes_allocated", 0)))
    return [min(rows), max(rows)] if rows else None


def _stats(plane: xplane_pb2.XPlane, event: xplane_pb2.XEvent) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in _values(plane, event) if name in _STATS and value not in ("", "(null)"))


def _values(plane: xplane_pb2.XPlane, event: xplane_pb2.XEvent) -> Iterator[tuple[str, Any]]:
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        yield (
            plane.stat_metadata[stat.metadata_id].name,
            plane.stat_metadata[stat.ref_value].name if kind == "ref_value" else getattr(stat, kind),
        )
