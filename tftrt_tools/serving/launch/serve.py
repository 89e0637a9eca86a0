"""Starts a server, waits until it answers, and stays until it ends or is told to end."""

import dataclasses

from tftrt_tools import errors, progress
from tftrt_tools.serving.launch import ending, plan, ports, preflight, process, readiness

_ANY = "0.0.0.0"
_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Serving:
    """A server that answers. backend: its name; reason: why that one; pid: of the process started here; ready: readiness.Ready."""

    backend: str
    reason: str
    pid: int
    ready: readiness.Ready

    def to_dict(self):
        return {"backend": self.backend, "reason": self.reason, "pid": self.pid, **self.ready.to_dict()}


def prepare(backend, values, host=""):
    """Check everything that can be checked before a server starts.

    Args: backend: Backend; values: the server's flags by name; host: address to listen on, "" for the backend's own.

    Returns: plan.Plan.

    Raises: TftrtError.
    """
    wanted = plan.read(values, host)
    backend.check(wanted)
    preflight.check_files(wanted)
    address = host or (_ANY if backend.name == "binary" else "127.0.0.1")
    for port, flag in ((wanted.port, "--port"), (wanted.rest_port, "--rest_api_port")):
        # The development server finds a free one for 0, and for a REST port below 0.
        if port > 0 or port and (backend.name != "local" or flag == "--port"):
            ports.check(address, port, flag)
    return wanted


def run(backend, reason, wanted, grace_seconds, on_ready, log_file=None):
    """Serve until the server ends. KeyboardInterrupt and errors.Interrupted end it and are passed on.

    Args:
      backend: Backend.
      reason: why that one.
      wanted: plan.Plan, as `prepare` returned it.
      grace_seconds: between SIGTERM and SIGKILL.
      on_ready: called with Serving once the server answers.
      log_file: where its log goes too, or None.

    Raises: TftrtError when the server ended by itself.
    """
    command = backend.command(wanted)
    watch = readiness.Watch(command.ready_probe)
    child = None

    def on_line(line):
        watch.note(line)
        process.to_stderr(line)

    try:
        child = process.Child(command, on_line, log_file)
        with progress.on_terminal():
            progress.say(f"loading {', '.join(wanted.names) or 'no models'}")
            ready = process.until(watch.ask, child)
        if ready:
            on_ready(Serving(backend.name, reason, child.pid, ready))
        while child.wait(_POLL_SECONDS) is None:
            pass
        raise ending.read(child.code(), child.tail, preflight.with_engines(wanted.models))
    finally:
        watch.close()
        if child is not None:
            _end(child, grace_seconds)


def _end(child, grace_seconds):
    if child.code() is None:
        process.to_stderr(f"ending the server (pid {child.pid})")
    child.end(grace_seconds)


def version(backend, values):
    """Run the server with --version. Returns: its exit code."""
    command = backend.command(plan.Plan({**values, "version": True}, "", ()))
    child = process.Child(command, print)
    try:
        while child.wait(_POLL_SECONDS) is None:
            pass
        return child.code()
    finally:
        child.end(1)


def interrupted():
    """The exceptions that end a server because someone asked."""
    return KeyboardInterrupt, errors.Interrupted
