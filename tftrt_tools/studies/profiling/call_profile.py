"""The records of a whole call: how long it takes, and what that time is."""

from __future__ import annotations

import dataclasses
import typing

from tftrt_tools.base import records
from tftrt_tools.fleet.beside import Ran
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.kinds.plan.document import ENGINE as PLAN
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies.bench.gpu_watch import Use
from tftrt_tools.studies.profiling.call_records import Copy, Device, EngineRun, Group, OpTime, Stage, Stretch
from tftrt_tools.studies.profiling.overlap import Overlap
from tftrt_tools.studies.profiling.traces import Memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency(records.Record):
    """The latency of a call without a trace, from arrays on the host to arrays on the host. Seconds."""

    # Median and 90th percentile of all calls.
    p50: float
    p90: float
    # The medians of rounds, in order; the models took turns.
    rounds: tuple[float, ...]
    # Calls of all rounds.
    calls: int
    # The medians of its stages by the host's clock: making the tensors, calling, reading the answer. The GPU works behind the host, so
    # these are not the GPU's times.
    stages: tuple[float, float, float]

    @property
    def low(self) -> float:
        """The lowest median of a round."""
        return min(self.rounds)

    @property
    def high(self) -> float:
        """The highest median of a round."""
        return max(self.rounds)

    def text(self) -> str:
        """The latency in words, such as "1.234 ms (1.230 to 1.241)"."""
        return f"{1e3 * self.p50:.3f} ms ({1e3 * self.low:.3f} to {1e3 * self.high:.3f})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(records.Record):
    """A part of a call. All parts together are the measured latency."""

    # The name in tables and messages.
    name: str
    group: Group
    # What is busy: the GPU, or the host while the GPU is idle; "" for what cannot be placed.
    device: Device
    # The engine op that it belongs to, or "".
    engine: str = ""
    # Seconds of the measured call.
    seconds: float
    # Seconds of the traced call.
    traced_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Callers(records.Record):
    """Several callers at once, each calls again as soon as its answer is there."""

    callers: int
    # Answers a second of all, without a trace; 0.0 where that failed.
    per_second: float
    # Median and 90th percentile of a call, in seconds.
    p50: float
    p90: float
    # The overlap of the calls, from a trace; None for one caller, or where the trace failed.
    overlap: Overlap | None = None
    # The use of each GPU meanwhile.
    gpus: tuple[Use, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallProfile(records.Record):
    """One call of a signature, taken apart. Mean seconds of a call, if nothing else is said."""

    signature: str
    # {input: shape}, {input: dtype as NumPy names it}, {input: bytes}, and the same of outputs.
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    input_bytes: dict[str, int]
    output_shapes: dict[str, tuple[int, ...]]
    output_dtypes: dict[str, str]
    output_bytes: dict[str, int]
    latency: Latency
    # Of the traced calls that count, how many these are, and how many were traced.
    traced_seconds: float
    counted: int
    traced: int
    # The host's parts of each stage ("input": making the tensors, "rest") are those of the trace, times this; the GPU's those of the trace
    # times gpu_factors, which are 1 if the GPU's work fits into the measured time.
    host_factors: dict[Stage, float]
    gpu_factors: dict[Stage, float]
    # The parts in the order in which a call passes them; "not placed" last.
    parts: tuple[Part, ...]
    # The stretches of one traced call, in order.
    timeline: tuple[Stretch, ...]
    # The longest first.
    ops: tuple[OpTime, ...]
    engines: tuple[EngineRun, ...]
    copies: tuple[Copy, ...]
    # {arithmetic as execution.kernels names it: seconds of kernels}.
    arithmetic: dict[str, float]
    callers: tuple[Callers, ...]
    # Bytes of TensorFlow's allocator on the GPU during the trace; None without a GPU.
    memory: Memory | None = None
    # Seconds of the very first call; it loads kernels, and builds engines that are missing.
    first_seconds: float
    # The CallTrace of the first call and of a later one.
    first: CallTrace
    later: CallTrace
    # Remarks that readers of these figures need, a line each.
    notes: tuple[str, ...] = ()
    # Where it was measured, if other shapes were measured beside it; else None.
    ran: Ran | None = None

    written_too: typing.ClassVar[tuple[str, ...]] = ("gpu_seconds", "idle_seconds", "unplaced_share")

    @property
    def of_a_plan(self) -> bool:
        """Whether it is a call of a plan directory."""
        return PLAN in self.later.engine

    @property
    def rows(self) -> int:
        """The batch: the largest first dimension of the call's inputs; 1 for scalars."""
        return max((shape[0] for shape in self.shapes.values() if shape), default=1)

    @property
    def gpu_seconds(self) -> float:
        """The GPU computes or copies."""
        return sum(part.seconds for part in self.parts if part.device == "GPU")

    @property
    def idle_seconds(self) -> float:
        """The GPU is idle."""
        return sum(part.seconds for part in self.parts if part.device != "GPU")

    @property
    def unplaced_share(self) -> float:
        """The share of the call that cannot be placed, 0 to 1."""
        return (
            sum(part.seconds for part in self.parts if part.group == "rest") / self.latency.p50
            if self.latency.p50
            else 0.0
        )

    def text(self) -> str:
        """The call as messages show it: serving_default(x 1x8x8x1)."""
        return f"{self.signature}({shape_grammar.call_text(self.shapes)})"
