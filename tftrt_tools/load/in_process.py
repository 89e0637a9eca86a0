"""The same plan against a function instead of a server: in a worker process that may load TensorFlow.

    records = in_process.run("package.module:make", {"model": "…"}, Plan("closed", concurrency=1, seconds=10))

`make` is called once in the worker with the request (a JSON value). It returns (function of an index, number of indices); the function does
one inference and returns when that is done. Each request under way has a thread of its own.
"""

import concurrent.futures
import dataclasses
import importlib

import numpy as np

from tftrt_tools.load import generator, job

_LOAD_SECONDS = 1800.0
_UNKNOWN = 2


def run(factory, request, plan, env=None, on_progress=None, on_ready=None):
    """Drive a function as `plan` says; in one process, and answers are not compared: `factory` can wrap the function for that.

    Args: factory: "package.module:function". request: its argument, a JSON value. plan: generator.Plan. env: environment variables of the
      worker, {name: text}. on_progress: as for generator.run. on_ready: function without arguments, called when `factory` has returned and
      before the first request; what it raises ends the run.

    Returns: record.Records, as generator.run does. What the function raises is counted with the code UNKNOWN. Processor time and lag say
    nothing here, since the function's own work is in them: only late sends can show that the generator was the limit.

    Raises: TftrtError where `factory` fails.
    """
    plan = dataclasses.replace(plan, processes=1)
    under_way = max(plan.concurrency, plan.warm_up_concurrency, plan.max_outstanding if plan.kind == "open" else 1)
    work = job_of(factory, request, under_way, generator.offsets(plan))
    return generator.driven([work], factory, _LOAD_SECONDS, _LOAD_SECONDS, None, plan, on_progress, env, in_process=True,
                            on_ready=on_ready)


def job_of(factory, request, threads, offsets=()):
    """The job.Job of a worker that calls what `factory` makes, `threads` at a time. offsets: of an open loop, int64 ns."""
    head = {"factory": factory, "request": request, "threads": threads, "check_every": 0, "process": 0, "processes": 1}
    return job.Job(head, (), (), np.asarray(offsets, np.int64), None)


class Functions:
    """What a worker calls in place of channels. `explain` as drive.Recorder takes it."""

    def __init__(self, head):
        module, name = head["factory"].split(":")
        function, self.count = getattr(importlib.import_module(module), name)(head["request"])
        self._threads = concurrent.futures.ThreadPoolExecutor(head["threads"])
        self.calls = [lambda index: self._threads.submit(function, index)]

    def explain(self, error):
        return _UNKNOWN, "UNKNOWN", f"{type(error).__name__}: {error}"

    def close(self):
        self._threads.shutdown(wait=False, cancel_futures=True)
