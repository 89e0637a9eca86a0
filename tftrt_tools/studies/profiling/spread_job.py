"""The worker's side of `spread`."""

import os
import shutil

from tftrt_tools.base import errors
from tftrt_tools.fleet.task import Given
from tftrt_tools.studies.profiling import measure
from tftrt_tools.studies.profiling.recording import Facts
from tftrt_tools.studies.profiling.spread import Asked


def job(given: Given) -> Facts:
    """Record. Raises: UsageError; TftrtError where nothing was recorded, or a step failed and others may have been the reason."""
    asked = Asked.from_dict(given.request)
    if asked.folder:
        os.chdir(asked.folder)
    # What an earlier try has left would count for this one's.
    shutil.rmtree(asked.request.folder, ignore_errors=True)
    facts = measure.recorded(asked.request, asked.plan, asked.log_file or None)
    if asked.others and facts["failed"]:
        step, error = next(iter(facts["failed"].items()))
        raise errors.TftrtError(f"{step}: {error['cause']}", error["mend"])
    return facts
