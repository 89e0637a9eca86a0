"""The job that makes calls on models in one process; for load.function_load."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution.run import Indexed, LoadRequest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(records.Record):
    """A model, and the target of its job of bench.in_process.maker."""

    job: str
    load: LoadRequest


@dataclasses.dataclass(frozen=True)
class Request(records.Record):
    """The models, with equally many calls."""

    sides: tuple[Side, ...]


@jobs.job
def make() -> Callable[[Request], Indexed]:
    """Loads them. The indices of a model's calls come before those of the next one's."""
    from tftrt_tools.studies.regression import in_process_job

    return in_process_job.make
