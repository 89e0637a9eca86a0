"""Starts a server, waits until it answers, and stays until it ends or gets a signal to end."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base.process import progress
from tftrt_tools.servers.serving.launch import (
    ending,
    log_follower,
    ports,
    readiness,
    serve_plan,
    start_preflight,
    watched_process,
)
from tftrt_tools.servers.serving.launch.backend import LOG_LEVEL, Backend

_ANY = "0.0.0.0"
_LEVEL, _LEVELS = re.compile(r"\d{4}-\d\d-\d\d [\d:.]+: ([IWEF]) "), "IWEF"
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Serving:
    """A server that answers. backend: its name; reason: why that one; pid: of the process started here; ready: readiness.Ready."""

    backend: str
    reason: str
    pid: int
    ready: readiness.Ready

    # Not a Record: the facts about the addresses stand beside it.
    def to_dict(self) -> dict[str, Any]:
        return {"backend": self.backend, "reason": self.reason, "pid": self.pid, **self.ready.to_dict()}


def prepare(backend: Backend, values: Mapping[str, Any], host: str = "") -> serve_plan.Plan:
    """Check everything that can be checked before a server starts.

    Args: backend: Backend; values: the server's flags by name; host: address to listen on, "" for the backend's own.

    Returns: serve_plan.Plan.

    Raises: TftrtError.
    """
    plan = serve_plan.read(values, host)
    backend.check(plan)
    start_preflight.check_files(plan)
    address = host or (_ANY if backend.name == "binary" else "127.0.0.1")
    for port, flag in ((plan.port, "--port"), (plan.rest_port, "--rest_api_port")):
        # For 0, and for a REST port below 0, the development server finds a free port.
        if port > 0 or port and (backend.name != "local" or flag == "--port"):
            ports.check(address, port, flag)
    return plan


def run(
    backend: Backend,
    reason: str,
    wanted: serve_plan.Plan,
    grace_seconds: float,
    on_ready: Callable[[Serving], object],
    log_file: str | None = None,
) -> None:
    """Serve until the server ends, and say on stderr what it cannot load.

    KeyboardInterrupt ends it and is passed on.

    Args:
      backend: Backend.
      reason: why that one.
      wanted: serve_plan.Plan, as `prepare` returned it.
      grace_seconds: between SIGTERM and SIGKILL.
      on_ready: called with Serving once the server answers.
      log_file: where its log goes too, or None.

    Raises: TftrtError when the server ended by itself.
    """
    command = backend.command(wanted)
    watch, follower = readiness.Watch(command.ready_probe), log_follower.Follower(wanted.values)
    # The server logs everything where its log is read; what the user wanted is shown.
    level = os.environ.get(LOG_LEVEL, "") if LOG_LEVEL in command.env else ""
    child = None

    def on_line(line: str) -> None:
        watch.note(line)
        follower.note(line)
        if _wanted(line, level):
            watched_process.to_stderr(line)

    def tell() -> None:
        for one in follower.news():
            watched_process.to_stderr(one.text)

    def ask() -> readiness.Ready | None:
        tell()
        return watch.ask()

    try:
        child = watched_process.Child(command, on_line, log_file)
        with progress.on_terminal():
            progress.say(f"loading {', '.join(wanted.names) or 'no models'}")
            ready = watched_process.until(ask, child)
        if ready:
            on_ready(Serving(backend.name, reason, child.pid, ready))
        while (code := child.wait(_POLL_SECONDS)) is None:
            tell()
        raise ending.read(code, child.tail, start_preflight.with_engines(wanted.models))
    finally:
        watch.close()
        if child is not None:
            _end(child, grace_seconds)


def _wanted(line: str, level: str) -> bool:
    """Whether a line of the log would be there with this TF_CPP_MIN_LOG_LEVEL."""
    found = _LEVEL.match(line)
    return not found or not level.isdecimal() or _LEVELS.index(found[1]) >= int(level)


def _end(child: watched_process.Child, grace_seconds: float) -> None:
    if child.code() is None:
        watched_process.to_stderr(f"ending the server (pid {child.pid})")
    child.end(grace_seconds)


def version(backend: Backend, values: Mapping[str, Any]) -> int:
    """Run the server with --version. Returns: its exit code."""
    command = backend.command(serve_plan.Plan({**values, "version": True}, "", ()))
    child = watched_process.Child(command, print)
    try:
        while (code := child.wait(_POLL_SECONDS)) is None:
            pass
        return code
    finally:
        child.end(1)
