"""The job of `tftrt inspect`: what its child process takes and gives. No TensorFlow here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.savedmodel.inspection import Inspection
from tftrt_tools.tftrt.conversion.plan import Plan
from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectRequest(records.Record):
    """What to look at, and for a model that is not converted yet, with which settings."""

    # The SavedModel directory.
    model: str
    settings: Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspected(records.Record):
    """The answer: either a plan or the contents of a converted model."""

    # What TF-TRT would do with a model that is not converted yet.
    plan: Plan | None = None
    # What a converted model holds.
    inspection: Inspection | None = None


@jobs.job
def inspect() -> Callable[[InspectRequest], Inspected]:
    """Look at a SavedModel."""
    from tftrt_tools.tftrt.conversion import inspect_job

    return inspect_job.job
