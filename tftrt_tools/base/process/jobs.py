"""Jobs: functions that run in a child process (`child`), with the types of what they take and give.

    @jobs.job
    def convert() -> Callable[[Request], Answer]:
        \"\"\"The conversion itself.\"\"\"
        from tftrt_tools.tftrt.conversion import convert_job

        return convert_job.job

    answer = convert.run(Request(model=path), env=ENV).result  # an Answer

The decorated function is called in the child alone, so the parent never loads what it imports. Request and Answer are what JSON takes
(None, bool, int, float, str, lists and mappings of them) or records (`records`). Both have to be importable where the job is declared, not
for type checkers alone.

Several jobs can share a process, and so the TensorFlow that it has loaded:

    with jobs.process(env=ENV) as process:
        facts = process.call(read, path).result
        process.call(write, Request(facts=facts, path=path))
"""

from __future__ import annotations

import contextlib
import functools
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from tftrt_tools.base import records
from tftrt_tools.base.process import child

Request = TypeVar("Request")
Answer = TypeVar("Answer")


def job(entry: Callable[[], Callable[[Request], Answer]]) -> Job[Request, Answer]:
    """Declare a job. Args: entry: imports and returns the function; its annotation names the types."""
    return Job(entry)


class Job(Generic[Request, Answer]):
    """A function that runs in a child process; made by `job`. The child calls it with a JSON value and gets one."""

    def __init__(self, entry: Callable[[], Callable[[Request], Answer]]) -> None:
        self._entry = entry
        functools.update_wrapper(self, entry)

    @property
    def target(self) -> str:
        """The name "module:name" by which the child finds this object."""
        return f"{self._entry.__module__}:{self._entry.__qualname__}"

    def run(
        self,
        request: Request,
        env: Mapping[str, Any] | None = None,
        python: str | None = None,
        timeout: float | None = None,
        log_file: str | os.PathLike[str] | None = None,
        silence: child.Silence | None = None,
    ) -> child.Outcome[Answer]:
        """Run it in a child process of its own. Arguments and errors as of `child.run`. Returns: the answer, and the child's log."""
        outcome = child.run(self.target, records.plain(request), env, python, timeout, log_file, silence)
        return child.Outcome(self.read_answer(outcome.result), outcome.log)

    @contextlib.contextmanager
    def worker(
        self,
        env: Mapping[str, Any] | None = None,
        log_file: str | os.PathLike[str] | None = None,
        python: str | None = None,
    ) -> Iterator[Worker[Request, Answer]]:
        """A child process that answers many calls. Arguments as of `child.worker`."""
        with child.worker(self.target, env, log_file, python) as process:
            yield Worker(self, process)

    def load(self) -> Callable[[Request], Answer]:
        """Import the function; for the child."""
        return self._entry()

    def __call__(self, request: object) -> object:
        """Call the function; for the child. Args: request: JSON value of a Request. Returns: that of the Answer."""
        return records.plain(self.load()(self.read_request(request)))

    def read_request(self, value: object) -> Request:
        """The Request of a JSON value."""
        request: Request = records.structured(value, self._types[0])
        return request

    def read_answer(self, value: object) -> Answer:
        """The Answer of a JSON value."""
        answer: Answer = records.structured(value, self._types[1])
        return answer

    @functools.cached_property
    def _types(self) -> tuple[Any, Any]:
        """The types of the request and of the answer."""
        (request,), answer = typing.get_args(typing.get_type_hints(self._entry)["return"])
        return request, answer


@contextlib.contextmanager
def process(
    env: Mapping[str, Any] | None = None, log_file: str | os.PathLike[str] | None = None, python: str | None = None
) -> Iterator[Process]:
    """A child process that runs the jobs that it is told, one after the other, and keeps what they loaded. It imports a job with its first
    call. Arguments as of `child.worker`."""
    with child.worker(f"{__name__}:told", env, log_file, python) as started:
        yield Process(started)


class Process:
    """A started child process that runs any job; made by `process`."""

    def __init__(self, started: child.Worker) -> None:
        self._started = started

    def call(
        self,
        called: Job[Request, Answer],
        request: Request,
        timeout: float | None = None,
        silence: child.Silence | None = None,
    ) -> child.Outcome[Answer]:
        """As `child.Worker.call`, with the types of the job."""
        outcome = self._started.call({"job": called.target, "request": records.plain(request)}, timeout, silence)
        return child.Outcome(called.read_answer(outcome.result), outcome.log)


class _Told:
    """The function that the child of `process` is started with. It calls the job that each request names."""

    def load(self) -> None:
        """Load nothing: the first request names the job."""

    def __call__(self, request: Mapping[str, Any]) -> object:
        return child.function(request["job"])(request["request"])


told = _Told()


def named(target: str) -> Job[Any, Any]:
    """The job that a `Job.target` names; for processes that are started in another way than by `child`."""
    found = child.function(target)
    assert isinstance(found, Job)
    return found


class Worker(Generic[Request, Answer]):
    """A started child process that runs one job; made by `Job.worker`."""

    def __init__(self, called: Job[Request, Answer], process: child.Worker) -> None:
        self._job, self._process = called, process

    @property
    def alive(self) -> bool:
        """Whether the process runs and can be called."""
        return self._process.alive

    def call(
        self, request: Request, timeout: float | None = None, silence: child.Silence | None = None
    ) -> child.Outcome[Answer]:
        """As `child.Worker.call`, with the job's types."""
        outcome = self._process.call(records.plain(request), timeout, silence)
        return child.Outcome(self._job.read_answer(outcome.result), outcome.log)

    def end(self) -> None:
        """As `child.Worker.end`."""
        self._process.end()
