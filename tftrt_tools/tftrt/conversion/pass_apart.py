"""Runs a job that runs graph passes. If TensorFlow ends the process in one of them, the job runs again, and tries each pass in another
process before. No TensorFlow here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TypeVar

from tftrt_tools.base import stack
from tftrt_tools.base.process import child, jobs, progress

Request = TypeVar("Request")
Answer = TypeVar("Answer")

# Whether the passes of a process are tried in another one first.
_VARIABLE = "TFTRT_PASS_APART"
# What the child writes to its log before and after a pass.
_BEGINS, _ENDED = "INFO:tftrt:a graph pass begins", "INFO:tftrt:the graph pass has ended"


def run(
    job: jobs.Job[Request, Answer],
    request: Request,
    env: Mapping[str, str],
    log_file: str | os.PathLike[str] | None = None,
) -> child.Outcome[Answer]:
    """As job.run. A broken installation has a better explanation than the abort that it caused, and is told instead."""
    try:
        return job.run(request, env=env, log_file=log_file)
    except child.ChildBug:
        stack.check_thoroughly()
        raise
    except child.ChildDied as died:
        if died.log.rfind(_BEGINS) <= died.log.rfind(_ENDED):
            if died.signal_name != "SIGKILL":  # of the system, for its memory, or of the user
                stack.check_thoroughly()
            raise
    progress.say("a converter of TF-TRT ended the process: looking for the node")
    return job.run(request, env={**env, _VARIABLE: "1"}, log_file=log_file)


def wanted() -> bool:
    """Whether this process has to try its passes in another one first."""
    return bool(os.environ.get(_VARIABLE))


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Tell in the log of this process that a pass runs."""
    os.write(2, f"{_BEGINS}\n".encode())
    try:
        yield
    finally:
        os.write(2, f"{_ENDED}\n".encode())
