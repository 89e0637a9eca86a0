"""Runs a plan against a function instead of a server, in a worker process that may load TensorFlow.

    records = function_load.run(make, Request(model="…"), Plan(concurrency=1, seconds=10))

`make` is a job that answers with (function of an index, number of indices). It is called once in the worker. The function does one
inference and returns when that is done. Each request under way has a thread of its own.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs
from tftrt_tools.servers.load import assignment, generator, run_record
from tftrt_tools.servers.load.load_plan import Plan

# A function of an index, and how many indices there are.
Indexed: TypeAlias = tuple[Callable[[int], object], int]
Request = TypeVar("Request")
LOAD_SECONDS = 1800.0


def run(
    factory: jobs.Job[Request, Indexed],
    request: Request,
    plan: Plan,
    env: Mapping[str, str] | None = None,
    on_progress: generator.Listener | None = None,
    on_ready: Callable[[], object] | None = None,
    name: str = "the function",
    call_s: float = LOAD_SECONDS,
    first_s: float = LOAD_SECONDS,
) -> run_record.Records:
    """Drive a function as `plan` says, in one process. Answers are not compared; `factory` can wrap the function for that.

    Args: factory: the job. request: its argument. env: environment variables of the worker.
      on_progress: as for generator.run. on_ready: called when `factory` has returned and before the first request; what it raises ends
      the run. name: of what is run, for messages. call_s: seconds that a call may take; one that takes longer hangs, and ends the
      run. first_s: the same for each first call, which `factory` makes.

    Returns: as generator.run. What the function raises is counted with the code UNKNOWN. Processor time and lag say nothing here,
    because they include the function's own work: only late sends can show that the generator was the limit.

    Raises: TftrtError where `factory` fails.
    """
    plan = dataclasses.replace(plan, processes=1)
    under_way = max(plan.concurrency, plan.warm_up_concurrency, plan.max_outstanding if plan.kind == "open" else 1)
    work = assignment_of(factory, request, under_way, generator.offsets(plan))
    return generator.driven(
        [work],
        name=name,
        connect_s=LOAD_SECONDS,
        timeout_s=call_s,
        first_s=first_s,
        payload=None,
        plan=plan,
        on_progress=on_progress,
        env=env,
        in_process=True,
        on_ready=on_ready,
    )


def assignment_of(
    factory: jobs.Job[Request, Indexed], request: Request, threads: int, offsets: npt.ArrayLike = ()
) -> assignment.Assignment:
    """The Assignment of a worker that calls what `factory` makes, `threads` at a time. offsets: of an open loop, int64 ns."""
    head = {
        "factory": factory.target,
        "request": records.plain(request),
        "threads": threads,
        "check_every": 0,
        "process": 0,
        "processes": 1,
    }
    return assignment.Assignment(head=head, requests=(), expected=(), offsets=np.asarray(offsets, np.int64), tls=None)
