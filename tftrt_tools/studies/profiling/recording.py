"""The jobs that record whole calls of models, those of SavedModels and those of plans. No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution.run import NamedCall


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded(records.Record):
    """A model to record. name: for messages and files; path: of its directory."""

    name: str
    path: str
    # A call of each shape; None where the model has no such signature.
    calls: tuple[NamedCall | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """The models to record, and where the traces go."""

    # Each has as many calls as the others.
    models: tuple[Recorded, ...]
    folder: str
    # Calls of a trace.
    traced: int
    # Numbers of callers at once, and how long each of them is timed.
    callers: tuple[int, ...]
    seconds: float
    # Of SavedModels: whether to refuse a process without a GPU; whether to keep the profiler's own traces beside the compact ones.
    gpu: bool = False
    raw: bool = False


# In the facts of a call, where other shapes were recorded beside it: a fleet.beside.Ran as a dict.
RAN = "ran"
# What facts.json in the folder holds: {"machine", "models": {name: facts}, "calls": [facts of each model's call at each shape], "failed":
# {step: errors.TftrtError.to_dict()}}.
Facts = dict[str, Any]


@jobs.job
def saved_models() -> Callable[[Request], Facts]:
    """Record calls of SavedModels in one process. Raises: TftrtError."""
    from tftrt_tools.studies.profiling.job import record

    return record.record


@jobs.job
def plan() -> Callable[[Request], Facts]:
    """Record calls of a plan directory, without TensorFlow."""
    from tftrt_tools.studies.profiling.job import plan_record

    return plan_record.record
