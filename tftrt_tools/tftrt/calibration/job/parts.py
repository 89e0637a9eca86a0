"""INT8 tables for engines that hold parts of segments that were measured: a tensor keeps its scale, whichever engine it is in.

The nodes keep their names when a segment is split, and scales belong to tensors. An input or output of a part was a tensor inside the
segment, or an input or output of that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import choices, errors
from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.models.savedmodel.job import graph, inline, segments
from tftrt_tools.tftrt.calibration.file import EngineTable
from tftrt_tools.tftrt.calibration.job import fitting, numbering, tensor_names
from tftrt_tools.tftrt.calibration.table import Table, is_numbered

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2


def tables(
    before: graph_pb2.GraphDef,
    made: Sequence[EngineTable],
    after: graph_pb2.GraphDef,
    wanted: Iterable[str],
    *,
    dynamic: bool,
    method: choices.Method,
) -> tuple[EngineTable, ...]:
    """Tables of the engines of a graph, from those of another division of the same nodes into engines.

    Args: before: the graph whose engines have the tables `made`, at least one. after: the other one. wanted: its engines that need a
      table. dynamic: of the builds. method: how constants get a scale.
    Returns: (EngineTable, …), one for each of `wanted`. A segment that is the same keeps its table.
    Raises: TftrtError for an engine with an input or output of which no table says anything.
    """
    old, new = _Divided(before), _Divided(after)
    by_segment = {one.segment: one for one in made if one.segment}
    digests = segments.engine_digests(after, names=True)
    known: _Known | None = None
    result = []
    for engine in wanted:
        if same := by_segment.get(digests[engine]):
            result.append(dataclasses.replace(same, engine=engine))
            continue
        known = known or _Known(old, made, dynamic)
        segment = new.native[engine]
        build = segment.function, dynamic, segment.shapes
        part = _part(engine, new, known, made[0], tensor_names.names(*build))
        part = dataclasses.replace(part, segment=digests[engine])
        result.append(numbering.settled(fitting.fitted(part, *build, method), *build, method))
    return tuple(result)


class _Divided:
    """A graph with engine ops. native: {engine: graph.Segment}."""

    def __init__(self, graph_def: graph_pb2.GraphDef) -> None:
        self.native = graph.native_segments(graph_def)
        inlined, self._inner = inline.inline_segments(graph_def, own_names=True)
        self._results = {node.name: node.input for node in inlined.node if node.name in self._inner}

    def undivided(self, engine: str, tensor: str) -> str:
        """A segment's tensor, named as in the graph without engines."""
        tensor = self._inner[engine][tensor]
        while (name := tensor.partition(":")[0]) in self._results:
            tensor = self._results[name][int(tensor.partition(":")[2] or 0)]
        return tensor

    def holders(self, tensor: str) -> list[tuple[str, str]]:
        """[(engine, its segment's tensor)] of a tensor of the graph without engines."""
        return [
            (engine, inner)
            for engine, tensors in self._inner.items()
            for inner in tensors
            if self.undivided(engine, inner) == tensor
        ]


class _Known:
    """What tables say of the tensors of the graph without engines."""

    def __init__(self, divided: _Divided, made: Sequence[EngineTable], dynamic: bool) -> None:
        self._divided, self._made, self._dynamic = divided, {one.engine: one for one in made}, dynamic
        # {tensor: (the table, its name there)}.
        self._lines: dict[str, tuple[EngineTable, str]] = {}
        for engine, table in self._made.items():
            native = divided.native[engine]
            for line in tensor_names.names(native.function, dynamic, native.shapes):
                if line.tensor and not is_numbered(line.name):
                    self._lines.setdefault(divided.undivided(engine, line.tensor), (table, line.name))

    def line(self, tensor: str, passed_on: bool) -> tuple[EngineTable, str] | None:
        """The table that knows a tensor, and its name there; None if none does. Args: passed_on: look for those, too, that only pass
        another's values on."""
        if tensor not in self._lines and passed_on:
            for engine, inner in self._divided.holders(tensor):
                native = self._divided.native[engine]
                names = tensor_names.holding([inner], native.function, self._dynamic, native.shapes)
                if engine in self._made and (own := sorted(name for name in names if not is_numbered(name))):
                    self._lines[tensor] = (self._made[engine], own[0])
                    break
        return self._lines.get(tensor)


def _part(
    engine: str, divided: _Divided, known: _Known, like: EngineTable, named: Sequence[tensor_names.NamedTensor]
) -> EngineTable:
    """The lines of an engine's table that are named after nodes, inputs and outputs."""
    scales: dict[str, float] = {}
    left_out: list[tuple[str, str]] = []
    ranges: dict[str, dict[str, float]] = {}
    for line in named:
        if line.tensor is None or is_numbered(line.name):
            continue
        end = line.name.startswith((engine_op.INPUT, engine_op.OUTPUT))
        found = known.line(divided.undivided(engine, line.tensor), passed_on=end)
        table, name = found or (like, "")
        if name in table.table.scales:
            scales[line.name] = table.table.scales[name]
        elif name in dict(table.left_out):
            left_out.append((line.name, dict(table.left_out)[name]))
        elif end:
            raise errors.TftrtError(
                f"{engine} would get {line.tensor.split(':')[0]} from outside or give it, and no table says its range"
                if not found
                else f"the table of {table.label} has no line for {name}",
                "calibrate again: `tftrt convert` with the data",
            )
        if name in (table.ranges or {}):
            ranges[line.name] = (table.ranges or {})[name]
    return dataclasses.replace(
        like, engine=engine, table=Table(like.table.header, scales), left_out=tuple(left_out), ranges=ranges or None
    )
