"""Records the calls of each shape beside each other on the GPUs of this machine, and puts together what the recorders left.

A shape is recorded as ever: the model and its original in turns, in one process, on one GPU. Each recorder has a folder of its own for
traces, in that of all.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs, starting
from tftrt_tools.fleet import beside
from tftrt_tools.fleet.task import Given, Task
from tftrt_tools.studies.profiling.recording import RAN, Facts, Request


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """One shape. plan: whether the model is a plan directory. log_file: of the recorder. others: how many may run beside it. folder: the
    user's, for relative paths."""

    request: Request
    plan: bool
    log_file: str = ""
    others: int = 0
    folder: str = ""


@jobs.job
def shape() -> Callable[[Given], Facts]:
    """Record one shape, in a process of its own."""
    from tftrt_tools.studies.profiling import spread_job

    return spread_job.job


def record(fleet: beside.Opened, request: Request, plan: bool, log_file: str | None, load: float) -> Facts:
    """The facts of all shapes.

    Args: request: of all. load: average of the last minute before the fleet began. Returns: as of a recorder; the facts of a call have
    "ran" too, a beside.Ran as a dict. What could not be recorded is in "failed". Raises: UsageError; TftrtError where the fleet has gone.
    """
    names = {f"shape {number + 1}": number for number in range(len(request.models[0].calls))}
    tasks = {
        name: functools.partial(_task, name, one(request, number), plan, log_file) for name, number in names.items()
    }
    found, failed = dict[int, Facts](), dict[str, errors.TftrtError]()
    for done in beside.run(fleet, tasks):
        name, answer = done.outcome.task.name, done.outcome.answer
        if answer is None:
            error = done.error()
            if isinstance(error, errors.UsageError):
                raise error
            failed[name] = error
        else:
            number = names[name]
            found[number] = ran(answer, done.ran(), _folder(number))
    if not found:
        raise failed[min(failed, key=names.__getitem__)]
    return together([found[number] for number in sorted(found)], failed, load)


def one(request: Request, number: int) -> Request:
    """The request of one shape, with the number that it has among all, and a folder of its own."""
    models = (
        dataclasses.replace(
            model, calls=tuple(call if place == number else None for place, call in enumerate(model.calls))
        )
        for model in request.models
    )
    folder = pathlib.Path(request.folder, _folder(number))
    return dataclasses.replace(request, models=tuple(models), folder=str(folder))


def _folder(number: int) -> str:
    return f"shape-{number + 1}"


def _task(name: str, request: Request, plan: bool, log_file: str | None, others: int) -> Task:
    asked = Asked(
        request=request,
        plan=plan,
        log_file=f"{pathlib.Path(log_file).absolute()}.{name.replace(' ', '-')}" if log_file else "",
        others=others,
        folder=starting.current_folder(),
    )
    return Task(name=name, job=shape, request=asked.to_dict())


def ran(facts: Facts, where: beside.Ran, folder: str) -> Facts:
    """Facts with the place where they were found. Of the GPUs' use only that of its own GPUs is kept: others are busy with other shapes.
    Args: folder: the recorder's, in that of all."""
    own = {gpu["index"] for gpu in facts["machine"].get("gpus", ())}

    def placed(traced: Mapping[str, Any]) -> dict[str, Any]:
        return {**traced, **({"trace": f"{folder}/{traced['trace']}"} if traced.get("trace") else {})}

    def of_its_own(callers: Mapping[str, Any]) -> dict[str, Any]:
        return {**placed(callers), "gpu": [use for use in callers.get("gpu", ()) if not own or use["gpu"] in own]}

    calls = [
        {**placed(call), RAN: where.to_dict(), "callers": [of_its_own(callers) for callers in call["callers"]]}
        for call in facts["calls"]
    ]
    return {**facts, "calls": calls}


def together(parts: Sequence[Facts], failed: Mapping[str, errors.TftrtError], load: float) -> Facts:
    """The facts of several recorders as those of one: machine and models are those of the first, with the GPUs of all."""
    gpus = {gpu.get("uuid", gpu["index"]): gpu for facts in reversed(parts) for gpu in facts["machine"].get("gpus", ())}
    machine = dict(parts[0]["machine"]) if parts else {}
    models = {name: model for facts in reversed(parts) for name, model in facts["models"].items()}
    return {
        "machine": machine
        | ({"load": load, "gpus": sorted(gpus.values(), key=lambda gpu: gpu["index"])} if machine else {}),
        "models": models,
        "calls": [call for facts in parts for call in facts["calls"]],
        "failed": {step: error for facts in parts for step, error in facts["failed"].items()}
        | {name: error.to_dict() for name, error in failed.items()},
    }
