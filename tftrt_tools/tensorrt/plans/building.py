"""What the child that builds plans is asked (`build_job`). No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.engine_cache.store import Place
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.tensorrt.plans.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(records.Record):
    """A machine that can build plans. name, compute_capability, driver: of its GPU; tensorrt: version."""

    name: str
    compute_capability: str
    driver: str
    tensorrt: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpu(records.Record):
    """What the GPU is, as device.seen says it. driver: its version."""

    name: str
    compute_capability: str
    driver: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """A plan to build."""

    # The file, and where the plan and its timing cache go.
    onnx: str
    plan: str
    timing_cache: str
    profiles: tuple[Profile, ...]
    # Its plugins are the libraries to load.
    settings: Settings
    # {tensor: the largest |x| to keep}.
    ranges: Mapping[str, float]
    # The engine cache; None for none.
    cache: Place | None
    # The model, for the cache's record.
    origin: str
    # Whether everything is logged.
    verbose: bool
    # The time for TensorRT's builds of the plan, from the first on; None for no bound.
    minutes: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seconds(records.Record):
    """How long it took to parse the file, and to build the plan."""

    parse: float
    build: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """A plan that lies in its place. tensorrt: the version."""

    tensorrt: str
    gpu: Gpu
    # {name: the engine's dtype}.
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    # Those that each library of plugins added.
    creators: tuple[tuple[str, ...], ...]
    # Of the builder.
    flags: tuple[str, ...]
    # Tensors that got a range, and layers that the file holds in FP32.
    ranged: int
    held: int
    # Tensors of a spectrum that the plan hands on in FP16 nevertheless.
    narrowed: tuple[str, ...] = ()
    # Reshapes that TensorRT reads otherwise than they are.
    misread: tuple[str, ...] = ()
    # Where the plan came from the cache, `build` is of another process.
    seconds: Seconds
    cached: bool
    # Bytes of the timing cache that the build began with.
    known_timings: int
    # What the inspector says of the layers: TensorRT's own JSON.
    layers: Mapping[str, object]
    # Why the engine cache did not work, or "".
    cache_problem: str


def late(minutes: float) -> errors.TftrtError:
    """The error where the time for building was over before there was a plan."""
    return errors.TftrtError(
        f"the plan was not ready when --max_build_minutes={minutes:g} were over",
        "give more; what kernels took was not kept",
    )


@jobs.job
def build() -> Callable[[Request], Answer]:
    """The build of a plan. Raises: TftrtError."""
    from tftrt_tools.tensorrt.plans import build_job

    return build_job.job


@jobs.job
def check() -> Callable[[None], Machine]:
    """Where a plan would be built. Raises: TftrtError where none can be."""
    from tftrt_tools.tensorrt.plans import build_job

    return build_job.check
