"""Runs a function of this package in a process of its own; `jobs` says with which types.

TensorFlow, TensorRT and CUDA abort the process on some inputs and broken installations. Code that calls them runs in a child, so an
abort becomes an error message, and the command itself starts without loading them.

The child is `python -m tftrt_tools.base.process.child FD module:function`. It reads JSON requests on stdin, one a line, until
that is closed.
For each it writes JSON lines to the pipe FD: {"progress": [text, done, total]} and {"note": text}, then {"result": …} or {"error": …}.
Its stdout and stderr, which native libraries write to, go to a log file.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, BinaryIO, Generic, Protocol, TypeVar

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import background, collection, environment, interpreter, lean_import, progress, starting

_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 12
_TERMINATE_SECONDS = 5
# In a child; its process leaves this signal to Python.
_LOST = background.Lost(signal.SIGINT)
_LOOK_SECONDS = 0.5
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What a child leaves: its result, and everything that it and its libraries printed."""

    result: Result
    log: str


class ChildDied(errors.TftrtError):
    """The child ended without an answer: killed by a signal, or its native code called exit."""

    def __init__(self, cause: str, mend: str, log: str, signal_name: str | None = None) -> None:
        super().__init__(cause, mend)
        self.log = log
        self.signal_name = signal_name


@dataclasses.dataclass(frozen=True)
class Silence:
    """How long a child may say nothing before it is killed. start: seconds until its first counted step; step: between two, and after the
    last; flag: that sets `step`, for the message."""

    start: float
    step: float
    flag: str = ""


class Called(Protocol):
    """What a child is started with, such as a jobs.Job."""

    def load(self) -> object:
        """Import the modules that the calls need."""

    def __call__(self, request: Any) -> object:
        """Answer a request. Both are JSON values."""


class ChildBug(Exception):
    """An exception that is no user error; carries the child's traceback."""


def run(
    target: str,
    request: object,
    env: Mapping[str, Any] | None = None,
    python: str | None = None,
    timeout: float | None = None,
    log_file: str | os.PathLike[str] | None = None,
    silence: Silence | None = None,
) -> Outcome[Any]:
    """Call `target` ("package.module:function") with `request` in a child process of its own.

    Args:
      target: function of one JSON value that returns a JSON value.
      request: its argument.
      env: environment variables to set; a value of None unsets one.
      python: interpreter of another environment; the running one by default.
      timeout: seconds after which the child is killed; silence: how long it may say nothing.
      log_file: where to keep the log; a temporary file that is deleted by default.

    Returns: Outcome.

    Raises: the TftrtError that the function raised; ChildDied; ChildBug.
    """
    with worker(target, env, log_file, python) as started:
        return started.call(request, timeout, silence)


@contextlib.contextmanager
def worker(
    target: str,
    env: Mapping[str, Any] | None = None,
    log_file: str | os.PathLike[str] | None = None,
    python: str | None = None,
) -> Iterator[Worker]:
    """A child process that answers many calls of `target`, one after the other, and keeps what it loaded and cached.

    Arguments as for `run`. Yields: Worker. The child ends with the context, at once if a call is under way.
    """
    with scratch.folder("child") as folder:
        log_path = pathlib.Path(log_file) if log_file else pathlib.Path(folder) / "log"
        with _started(target, {"TMPDIR": _temporary(folder), **(env or {})}, python, log_path) as (process, lines):
            yield Worker(process, lines, log_path)


def _temporary(folder: str) -> str:
    """A folder for a child's temporary files. A child ends without exit handlers, so its files stay (AutoGraph's generated code among them)
    until this folder goes."""
    temporary = pathlib.Path(folder) / "tmp"
    temporary.mkdir()
    return str(temporary)


