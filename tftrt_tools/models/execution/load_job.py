"""A model of any kind under load; the child's side of load.in_process."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import run_job
from tftrt_tools.models.execution.runner import Load, Wanted

_HELD = contextlib.ExitStack()


def made(request: dict[str, Any], load: Load) -> tuple[Callable[[int], object], int]:
    """Load a model, and make each call once. A kind's module of jobs has a function `make` that calls this with its own `load`.

    Args: request: {"model": path, "calls": of run.named, of one signature, "answers": folder for the first
      answers, or ""}. load: of the kind.
    Returns: (function of a call's index that makes it, number of calls). Raises: TftrtError.
    """
    # Closed with the process: a context that nothing refers to would close at once.
    runner = _HELD.enter_context(load(request["model"], Wanted(label=request["model"])))
    ready = [runner.ready(call["signature"], run_job.read_inputs(call)) for call in request["calls"]]
    for number, (call, one) in enumerate(zip(request["calls"], ready, strict=True)):
        progress.say("calling the model", number, len(ready))
        answers = one()
        if request["answers"]:
            run_job.keep_answers(call, answers, pathlib.Path(request["answers"]) / f"{number}.npz")
    return lambda index: ready[index](), len(ready)
