"""The jobs that look for the first tensor that departs, one for each kind of model. No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.tensorrt.exporting.result import Departure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """Where to look."""

    # The file that was written.
    onnx: str
    # The source's graph or program, as converting.Request has it; of an ONNX file the source itself.
    frozen: str = ""
    source: str = ""
    # As converting.Answer has it.
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # An .npz file with a call.
    inputs: str


@jobs.job
def saved_model() -> Callable[[Request], Departure | None]:
    """Search; None if no tensor departs that both have, or the source's graph cannot be run alone (it has tables)."""
    from tftrt_tools.tensorrt.exporting import bisect_job

    return bisect_job.job


@jobs.job
def program() -> Callable[[Request], Departure | None]:
    """Search; None if no tensor departs that both have."""
    from tftrt_tools.tensorrt.exporting import torch_bisect_job

    return torch_bisect_job.job


@jobs.job
def onnx_file() -> Callable[[Request], Departure | None]:
    """Search; None if no tensor departs that both have."""
    from tftrt_tools.tensorrt.exporting import onnx_bisect_job

    return onnx_bisect_job.job
