"""Where a served request's time goes: the client's clock, the server's counters and a traced run in process, put together."""

import dataclasses
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.models.execution.timeline import Split
from tftrt_tools.studies.bench.measurements import SERVER, Row
from tftrt_tools.studies.bench.points import Point

# How a part was found: by the client's clock, by the server's counters, or from other measurements.
Found = Literal["measured", "counted", "inferred"]
# The parts, in the order of a request's way.
ENCODING, EMPTY_CALL, MESSAGES = (
    "encoding the request",
    "an empty call: network, gRPC",
    "messages and tensors in the server",
)
QUEUE, DECODING, ENGINES = "queue for a batch", "decoding and resizing in the graph", "TensorRT engines"
OPS, BETWEEN, READING = "other ops and copies", "between the ops", "reading the answer"
REST = "rest: the bytes' way, waiting for threads"
# The model in the server and in process may differ by this factor without a remark.
_FACTOR = 1.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alone(records.Record):
    """What was measured besides the load, for the same requests. Mean milliseconds of a request."""

    # In this process: making the request's bytes, and reading the answer's.
    encoding_ms: float
    reading_ms: float
    # A GetModelStatus on the same connection, by the same load generator.
    empty_call_ms: float
    # The model in process, without a trace and with one.
    plain_ms: float
    split: Split
    # Whether the model ran in process on the server's machine.
    here: bool
    # Whether it has engine ops.
    engine_ops: bool


@dataclasses.dataclass(frozen=True)
class Part(records.Record):
    """A part of a request's time. name: for people; ms: mean milliseconds; found: how; by: the same in words."""

    name: str
    ms: float
    found: Found
    by: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Breakdown(records.Record):
    """The mean time of a request at one point, in parts that add up to it."""

    point: Point
    # From the client's begin of encoding to the end of reading the answer.
    total_ms: float
    # In the order of a request's way, the rest last.
    parts: tuple[Part, ...]
    alone: Alone
    # Remarks, a line each.
    notes: tuple[str, ...] = ()

    def share(self, part: Part) -> float:
        """The part of the whole that `part` is, 0 to 1."""
        return part.ms / self.total_ms if self.total_ms else 0.0


def missing(row: Row) -> str:
    """Why a row of the server cannot be taken apart, or ""."""
    if row.service.mean_ms is None:
        return "no request was answered"
    if row.server is None or row.server.request_ms is None or row.server.runtime_ms is None:
        return "the server's counters have no time of its requests"
    return ""


def of_row(row: Row, alone: Alone) -> Breakdown | None:
    """The Breakdown of a row, None for a row that is no server's, or for which `missing` says why."""
    server, call = row.server, row.service.mean_ms
    if row.target != SERVER or call is None or server is None or server.request_ms is None or server.runtime_ms is None:
        return None
    # Means of different clocks: none may be longer than the one around it.
    inside = min(server.request_ms, call)
    run = min(server.runtime_ms, inside)
    queue = min(server.queuing_ms or 0.0, run)
    empty = min(alone.empty_call_ms, call - inside)
    parts = [
        Part(ENCODING, alone.encoding_ms, "measured", "in this process, one after the other"),
        Part(EMPTY_CALL, empty, "measured", "GetModelStatus from the same load generator, one at a time"),
        Part(MESSAGES, inside - run, "counted", "the server's request latency less its run of the graph"),
    ]
    if server.queuing_ms is not None:
        parts.append(Part(QUEUE, queue, "counted", "the server's queuing latency, of all its models"))
    parts += _of_run(run - queue, alone.split)
    parts.append(Part(READING, alone.reading_ms, "measured", "in this process, one after the other"))
    rest = Part(REST, call - inside - empty, "inferred", "the client's time less all parts above")
    whole = call + alone.encoding_ms + alone.reading_ms
    return Breakdown(
        point=row.point, total_ms=whole, parts=(*parts, rest), alone=alone, notes=tuple(_notes(run - queue, alone))
    )


def _of_run(run_ms: float, split: Split) -> list[Part]:
    """The time in the graph, in the proportions of the traced run."""
    named = ((DECODING, split.decoding), (ENGINES, split.engine), (OPS, split.ops), (BETWEEN, split.between))
    whole = sum(seconds for _, seconds in named) or 1.0
    return [
        Part(
            name,
            run_ms * seconds / whole,
            "inferred",
            "the server's run of the graph, shared as in a traced run in process",
        )
        for name, seconds in named
        if seconds
    ]


def _notes(run_ms: float, alone: Alone) -> list[str]:
    found = []
    if alone.engine_ops and not alone.split.engine:
        found.append(
            "no engine ran in the traced run, so their time is in the other ops; without a GPU, engine ops run as TensorFlow ops"
        )
    if not alone.here:
        found.append(
            "the traced run was on this machine, and the server is another: the shares inside the graph may differ there"
        )
    low, high = sorted((run_ms, alone.plain_ms))
    if high > _FACTOR * low:
        found.append(
            f"the graph takes {run_ms:.3f} ms in the server and {alone.plain_ms:.3f} ms in process: batches, other "
            "requests or other settings make the difference, and the shares inside the graph may differ too"
        )
    return found
