"""The records of a call's parts, and of what ran in it."""

from __future__ import annotations

import dataclasses
from typing import Literal

from tftrt_tools.base import records

Device = Literal["GPU", "host", ""]
# The groups of parts, in the order of a call's way; "rest" is what cannot be placed.
Group = Literal["input", "call", "graph", "engine", "op", "copy", "output", "rest"]
GROUPS: tuple[Group, ...] = ("input", "call", "graph", "engine", "op", "copy", "output", "rest")
# The stages of a call that are scaled apart: making the tensors, and all that follows.
Stage = Literal["input", "rest"]
STAGES: tuple[Stage, ...] = ("input", "rest")


@dataclasses.dataclass(frozen=True)
class Key:
    """What a part belongs to. engine: the engine op's name, "" for other parts."""

    group: Group
    device: Device
    engine: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch(records.Record):
    """A stretch of a call, and what it was spent on: fields as in Key. start, end: seconds from the call's beginning."""

    group: Group
    device: Device
    engine: str = ""
    start: float
    end: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpTime(records.Record):
    """An op outside of engines; means of a call."""

    name: str
    # The op's type, such as "Conv2D".
    type: str
    # The runs of the op in a call.
    runs: float
    # Seconds on the host, computing or launching kernels; the trace slows it.
    host_seconds: float
    # Seconds of its kernels, and how many there are.
    gpu_seconds: float
    kernels: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineRun(records.Record):
    """An engine op in a call; means of a call."""

    # The name of the engine op.
    name: str
    # The runs of its engine in a call.
    runs: float
    # The engine op on the host, in the trace, which slows it.
    host_seconds: float
    # Seconds of its kernels and copies, and how many there are.
    gpu_seconds: float
    kernels: float
    # From the first kernel's begin to the last one's end, the GPU was without work so long: the host launches too slowly, or it waits.
    gap_seconds: float
    # Kernels by their arithmetic, as execution.kernels names it: {arithmetic: seconds}.
    arithmetic: dict[str, float] = dataclasses.field(default_factory=dict)
    # How often TensorFlow ran its native segment instead, and how often an engine was built in the call.
    fallbacks: float = 0.0
    builds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copy(records.Record):
    """Copies of a kind; means of a call."""

    # The direction, such as "host to GPU".
    kind: str
    # The stage of the call that asked for them: "input", "copy" (while the graph ran) or "output".
    group: Group
    copies: float
    bytes: float
    seconds: float
