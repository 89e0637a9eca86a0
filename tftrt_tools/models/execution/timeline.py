"""What a model's time is spent on, from TensorFlow's trace of calls that were made one after the other."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tftrt_tools.base import records
from tftrt_tools.models.execution import kernels, trace
from tftrt_tools.models.execution.spans import Span, inside, length, union
from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP

# An event of one call, and that of an op: its name and type.
_CALL = "SessionRun"
_OP = re.compile(r"(?:.*[^:]|):(\w+)")
# Ops that turn a picture or a record, as a client has it, into numbers of the wanted size.
_DECODING = re.compile(
    r"Decode(?!Proto)\w*|Parse\w*Example\w*|Resize\w+|CropAndResize\w*|ScaleAndTranslate|ExtractJpegShape"
)
# A dataset inside of a graph, which prepares inputs on threads of its own.
_DATASETS = ("ToSingleElementOp::DoCompute", "ReduceDatasetOp::DoCompute")
# Ops that stand for others, which have events of their own.
AROUND = {
    "PartitionedCall",
    "StatefulPartitionedCall",
    "While",
    "StatelessWhile",
    "If",
    "StatelessIf",
    "Case",
    "StatelessCase",
    "MapDefun",
    ENGINE_OP,
    "DatasetToSingleElement",
    "ReduceDataset",
    "_SwitchN",
    "_Send",
    "_Recv",
}
_ENGINE = next(name for name, kind in trace.EVENTS.items() if kind == "engine")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split(records.Record):
    """Mean seconds of a call. Where parts run side by side, the time counts for the first of them in the order below, so that they add up
    to `seconds`."""

    # The number of calls.
    calls: int
    # Seconds of a call, from its beginning to its end.
    seconds: float
    # Seconds in which a TensorRT engine runs, on the host or the GPU.
    engine: float
    # Seconds in which an op decodes or resizes, or a dataset in the graph is read.
    decoding: float
    # Seconds in which another op or kernel runs, or a copy between host and GPU.
    ops: float

    @property
    def between(self) -> float:
        """The time in which none of these runs: the executor schedules, or waits for a thread."""
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
        elif (match := _OP.fullmatch(name)) and match[1] not in AROUND:
            (decoding if _DECODING.fullmatch(match[1]) else ops).append((start, end))
    ops += [(start, end) for plane, listed in events.items() if kernels.is_gpu(plane) for _, start, end in listed]
    whole, covered, found_seconds = union(calls), list[Span](), list[float]()
    for spans in (engine, decoding, ops):
        before = length(inside(covered, whole))
        covered = union([*covered, *spans])
        found_seconds.append(length(inside(covered, whole)) - before)
    count = len(calls)
    return Split(
        calls=count,
        seconds=length(whole) / count,
        engine=found_seconds[0] / count,
        decoding=found_seconds[1] / count,
        ops=found_seconds[2] / count,
    )
