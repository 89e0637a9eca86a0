"""Jobs that ask native code about this machine. Each runs in a child process, because native code may end the process."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.base.stack.gpus import Driver


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """The request of `machine`."""

    # Names for the system's loader.
    libraries: tuple[str, ...]
    # The most time for everything.
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found(records.Record):
    """What a separate process found out about a library; fields as in libraries.Library."""

    path: str | None = None
    version: str | None = None
    error: str = ""
    died: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(records.Record):
    """The libraries in the order in which they were asked for, and the GPUs."""

    libraries: tuple[Found, ...]
    gpus: Driver


@jobs.job
def driver() -> Callable[[None], Driver]:
    """Ask the driver for its GPUs."""
    from tftrt_tools.base.stack import nvml_job

    return nvml_job.query


@jobs.job
def gpu_states() -> Callable[[None], list[dict[str, Any]]]:
    """Ask the driver for the state of the GPUs that this process may use."""
    from tftrt_tools.base.stack import gpu_state_job

    return gpu_state_job.query


@jobs.job
def machine() -> Callable[[Request], Machine]:
    """Load libraries, and ask the driver for its GPUs."""
    from tftrt_tools.base.stack import probe_job

    return probe_job.machine


@jobs.job
def tensorflow() -> Callable[[str], None]:
    """Import TensorFlow and ask it about TensorRT and GPUs. The request is the file that gets the answers, as facts.Asked has them."""
    from tftrt_tools.base.stack import probe_job

    return probe_job.tensorflow
