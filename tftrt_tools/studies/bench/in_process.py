"""The jobs that make calls on a model in process: under load, by the kind of the model, and traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution.run import Indexed, LoadRequest, Runtime
from tftrt_tools.models.execution.timeline import Split


@jobs.job
def as_served() -> Callable[[LoadRequest], Indexed]:
    """Makes calls on a SavedModel, which is run as TensorFlow Serving runs it, because the two are compared."""
    from tftrt_tools.studies.bench import in_process_job

    return in_process_job.make


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inside(records.Record):
    """What happens inside of calls."""

    # Mean of a call that is not traced.
    plain_seconds: float
    split: Split


@jobs.job
def inside() -> Callable[[LoadRequest], Inside]:
    """Makes each call of a SavedModel, times them, and traces them. Raises: TftrtError."""
    from tftrt_tools.studies.bench import inside_job

    return inside_job.split


def maker(runtime: Runtime) -> jobs.Job[LoadRequest, Indexed]:
    """For load.function_load. It raises TftrtError where the model cannot be loaded or does not answer."""
    return runtime.under_load or as_served
