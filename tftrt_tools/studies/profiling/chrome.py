"""A trace in the Trace Event Format, which chrome://tracing and Perfetto open.

Format: "Trace Event Format", Google, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are
microseconds.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tftrt_tools.base.files import whole_file
from tftrt_tools.studies.profiling import traces
from tftrt_tools.studies.profiling.traces import Event, Track

# (title, tracks) of each call that is shown.
Titled = Sequence[tuple[str, Sequence[Track]]]


def write(path: str | os.PathLike[str], titled: Titled) -> None:
    """Write a trace file, whole or not at all; compressed if its name ends in .gz. Raises: OSError."""
    content = json.dumps({"displayTimeUnit": "ns", "traceEvents": list(events(titled))}, separators=(",", ":")).encode()
    whole_file.write_bytes(path, gzip.compress(content) if os.fspath(path).endswith(".gz") else content)


def events(titled: Titled) -> Iterator[dict[str, Any]]:
    """The events of a file. Each call has a process for the host's threads and one for the GPU's streams; all begin at 0."""
    for number, (title, tracks) in enumerate(titled):
        begin = min((event.start for track in tracks for event in track.events), default=0.0)
        for place, gpu in enumerate((False, True)):
            process = 2 * number + place + 1
            own = [track for track in tracks if track.gpu == gpu]
            if own:
                yield _named("process_name", process, 0, f"{title}: {'GPU' if gpu else 'host'}")
                yield {
                    "ph": "M",
                    "name": "process_sort_index",
                    "pid": process,
                    "tid": 0,
                    "args": {"sort_index": process},
                }
            for thread, track in enumerate(own, 1):
                yield _named("thread_name", process, thread, track.name)
                for event in track.events:
                    yield _whole(event, process, thread, begin)
        yield from _arrows(tracks, number, begin)


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _whole(event: Event, process: int, thread: int, begin: float) -> dict[str, Any]:
    told: Mapping[str, Any] = {"op": event.op, "bytes": event.bytes, "launch": event.launch}
    args = {name: value for name, value in told.items() if value}
    return {
        "ph": "X",
        "name": event.name,
        "pid": process,
        "tid": thread,
        "ts": _micros(event.start - begin),
        "dur": _micros(event.seconds),
        **({"args": args} if args else {}),
    }


def _arrows(tracks: Iterable[Track], number: int, begin: float) -> Iterator[dict[str, Any]]:
    """Arrows from each launch on the host to the kernel or copy that it launched."""
    launches: dict[int, tuple[int, Event]] = {}
    tracks_of = {gpu: [track for track in tracks if track.gpu == gpu] for gpu in (False, True)}
    for thread, track in enumerate(tracks_of[False], 1):
        for event in track.events:
            if event.launch is not None:
                launches[event.launch] = (thread, event)
    for thread, track in enumerate(tracks_of[True], 1):
        for event in track.events:
            if event.launch in launches:
                from_thread, launch = launches[event.launch]
                arrow = {"name": "launch", "cat": "launch", "id": f"{number}.{event.launch}"}
                yield {
                    **arrow,
                    "ph": "s",
                    "pid": 2 * number + 1,
                    "tid": from_thread,
                    "ts": _micros(launch.start - begin),
                }
                yield {
                    **arrow,
                    "ph": "f",
                    "bp": "e",
                    "pid": 2 * number + 2,
                    "tid": thread,
                    "ts": _micros(event.start - begin),
                }


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def marked(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """The tracks from the first marked call's begin to the last one's end; what happened before and after is left out."""
    calls = [event for track in tracks if not track.gpu for event in track.events if event.name == traces.CALL]
    if not calls:
        return tuple(tracks)
    low, high = min(call.start for call in calls), max(call.end for call in calls)
    cut = [
        Track(track.name, track.gpu, tuple(event for event in track.events if event.end > low and event.start < high))
        for track in tracks
    ]
    return tuple(track for track in cut if track.events)
