"""Traces of calls, as the recorder keeps them: what ran when, on each thread of the host and each stream of the GPU. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import gzip
import pathlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents
from tftrt_tools.models.execution.spans import Span
from tftrt_tools.models.kinds.plan.document import ENGINE

# Events that mark a call and its stages.
CALL, INPUT, RUN, OUTPUT = "tftrt call", "tftrt input", "tftrt run", "tftrt output"
# What puts a plan on a stream, as an op: "name:Type".
PLAN_OP = "TensorRTPlan"
RUN_OF_PLAN = f"{ENGINE}:{PLAN_OP}"
_OP = re.compile(r"(.*[^:]|):([A-Z_]\w*)")
_SIZE = re.compile(r"(?:size|num_bytes):(\d+)")
_KINDS = {"h2d": "host to GPU", "d2h": "GPU to host", "d2d": "on the GPU", "p2p": "between GPUs", "memset": "fill"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that took time. Times are seconds from the trace's begin."""

    name: str
    start: float
    end: float
    # The number that a launch on the host and what it launched on the GPU share; None without one.
    launch: int | None = None
    # Of something on the GPU: "name:Type" of the TensorFlow op that launched it, as far as the profiler knows.
    op: str = ""
    # Of a copy or fill: what is copied, in bytes.
    bytes: int = 0
    # Of a marked call: its number, and who made it.
    number: int = 0
    caller: int = 0

    @property
    def span(self) -> Span:
        """Start and end."""
        return self.start, self.end

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclasses.dataclass(frozen=True)
class Memory(records.Record):
    """Bytes that TensorFlow's allocator on the GPU had given out during a trace: at the lowest, and at the highest."""

    lowest: int
    highest: int


@dataclasses.dataclass(frozen=True, slots=True)
class Track:
    """A thread of the host, or a stream of the GPU."""

    name: str
    gpu: bool
    # By their start; of two that start together the longer one comes first.
    events: tuple[Event, ...]


@dataclasses.dataclass(frozen=True)
class Trace:
    """A trace. memory: None where TensorFlow's allocator on the GPU gave out nothing."""

    tracks: tuple[Track, ...]
    memory: Memory | None = None


def read(path: str | pathlib.Path) -> Trace:
    """The trace in a file that `job.compact` wrote. Raises: TftrtError for a damaged file, OSError."""
    try:
        with gzip.open(path) as file:
            return of(documents.parse_object(file.read(documents.MOST_BYTES + 1)))
    except (EOFError, zlib.error, gzip.BadGzipFile, *documents.MISREAD) as error:
        raise errors.TftrtError(
            f"the trace {path} is damaged: {errors.first_line(str(error))}", "profile the model again"
        ) from None


def of(data: Mapping[str, Any]) -> Trace:
    """The trace of what `job.compact.of` returns."""
    tracks = tuple(
        Track(track["name"], track["gpu"], tuple(_event(track["names"], *row) for row in track["events"]))
        for track in data["tracks"]
    )
    return Trace(tracks, Memory(*data["memory"]) if data.get("memory") else None)


def _event(
    names: Sequence[str], name: int, start: float, duration: float, stats: Mapping[str, Any] | None = None
) -> Event:
    stats = stats or {}
    launch = stats.get("correlation_id")
    size = _SIZE.search(stats.get("memcpy_details") or stats.get("Memset_details") or "")
    return Event(
        name=names[name],
        start=start * 1e-9,
        end=(start + duration) * 1e-9,
        launch=int(launch) if launch is not None else None,
        op=stats.get("tf_op", ""),
        bytes=int(size[1]) if size else 0,
        number=int(stats.get("number", 0)),
        caller=int(stats.get("caller", 0)),
    )


def op(name: str) -> tuple[str, str] | None:
    """(name, type) if an event is that of an op."""
    found = _OP.fullmatch(name)
    return (found[1], found[2]) if found else None


def copy(name: str) -> str:
    """What an event of the GPU copies, for people: "host to GPU"; "" for a kernel."""
    lower = name.lower()
    if not lower.startswith(("memcpy", "memset")):
        return ""
    return next((text for mark, text in _KINDS.items() if mark in lower), "copy")
