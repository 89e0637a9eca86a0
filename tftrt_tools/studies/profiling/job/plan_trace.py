"""A trace of a plan's calls in the small form that `profiling.traces` reads, from CUPTI's records and the marks of the runner."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.studies.profiling.traces import RUN_OF_PLAN

# CUpti_ActivityMemcpyKind of CUDA 11.8, as TensorFlow's profiler names them; `traces.copy` reads them.
_COPIES = {"memcpy 1": "MemcpyH2D", "memcpy 2": "MemcpyD2H", "memcpy 8": "MemcpyD2D", "memcpy 10": "MemcpyP2P"}
_LAUNCH = "launch"


def of(found: Mapping[str, Any], marks: Sequence[Sequence[Any]], complaints: Sequence[str] = ()) -> dict[str, Any]:
    """The trace of marked calls.

    Args: found: of plan_cupti, {} where CUPTI gave nothing. marks: of plan_calls.Marks, by CUPTI's clock. complaints: what CUPTI said.
    Returns: as `compact.of`.
    """
    host: dict[int, list[list[Any]]] = collections.defaultdict(list)
    for name, start, end, thread, facts in marks:
        host[thread].append([name, start, end, facts])
    for correlation, start, end, thread in found.get("launches", ()):
        host[thread].append([_LAUNCH, start, end, {"correlation_id": correlation}])
    gpu: dict[int, list[list[Any]]] = collections.defaultdict(list)
    names = found.get("names", ())
    for name, start, end, stream, correlation, *_ in found.get("kernels", ()):
        # Nothing else than the plan launches kernels in its process.
        gpu[stream].append([names[name], start, end, {"correlation_id": correlation, "tf_op": RUN_OF_PLAN}])
    for kind, start, end, stream, correlation, size in found.get("copies", ()):
        stat = "Memset_details" if kind == "memset" else "memcpy_details"
        gpu[stream].append(
            [
                _COPIES.get(kind, "Memset" if kind == "memset" else "Memcpy"),
                start,
                end,
                {"correlation_id": correlation, stat: f"size:{size}"},
            ]
        )
    begin = min((start for rows in (*host.values(), *gpu.values()) for _, start, *_ in rows), default=0)
    return {
        "complaints": list(complaints),
        "memory": None,
        "tracks": [
            *(_track(f"thread {thread}", False, rows, begin) for thread, rows in host.items()),
            *(_track(f"stream {stream}", True, rows, begin) for stream, rows in sorted(gpu.items())),
        ],
    }


def _track(name: str, gpu: bool, rows: Sequence[Sequence[Any]], begin: int) -> dict[str, Any]:
    names: dict[str, int] = {}
    events = [
        [names.setdefault(what, len(names)), start - begin, end - start, *([facts] if facts else [])]
        for what, start, end, facts in sorted(rows, key=lambda row: (row[1], -row[2]))
    ]
    return {"name": name, "gpu": gpu, "names": list(names), "events": events}