class Worker:
    """A started child process; made by `worker`."""

    def __init__(self, process: subprocess.Popen[bytes], lines: BinaryIO, log_path: pathlib.Path) -> None:
        self._process, self._lines, self._log_path = process, lines, log_path
        self._ended, self._logged = False, 0

    @property
    def alive(self) -> bool:
        """Whether the process runs and can be called."""
        return not self._ended and self._process.poll() is None

    def call(self, request: object, timeout: float | None = None, silence: Silence | None = None) -> Outcome[Any]:
        """Call the function with `request` (a JSON value); no longer than `timeout` seconds, and no longer without progress than `silence`
        says, or the child is killed.

        Returns: Outcome with the log of this call alone.

        Raises: the TftrtError that the function raised, or ChildBug, after which the child can be called again; ChildDied, after which it
        cannot.
        """
        if self._ended:
            raise ChildDied("the process has ended", "start another worker", "")
        try:
            with _killed_after(self._process, timeout), _killed_if_silent(self._process, silence) as quiet:
                answer = self._answer(request, quiet)
                if answer is None:
                    self._ended, code = True, self._process.wait()
        except BaseException:
            # The answer to this call may still come; the next call would read it as its own.
            self._ended = True
            _end(self._process)
            raise
        log = self._new_log()
        if answer is None:
            raise _hung(quiet, log) if quiet.killed else _death(code, log, timeout)
        if "error" in answer:
            raise errors.from_dict(answer["error"])
        if "bug" in answer:
            raise ChildBug(answer["bug"])
        return Outcome(answer["result"], log)

    def end(self) -> None:
        """Kill the process; a call that another thread waits for ends with ChildDied."""
        self._process.kill()

    def _answer(self, request: object, quiet: _Quiet) -> dict[str, Any] | None:
        """The child's answer, or None where it ended without one."""
        line = json.dumps(request).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            stdin = _stdin(self._process)
            stdin.write(line)
            stdin.flush()
        for line in self._lines:
            if not line.endswith(b"\n"):
                return None
            message = json.loads(line)
            if "note" in message:
                quiet.heard(False)
                progress.note(message["note"])
                continue
            if "progress" not in message:
                result: dict[str, Any] | None = message
                return result
            quiet.heard(message["progress"][1] is not None)
            progress.say(*message["progress"])
        return None

    def _new_log(self) -> str:
        """The text that was logged since the last call."""
        if not self._log_path.exists():
            return ""
        with open(self._log_path, "rb") as log:
            log.seek(self._logged)
            text = log.read()
        self._logged += len(text)
        return text.decode(errors="replace")


def _environment(changes: Mapping[str, Any], python: str | None = None) -> dict[str, str]:
    env = dict(os.environ, PYTHONUNBUFFERED="1")
    env.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    # Load each kernel when it is first called. All kernels of TensorRT's libraries together take hundreds of megabytes.
    env.setdefault("CUDA_MODULE_LOADING", "LAZY")
    path = starting.search_path(last=str(pathlib.Path(__file__).resolve().parents[3]))
    for name, value in {**interpreter.path_variables(python, path), **changes}.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    if python is None:
        environment.of_tensorflow(env)
    return env


@contextlib.contextmanager
def _started(
    target: str, env: Mapping[str, Any], python: str | None, log_path: pathlib.Path
) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    reader, writer = os.pipe()
    open_ends = [reader, writer]
    process = None
    try:
        with open(log_path, "wb") as log:
            command = interpreter.command(python, "tftrt_tools.base.process.child", str(writer), target)
            folder, place = starting.start()
            # The child has its own session: Ctrl-C reaches only this process, which then ends the child.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writer],
                env=_environment(env, python) | place,
                cwd=folder,
                start_new_session=True,
            )
        # Remove it from the list first: after an interrupt between these lines it must not be closed again, because its number may be
        # another file's.
        open_ends.remove(writer)
        os.close(writer)
        with open(reader, "rb", closefd=False) as lines:
            yield process, lines
            _dismiss(process)
    finally:
        if process is not None:
            _end(process)
        for fd in open_ends:
            os.close(fd)


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    """The pipe for the child's requests."""
    assert process.stdin is not None
    return process.stdin


def _dismiss(process: subprocess.Popen[bytes]) -> None:
    """Close the child's stdin, so that an idle child ends."""
    with contextlib.suppress(BrokenPipeError):
        _stdin(process).close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child if it still runs, and reap it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with contextlib.suppress(BrokenPipeError):
        _stdin(process).close()


