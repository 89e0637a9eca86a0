"""The job that simulates the rounding of single nodes: what its child process takes and gives. No TensorFlow here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tftrt_tools.accuracy.harm import SignatureHarm
from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.tftrt.calibration.file import EngineTable
from tftrt_tools.tftrt.conversion.converting import TablesFrom
from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateRequest(records.Record):
    """What is rounded, and on which inputs."""

    # The SavedModel directory.
    model: str
    # Of the conversion, INT8 or FP16.
    settings: Settings
    # Without data and table the ranges are those of the scored inputs.
    int8: TablesFrom = TablesFrom()
    # {signature: .npz paths of the inputs to score}.
    calls: Mapping[str, tuple[str, ...]]
    # Regular expression of the nodes to round alone: "" for all, None for none.
    nodes: str | None = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulated(records.Record):
    """The result of the simulation."""

    signatures: tuple[SignatureHarm, ...]
    # Of INT8 engines, with the ranges that were simulated.
    tables: tuple[EngineTable, ...]
    # The method of the ranges, as a calibration file names it.
    method: str
    # The GPU, by execution.job.gpu.seen; None if none is visible.
    gpu: dict[str, str] | None


@jobs.job
def simulate() -> Callable[[SimulateRequest], Simulated]:
    """Round each node alone, all together, and all but the worst."""
    from tftrt_tools.accuracy import simulation_job

    return simulation_job.job
