"""The child's side of `repeats`: one model, loaded once, and timed block by block when its turn comes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from tftrt_tools.models.execution import run_job
from tftrt_tools.models.execution.job import timing
from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.studies.tuning import turns_job

# The model lives as long as the process: engines go when their model goes.
_HELD = contextlib.ExitStack()
_READY: list[Ready] = []


def job(request: Mapping[str, Any]) -> Any:
    """One request.

    Args: request: {"do": "load", "model", "calls": of run.named, "tags", "from_host"}, and then {"do": "time", "counts": [calls of a
      block]}.
    Returns: [calls of a block] for each call; then [[seconds of each call of its block]]. Raises: TftrtError.
    """
    if request["do"] == "time":
        return [turns_job.block(one, count) for one, count in zip(_READY, request["counts"], strict=True)]
    # A process that loads again has only the last model.
    _READY.clear()
    _HELD.close()
    model = _HELD.enter_context(runner_job.load(request["model"], Wanted(label="a build", tags=tuple(request["tags"]))))
    for call in request["calls"]:
        inputs = run_job.read_inputs(call)
        _READY.append(
            _whole(model, call["signature"], inputs) if request["from_host"] else model.ready(call["signature"], inputs)
        )
        for _ in range(timing.WARM_UP_CALLS):
            _READY[-1]()
    return [turns_job.count(one) for one in _READY]


def _whole(model: runner_job.Loaded, signature: str, inputs: Arrays) -> Ready:
    """A call from arrays on the host to arrays on the host."""
    make, answer, read = model.stages(signature, inputs)
    return lambda: read(answer(make()))
