"""What tests of SavedModels run in a child process."""

import dataclasses
import gc
from collections.abc import Callable

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.studies.tuning import repeats


@dataclasses.dataclass(frozen=True)
class Held(records.Record):
    """loaded: models that are still there after they were loaded. seconds: of two calls, by the process that is asked later."""

    loaded: int
    seconds: tuple[float, ...]


@jobs.job
def held() -> Callable[[repeats.Load], Held]:
    """Load a model as `build --repeat` and `diagnose --try` do."""
    return _held


def _held(asked):
    from tftrt_tools.models.kinds.savedmodel import runner_job
    from tftrt_tools.studies.tuning import repeats_job

    for _ in range(2):  # the second takes the place of the first
        repeats_job.job(repeats.Request(load=asked))
    gc.collect()
    loaded = sum(isinstance(one, runner_job.Loaded) for one in gc.get_objects())
    return Held(loaded, repeats_job.job(repeats.Request(counts=(2,))).seconds[0])
