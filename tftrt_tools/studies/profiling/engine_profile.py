"""One engine in one call, taken apart, as data. `engines` makes it from a recording."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.models.kinds.plan.document import ENGINE as PLAN
from tftrt_tools.studies.profiling import layers
from tftrt_tools.studies.profiling.cuda_graph import CudaGraph, Streams
from tftrt_tools.studies.profiling.fusion import Fusion
from tftrt_tools.studies.profiling.layers import Role
from tftrt_tools.studies.profiling.layers_kernels import How
from tftrt_tools.studies.profiling.memory import Memory
from tftrt_tools.studies.profiling.peaks import Peaks
from tftrt_tools.studies.profiling.roofline import Bound

# Where a fact of a layer comes from: the log of the build, TensorRT's inspector (of a plan), the names of its kernels, or what the engine
# was asked for.
Source = Literal["build log", "inspector", "kernels", "asked for"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerProfile(records.Record):
    """A layer of an engine."""

    # TensorRT's, without the mark of a profile.
    name: str
    # The layer's role.
    role: Role
    # TensorRT's kind, such as "CaskConvolution"; "" where neither the log of the build nor the inspector tells.
    kind: str = ""
    # The nodes that it holds, of TensorFlow or of the ONNX file.
    nodes: tuple[str, ...] = ()
    # What it takes in a call: its kernels' time where TensorRT's ranges tell which they are, else IProfiler's.
    seconds: float
    # Of the engine's layers' seconds, 0 to 1.
    share: float = records.field(digits=5)
    # By IProfiler, median of the profiled calls, with the gap that its event makes; see EngineProfile.event_seconds.
    profiler_seconds: float
    # Of its kernels, by the trace without IProfiler, and their names; None where no trace tells.
    kernel_seconds: float | None = None
    kernels: tuple[str, ...] = ()
    # In which it computes: "INT8", "FP16", "TF32", "FP32", "" for a layer that does not multiply and of which no log tells.
    precision: str = ""
    precision_from: Source | None = None
    # "Half c8 → Float": types and formats of its first input and output; "" where neither the log of the build nor the inspector tells.
    formats: str = ""
    # TensorRT's number of the implementation, "" where neither the log of the build nor the inspector tells.
    tactic: str = ""
    # The shape of its first output.
    output_shape: tuple[int | None, ...] | None = None
    # Operations of its convolutions and matrix products, two for a multiplication with its addition.
    flops: int | None = None
    # Bytes that it reads and writes, weights included.
    bytes: int | None = None
    tflops: float | None = records.field(default=None, digits=3)
    gb_per_s: float | None = records.field(default=None, digits=1)
    bound: Bound | None = None
    # The time that the GPU's peaks allow, as a share of `seconds`; above 1 where the caches help.
    roof_share: float | None = records.field(default=None, digits=4)

    @property
    def short(self) -> str:
        """The name as tables show it: TensorRT's name without the engine's."""
        return layers.short(self.name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency(records.Record):
    """The latency of the engine without a profiler; medians in seconds."""

    # On the GPU, between CUDA events around one call; the process waits for it.
    single: float
    # On the GPU, where the next call always waits.
    in_a_row: float
    # Of the process: the call and the wait for it.
    wall: float
    # Of the process: the call that puts the kernels on the stream.
    enqueue: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineProfile(records.Record):
    """One engine, with one of its profiles, at one set of input shapes."""

    engine: str
    # The precision that the engine was built for.
    precision: str
    implicit_batch: bool
    # The optimization profile, from 0.
    profile: int
    # The number of the engine's profiles.
    profiles: int
    # {input or output of the engine: its shape}.
    shapes: dict[str, tuple[int, ...]]
    latency: Latency | None
    layers: tuple[LayerProfile, ...]
    # Of all layers together, and of all kernels, by the trace; seconds.
    layer_seconds: float
    kernel_seconds: float | None
    # What IProfiler adds to each layer that launches kernels: the median of the differences from their kernels.
    event_seconds: float | None = None
    # How the kernels were given to the layers; None without a trace.
    kernels_by: How | None
    # Seconds of kernels and copies of the trace that belong to no layer.
    other_kernel_seconds: float = 0.0
    # The fusion; None where the native segment was removed.
    fusion: Fusion | None = None
    memory: Memory | None = None
    cuda_graph: CudaGraph | None = None
    streams: tuple[Streams, ...] = ()
    peaks: Peaks | None = None
    # Remarks: what could not be measured, and why.
    notes: tuple[str, ...] = ()

    written_digits: typing.ClassVar[Mapping[str, int]] = {"agreement": 4}

    @property
    def of_a_plan(self) -> bool:
        """Whether it is that of a plan directory."""
        return self.engine == PLAN

    @property
    def agreement(self) -> float | None:
        """IProfiler's seconds over the kernels' by the trace, of the layers that have kernels and without what its events add; 1 where the
        two agree, None without a trace."""
        pairs = [(layer.profiler_seconds, layer.kernel_seconds) for layer in self.layers if layer.kernel_seconds]
        traced = sum(seconds for _, seconds in pairs)
        added = (self.event_seconds or 0.0) * len(pairs)
        return (sum(seconds for seconds, _ in pairs) - added) / traced if traced else None

    @property
    def gap_seconds(self) -> float | None:
        """Seconds of each call in a row in which no kernel runs, because the next one is not launched or has not begun."""
        if self.latency is None or self.kernel_seconds is None:
            return None
        return max(0.0, self.latency.in_a_row - self.kernel_seconds)

    def by_time(self) -> list[tuple[LayerProfile, float]]:
        """(layer, share of it and of all slower ones), the slowest first."""
        costly, total = [], 0.0
        for layer in sorted(self.layers, key=lambda layer: -layer.seconds):
            total += layer.share
            costly.append((layer, total))
        return costly
