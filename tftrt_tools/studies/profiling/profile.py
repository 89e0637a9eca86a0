"""The profile of a model: the document that is kept with it, and that diagnosis reads."""

from __future__ import annotations

import dataclasses
import typing

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel.passport import Stamped
from tftrt_tools.studies.profiling.call_graph import GraphNode
from tftrt_tools.studies.profiling.call_profile import CallProfile
from tftrt_tools.studies.profiling.engine_profile import EngineProfile
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

# The profile's name in a model's passport.
FILE = "profile.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuState(records.Record):
    """A GPU before the measurement; None where NVML does not tell."""

    index: int
    name: str = ""
    uuid: str = ""
    # Whether the GPU is divided into MIG slices.
    mig: bool | None = None
    # Clocks of the multiprocessors and the memory, now and at most.
    sm_mhz: int | None = None
    most_sm_mhz: int | None = None
    memory_mhz: int | None = None
    most_memory_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    temperature_c: int | None = None
    # Percent.
    utilization: int | None = None
    memory_mib: int | None = None
    used_mib: int | None = None
    # Reasons for a lowered clock, in words; idleness does not count.
    slowed: tuple[str, ...] = ()
    # The link, such as "gen 5 x16".
    pcie: str = ""
    # How many processes compute on it, all of others.
    processes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(records.Record):
    """The machine and the process that measured."""

    # Name of the processor, cores that the process may use, and the load average of the last minute before.
    cpu: str
    cpus: int
    load: float
    # Of the GPU that ran it: {"name", "compute_capability", "driver"}; None without one.
    gpu: dict[str, str] | None
    gpus: tuple[GpuState, ...]
    # {"tensorflow", "tensorrt", "cuda", "cudnn"}.
    versions: dict[str, str]
    # Whether TensorFlow, or the plan, may compute float32 in TF32.
    tf32: bool
    # TensorFlow's threads, 0 for its own choice, and without TensorFlow.
    inter_op: int
    intra_op: int
    # TensorFlow's setting of XLA for everything, "" for none.
    jit: str
    # Environment variables of TensorFlow, CUDA and NVIDIA.
    environment: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(records.Record):
    """A model that was called, and its calls."""

    # Its path as the user named it, and "sha256:…" of its files.
    model: str
    digest: str
    # Seconds to load it.
    load_seconds: float
    # Functions of its graph that are compiled by XLA (jit_compile), and some of their names.
    xla_count: int = 0
    xla_functions: tuple[str, ...] = ()
    # The calls at each shape.
    calls: tuple[CallProfile, ...] = ()
    # {signature: its ops}, of those whose graph is not too large to be looked at.
    graph: dict[str, tuple[GraphNode, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile(Stamped):
    """Where the time of a model's calls goes."""

    model: Side
    # The model before conversion, if it was given.
    original: Side | None = None
    machine: Machine
    # Whether engines could run: False for a profile of a machine without a GPU.
    on_gpu: bool
    # Each engine, or the plan, with each of its profiles, alone and outside TensorFlow.
    engines: tuple[EngineProfile, ...] = ()
    # What the conversion made of each signature, from the manifest; () without one.
    signatures: tuple[SignatureResult, ...] = ()
    # The settings of the conversion, from the manifest.
    settings: dict[str, object] = dataclasses.field(default_factory=dict)
    # What could not be measured, and remarks on the whole, a line each.
    notes: tuple[str, ...] = ()

    document: typing.ClassVar[str] = "profile"

    @property
    def of_a_plan(self) -> bool:
        """Whether it is that of a plan directory."""
        return any(call.of_a_plan for call in self.model.calls)
