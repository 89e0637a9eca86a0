"""A server as a child process: its log is passed on line by line, and it ends with this process, however this process ends."""

import collections
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tftrt_tools.base import errors
from tftrt_tools.servers.serving.launch.backend import Command

_Answer = TypeVar("_Answer")
_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 40
_CLEANUP_SECONDS = 30


class Child:
    """A running server in a session of its own, so that Ctrl-C reaches this process first and it decides how to end it."""

    def __init__(self, command: Command, on_line: Callable[[str], object], log_file: str | None = None) -> None:
        """Start it.

        Args:
          command: backend.Command.
          on_line: called with each line of its stdout and stderr, from another thread.
          log_file: where the log goes too, or None.

        Raises: TftrtError where it cannot be started.
        """
        self._command, self._on_line = command, on_line
        self.tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._log = open(log_file, "w", buffering=1) if log_file else None
        try:
            self._process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                cwd=command.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(command.death_signal, os.getpid()),
            )
        except OSError as error:
            raise errors.TftrtError(
                f"{command.argv[0]} cannot be started: {error.strerror}",
                "check that it is an executable of this machine",
            ) from None
        self._pump = threading.Thread(target=self._pass_on, name="server-log", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        """Its exit code as subprocess gives it (negative: a signal), or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._pump.join(2)
        return code

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None where it still runs after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code()

    def end(self, grace_seconds: float) -> None:
        """Send SIGTERM to all its processes, SIGKILL after `grace_seconds` or at a second Ctrl-C; then remove what it may leave behind."""
        try:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                self._process.wait(grace_seconds)
        finally:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._pump.join(2)
            for argv in self._command.cleanup:
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(
                        argv,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        timeout=_CLEANUP_SECONDS,
                        check=False,
                    )
            if self._log:
                self._log.close()

    def _signal(self, number: int) -> None:
        # The group outlives its leader if the server started processes of its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _pass_on(self) -> None:
        for raw in self._process.stdout or ():  # it is a pipe, always
            line = raw.decode(errors="replace").rstrip("\r\n")
            self.tail.append(line)
            self._keep(line)
            self._on_line(line)

    def _keep(self, line: str) -> None:
        """Write a line to the file of the log. Where that fails, the server goes on without: nobody would read its pipe any more."""
        try:
            if self._log:
                self._log.write(line + "\n")
        except (OSError, ValueError) as error:  # it may be closed, at the end
            log, self._log = self._log, None
            self._on_line(f"tftrt: warning: {log.name if log else ''}: {error}; the log is kept no longer")
            with contextlib.suppress(OSError):
                if log:
                    log.close()


def to_stderr(line: str) -> None:
    """Print a line of the server's log. If nobody reads stderr any more, the server goes on."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        print(line, file=sys.stderr, flush=True)


def die_with_parent(number: int, parent: int) -> Callable[[], None]:
    """Runs in the child before it becomes the server: let the system send it signal `number` when this process dies, even by SIGKILL."""
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        # Signals that this process ignores would stay ignored in the server.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def until(condition: Callable[[], _Answer | None], child: Child, seconds: float = 0.2) -> _Answer | None:
    """Ask `condition()` again and again. Returns: its first true answer, or None when `child` ended before."""
    while True:
        answer = condition()
        if answer:
            return answer
        if child.code() is not None:
            return None
        time.sleep(seconds)
