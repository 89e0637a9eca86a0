"""The graph of a signature as data: which op reads which, and which engine holds it. `job.call_graph` makes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tftrt_tools.base import records


@dataclasses.dataclass(frozen=True)
class GraphNode(records.Record):
    """An op that computes something. engine: the name of the engine op that holds it, "" for one that TensorFlow runs; inputs: names of the
    nodes that it reads, through ops that only pass values on."""

    name: str
    op: str
    engine: str
    inputs: tuple[str, ...]


def of(rows: Iterable[tuple[str, str, str, Iterable[str]]]) -> tuple[GraphNode, ...]:
    """From the rows of `job.call_graph`: (name, op, engine, inputs) each."""
    return tuple(GraphNode(name, op, engine, tuple(inputs)) for name, op, engine, inputs in rows)
