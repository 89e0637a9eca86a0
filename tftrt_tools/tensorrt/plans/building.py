"""What the child that builds plans is asked (`build_job`). No runtime is imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(records.Record):
    """A machine that can build plans. name, compute_capability, driver: of its GPU; tensorrt: version."""

    name: str
    compute_capability: str
    driver: str
    tensorrt: str


@jobs.job
def check() -> Callable[[None], Machine]:
    """Where a plan would be built. Raises: TftrtError where none can be."""
    from tftrt_tools.tensorrt.plans import build_job

    return build_job.check
