"""The jobs that take engines and plans apart, each in a process of its own. No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.studies.profiling.engine_graph import Graph

_Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """A part to measure of a model. part: a key of plan.PARTS or plan.OF_A_PLAN."""

    # A SavedModel or a plan directory.
    model: str
    part: str = ""
    # {engine: shape of each of its inputs}; an engine that is left out runs at what its profiles were tuned for.
    shapes: Mapping[str, tuple[_Shape, ...]] = dataclasses.field(default_factory=dict)
    # {engine: batches to measure, too}.
    rows: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    # For a plan directory: {input: shape} to measure, too.
    calls: tuple[Mapping[str, _Shape], ...] = ()


@dataclasses.dataclass(frozen=True)
class Sized(records.Record):
    """An engine with the shapes of a call. shapes: {input of the engine: shape}."""

    engine: str
    shapes: Mapping[str, _Shape]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentsRequest(records.Record):
    """Which segments of a SavedModel, each as often as it has sizes."""

    model: str
    engines: tuple[Sized, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxRequest(records.Record):
    """An ONNX file. calls: {input: its shape in a call}; other tensors in them do not matter."""

    onnx: str
    calls: tuple[Mapping[str, _Shape], ...]


@jobs.job
def measure() -> Callable[[Request], list[dict[str, Any]]]:
    """Measure one kind of facts through TensorRT alone: {"engine", "record", "profile", "shapes", …facts, "errors": {what: why}} of each
    engine and profile."""
    from tftrt_tools.studies.profiling.job import plan_job

    return plan_job.record


@jobs.job
def segments() -> Callable[[SegmentsRequest], tuple[Graph, ...]]:
    """The native segments of engines with the sizes of calls; without nodes where one was removed."""
    from tftrt_tools.studies.profiling.job import plan_graph

    return plan_graph.describe


@jobs.job
def onnx_file() -> Callable[[OnnxRequest], tuple[Graph, ...]]:
    """An ONNX file with the sizes of each call."""
    from tftrt_tools.studies.profiling.job import plan_onnx

    return plan_onnx.describe
