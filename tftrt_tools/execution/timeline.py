"""What a model's time is spent on, from TensorFlow's trace of calls that were made one after the other."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from tftrt_tools import records
from tftrt_tools.execution import kernels, trace

# (start, end) in seconds.
Span = tuple[float, float]

# An event of one call, and that of an op: its name and type.
_CALL = "SessionRun"
_OP = re.compile(r"(?:.*[^:]|):(\w+)")
# Ops that turn a picture or a record, as a client has it, into numbers of the wanted size.
_DECODING = re.compile(r"Decode(?!Proto)\w*|Parse\w*Example\w*|Resize\w+|CropAndResize\w*|ScaleAndTranslate|ExtractJpegShape")
# A dataset inside of a graph, which prepares inputs on threads of its own.
_DATASETS = ("ToSingleElementOp::DoCompute", "ReduceDatasetOp::DoCompute")
# Ops that stand for others, which have events of their own.
_AROUND = {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase",
           "MapDefun", "TRTEngineOp", "DatasetToSingleElement", "ReduceDataset", "_SwitchN", "_Send", "_Recv"}
_ENGINE = next(name for name, kind in trace.EVENTS.items() if kind == "engine")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(records.Record):
    """Mean seconds of a call. Where parts run side by side, the time counts for the first of them in the order below, so that they add up
    to `seconds`."""

    # How many calls.
    calls: int
    # Of a call, from its begin to its end.
    seconds: float
    # Some TensorRT engine runs, on the host or the GPU.
    engine: float
    # Some op decodes or resizes, or a dataset in the graph is read.
    decoding: float
    # Some other op or kernel runs, or a copy between host and GPU.
    ops: float

    @property
    def between(self) -> float:
        """Nothing of these runs: the executor schedules, or waits for a thread."""
        return max(0.0, self.seconds - self.engine - self.decoding - self.ops)


def split(events: trace.Events, launches: Sequence[Span] = ()) -> Split:
    """The Split of a trace.

    Args: events: of profiling.events. launches: (start, end) of the GPU's kernels that engines launched; others belong to ops.
    Raises: ValueError where the trace holds no call.
    """
    host = [event for plane, listed in events.items() if plane.startswith("/host:CPU") for event in listed]
    calls = [(start, end) for name, start, end in host if name == _CALL]
    if not calls:
        raise ValueError("the trace holds no call")
    engine, decoding, ops = [*launches], list[Span](), list[Span]()
    for name, start, end in host:
        if name == _ENGINE:
            engine.append((start, end))
        elif name in _DATASETS:
            decoding.append((start, end))
        elif (found := _OP.fullmatch(name)) and found[1] not in _AROUND:
            (decoding if _DECODING.fullmatch(found[1]) else ops).append((start, end))
    ops += [(start, end) for plane, listed in events.items() if kernels.is_gpu(plane) for _, start, end in listed]
    whole, covered, found_seconds = _union(calls), list[Span](), list[float]()
    for spans in (engine, decoding, ops):
        before = _length(_inside(covered, whole))
        covered = _union([*covered, *spans])
        found_seconds.append(_length(_inside(covered, whole)) - before)
    count = len(calls)
    return Split(calls=count, seconds=_length(whole) / count, engine=found_seconds[0] / count, decoding=found_seconds[1] / count,
                 ops=found_seconds[2] / count)


def _union(spans: Iterable[Span]) -> list[Span]:
    """Spans that do not overlap, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _inside(spans: Sequence[Span], windows: Sequence[Span]) -> list[Span]:
    """The parts of `spans` in `windows`; both are unions."""
    found, at = [], 0
    for start, end in spans:
        while at < len(windows) and windows[at][1] <= start:
            at += 1
        for low, high in windows[at:]:
            if low >= end:
                break
            found.append((max(start, low), min(end, high)))
    return found


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)