@contextlib.contextmanager
def _killed_after(process: subprocess.Popen[bytes], seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Quiet:
    """Watches how long a child has sent no message."""

    def __init__(self, process: subprocess.Popen[bytes], silence: Silence | None) -> None:
        self._process, self.silence = process, silence
        self.seconds = silence.start if silence else 0.0
        self.killed, self._since, self._ended = False, time.monotonic(), threading.Event()

    def heard(self, counted: bool) -> None:
        """Note that the child has sent a message. Args: counted: the number of its step, and of all steps."""
        self._since = time.monotonic()
        if counted and self.silence:
            self.seconds = self.silence.step

    def watch(self) -> None:
        """Kill the child when it has been silent for too long, or return at the end of the call."""
        # In short waits: what is left may become shorter with the next step.
        while not self._ended.wait(min(max(self._since + self.seconds - time.monotonic(), 0.01), _LOOK_SECONDS)):
            if time.monotonic() >= self._since + self.seconds:
                self.killed = True
                self._process.kill()
                return

    def end(self) -> None:
        """Stop watching: the call has ended."""
        self._ended.set()


@contextlib.contextmanager
def _killed_if_silent(process: subprocess.Popen[bytes], silence: Silence | None) -> Iterator[_Quiet]:
    quiet = _Quiet(process, silence)
    if silence:
        threading.Thread(target=quiet.watch, daemon=True).start()
    try:
        yield quiet
    finally:
        quiet.end()


def _hung(quiet: _Quiet, log: str) -> ChildDied:
    flag = f"; a larger {quiet.silence.flag} waits longer" if quiet.silence and quiet.silence.flag else ""
    return ChildDied(
        f"it hangs: for {quiet.seconds:g} s no call came to an end, so its process was killed",
        f"fix the model, or what it waits for{flag}",
        log,
        "SIGKILL",
    )


def _death(code: int, log: str, timeout: float | None) -> ChildDied:
    tail = "\n".join(line for line in log.splitlines()[-_TAIL_LINES:])
    if code < 0:
        name = signal.Signals(-code).name
        mend = "the end of its log:\n" + tail
        if name == "SIGKILL":
            mend = (f"it ran longer than {timeout} s; " if timeout else "often the system ran out of memory; ") + mend
        return ChildDied(f"native code ended the process ({name})", mend, log, name)
    return ChildDied(f"the process ended with exit code {code} and no answer", "the end of its log:\n" + tail, log)


def _serve(fd: int, target: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have it ignored, and so its children; a thread of this process uses it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Programs that native code starts (ptxas) must not keep the pipe open after this process has ended.
    os.set_inheritable(fd, False)
    requests = os.fdopen(os.dup(0), "rb")
    # Nothing that the function calls may read the next request.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    with os.fdopen(fd, "w", buffering=1) as pipe, lean_import.tensorflow():
        _LOST.watch()
        lock = threading.Lock()  # another thread may report progress

        def send(message: dict[str, Any]) -> None:
            with lock:
                pipe.write(json.dumps(message) + "\n")

        # Import before the first call comes. An import that fails here fails again in the call, which reports it.
        with contextlib.suppress(Exception), collection.paused():
            function(target).load()
        for line in requests:
            _answer(target, json.loads(line), send)
            sys.stdout.flush()


def function(target: str) -> Called:
    """The function that "module:name" names."""
    module, _, name = target.partition(":")
    found: Called = getattr(importlib.import_module(module), name)
    return found


def _answer(target: str, request: object, send: Callable[[dict[str, Any]], None]) -> None:
    try:
        with (
            progress.listening(lambda *step: send({"progress": step})),
            progress.notes_to(lambda text: send({"note": text})),
        ):
            try:
                result = function(target)(request)
            finally:
                _LOST.raise_first()
        sys.stdout.flush()
        send({"result": result})
    except errors.TftrtError as error:
        send({"error": error.to_dict()})
    except ImportError as error:
        told = errors.from_import_error(error)
        send({"error": told.to_dict()} if told else {"bug": traceback.format_exc()})
    except OSError as error:
        send({"error": errors.from_os_error(error).to_dict()})
    except UnicodeEncodeError as error:
        named = errors.from_encode_error(error)
        send({"error": named.to_dict()} if named else {"bug": traceback.format_exc()})
    except MemoryError:
        send({"error": errors.TftrtError("out of memory", "free memory or use a larger machine").to_dict()})
    except BaseException:
        send({"bug": traceback.format_exc()})


if __name__ == "__main__":
    starting.settle()
    _serve(int(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    # The answer is sent. TensorFlow's and CUDA's exit handlers could still abort, so they do not run.
    os._exit(0)
