"""A model of any kind under load; the child's side of load.in_process."""

from __future__ import annotations

import pathlib

from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import kept_job, run_job
from tftrt_tools.models.execution.run import Indexed, LoadRequest
from tftrt_tools.models.execution.runner import Load, Wanted


def made(asked: LoadRequest, load: Load) -> Indexed:
    """Load a model, and make each call once. A kind's module of jobs has a function `make` that calls this with its own `load`.

    Args: load: of the kind.
    Returns: (function of a call's index that makes it, number of calls). Raises: TftrtError.
    """
    # One process may have several models under load.
    runner = kept_job.kept(load, asked.model, Wanted(label=asked.model), beside=True)
    ready = [runner.ready(call.signature, run_job.read_inputs(call)) for call in asked.calls]
    for number, (call, feed) in enumerate(zip(asked.calls, ready, strict=True)):
        progress.say("calling the model", number, len(ready))
        answers = feed()
        if asked.answers:
            run_job.keep_answers(call, answers, pathlib.Path(asked.answers) / f"{number}.npz")
    return lambda index: ready[index](), len(ready)
