"""What a CUDA graph of an engine saves, and what several streams give: measured, outside TensorFlow."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class CudaGraph(records.Record):
    """A captured call against plain ones, in turns; medians in seconds."""

    # Nodes of the graph.
    nodes: int = 0
    # Seconds of the process: a call and the wait for it.
    plain: float | None = None
    graph: float | None = None
    # Seconds on the GPU, where the next call always waits.
    plain_row: float | None = None
    graph_row: float | None = None
    # Why there is none, or "".
    error: str = ""

    @property
    def saves(self) -> float | None:
        """Seconds of each awaited call."""
        return None if self.plain is None or self.graph is None else self.plain - self.graph

    def text(self, plan: bool = False) -> str:
        """For people. Args: plan: whether it is that of a plan, whose calls can be graphs."""
        if self.error or self.plain is None or self.graph is None:
            return f"a CUDA graph could not be measured: {self.error or 'no answer'}"
        share = (self.plain - self.graph) / self.plain
        return (
            f"a CUDA graph takes {self.graph * 1e3:.3f} ms a call, launch and wait included, instead of {self.plain * 1e3:.3f} ms "
            f"({share:+.0%} saved, of {self.nodes} launches): "
            + (
                "TFTRT_PLAN_CUDA_GRAPH=1 makes calls so"
                if plan
                else "measured outside TensorFlow, which does not capture engines"
            )
        )


def measured(answer: Mapping[str, Any]) -> CudaGraph:
    """Make the CudaGraph from the recorded part "graph"."""
    errors = answer.get("errors", {})
    turns = answer.get("turns")
    if not turns:
        return CudaGraph(error="; ".join(f"{why}" for why in errors.values()) or "no answer")
    return CudaGraph(nodes=answer["graph_nodes"], **{name: statistics.median(values) for name, values in turns.items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Streams(records.Record):
    """Several contexts, each with a stream and a copy of the engine."""

    contexts: int
    # Calls a second: one thread feeds all streams; each stream has a thread that waits for each call.
    one_thread: float | None = records.field(default=None, digits=1)
    thread_each: float | None = records.field(default=None, digits=1)
    # Of the time in which any kernel ran: the share in which kernels of two streams or more ran at once.
    overlap: float | None = records.field(default=None, digits=4)


def streams(answer: Mapping[str, Any], overlapped: Mapping[str, Any]) -> tuple[Streams, ...]:
    """From the recorded parts "streams" and "overlap"; recordings of before have all of it in "streams"."""
    traces = {
        row["contexts"]: row["trace"]
        for part in (answer, overlapped)
        for row in part.get("streams", ())
        if "trace" in row
    }
    return tuple(
        Streams(
            contexts=row["contexts"],
            one_thread=row.get("one_thread_calls_s"),
            thread_each=row.get("thread_each_calls_s"),
            overlap=overlap(traces[row["contexts"]]) if row["contexts"] in traces else None,
        )
        for row in answer.get("streams", ())
    )


def overlap(kernels: Sequence[Sequence[int]]) -> float | None:
    """The share of the busy time in which kernels of two streams or more ran. Args: kernels: [start, end, stream]. None for none."""
    moments = sorted(
        [(start, 1, stream) for start, _, stream in kernels] + [(end, -1, stream) for _, end, stream in kernels]
    )
    running: dict[int, int] = {}
    busy = both = 0
    before = 0
    for moment, step, stream in moments:
        active = sum(count > 0 for count in running.values())
        busy += (moment - before) * (active > 0)
        both += (moment - before) * (active > 1)
        running[stream] = running.get(stream, 0) + step
        before = moment
    return both / busy if busy else None
