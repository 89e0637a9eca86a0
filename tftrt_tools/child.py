"""Runs a function of this package in a process of its own.

TensorFlow, TensorRT and CUDA abort the process on some inputs and broken installations. Whatever calls them
runs here, so that an abort becomes an error message, and the command itself starts without loading them.

The child is `python -m tftrt_tools.child FD module:function`. It reads JSON requests on stdin, one a line, until that is closed.
For each it writes JSON lines to the pipe FD: {"progress": [text, done, total]}, then {"result": …} or {"error": …}.
Its stdout and stderr, which native libraries write to, go to a log file.
"""

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
import traceback

from tftrt_tools import collection, errors, progress, scratch

_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 12
_TERMINATE_SECONDS = 5


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a child left: its result (JSON values) and everything it and its libraries printed."""

    result: object
    log: str


class ChildDied(errors.TftrtError):
    """The child ended without an answer: killed by a signal, or its native code called exit."""

    def __init__(self, cause, mend, log, signal_name=None):
        super().__init__(cause, mend)
        self.log = log
        self.signal_name = signal_name


class ChildBug(Exception):
    """An exception that is no user error; carries the child's traceback."""


def run(target, request, env=None, python=None, timeout=None, log_file=None):
    """Call `target` ("package.module:function") with `request` in a child process of its own.

    Args:
      target: function of one JSON value that returns a JSON value.
      request: its argument.
      env: environment variables to set; a value of None unsets one.
      python: interpreter; the running one by default.
      timeout: seconds after which the child is killed.
      log_file: where to keep the log; a temporary file that is deleted by default.

    Returns: Outcome.

    Raises: the TftrtError that the function raised; ChildDied; ChildBug.
    """
    with worker(target, env, log_file, python) as one:
        return one.call(request, timeout)


@contextlib.contextmanager
def worker(target, env=None, log_file=None, python=None):
    """A child process that answers many calls of `target`, one after the other: what it loaded and cached stays.

    Arguments as for `run`. Yields: Worker. The child ends with the context, at once where a call is under way.
    """
    with scratch.folder("child") as folder:
        log_path = pathlib.Path(log_file) if log_file else pathlib.Path(folder) / "log"
        with _started(target, {"TMPDIR": _temporary(folder), **(env or {})}, python, log_path) as (process, lines):
            yield Worker(process, lines, log_path)


def _temporary(folder):
    """Where a child's temporary files go, and with them what it does not remove: it ends without exit handlers, which AutoGraph leaves the
    removing of its generated code to."""
    made = pathlib.Path(folder) / "tmp"
    made.mkdir()
    return str(made)


class Worker:
    """A started child process; made by `worker`."""

    def __init__(self, process, lines, log_path):
        self._process, self._lines, self._log_path = process, lines, log_path
        self._ended, self._logged = False, 0

    @property
    def alive(self):
        """Whether the process runs and can be called."""
        return not self._ended and self._process.poll() is None

    def call(self, request, timeout=None):
        """Call the function with `request` (a JSON value); no longer than `timeout` seconds, or the child is killed.

        Returns: Outcome with the log of this call alone.

        Raises: the TftrtError that the function raised, or ChildBug, after which the child can be called again; ChildDied, after which it
        cannot.
        """
        if self._ended:
            raise ChildDied("the process has ended", "start another worker", "")
        try:
            with _killed_after(self._process, timeout):
                answer = self._answer(request)
                if answer is None:
                    self._ended, code = True, self._process.wait()
        except BaseException:
            # An answer that nobody read would be taken for the next call's.
            self._ended = True
            _end(self._process)
            raise
        log = self._new_log()
        if answer is None:
            raise _death(code, log, timeout)
        if "error" in answer:
            raise errors.from_dict(answer["error"])
        if "bug" in answer:
            raise ChildBug(answer["bug"])
        return Outcome(answer["result"], log)

    def _answer(self, request):
        """The child's answer, or None where it ended without one."""
        line = json.dumps(request).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
        for line in self._lines:
            if not line.endswith(b"\n"):
                return None
            message = json.loads(line)
            if "progress" not in message:
                return message
            progress.say(*message["progress"])
        return None

    def _new_log(self):
        """What was logged since the last call."""
        if not self._log_path.exists():
            return ""
        with open(self._log_path, "rb") as log:
            log.seek(self._logged)
            text = log.read()
        self._logged += len(text)
        return text.decode(errors="replace")


def _environment(changes):
    env = dict(os.environ, PYTHONUNBUFFERED="1")
    env.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    # Kernels are loaded when they are first called, not all that a library has: TensorRT's alone hold hundreds of megabytes.
    env.setdefault("CUDA_MODULE_LOADING", "LAZY")
    root = str(pathlib.Path(__file__).resolve().parents[1])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), root]))
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


@contextlib.contextmanager
def _started(target, env, python, log_path):
    reader, writer = os.pipe()
    process = None
    try:
        with open(log_path, "wb") as log:
            command = [python or sys.executable, "-m", "tftrt_tools.child", str(writer), target]
            # A session of its own, so that Ctrl-C reaches this process first and it decides what to clean.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writer],
                                       env=_environment(env), start_new_session=True)
        # Forgotten before it is closed: an interrupt between the two must not close it again, when the number may be another file's.
        ours, writer = writer, None
        os.close(ours)
        with open(reader, "rb", closefd=False) as lines:
            yield process, lines
            _dismiss(process)
    finally:
        if process is not None:
            _end(process)
        for fd in (reader, writer):
            if fd is not None:
                os.close(fd)


def _dismiss(process):
    """Let an idle child end by itself: it does when its stdin is closed."""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_SECONDS)


def _end(process):
    """End the child if it still runs, and reap it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


@contextlib.contextmanager
def _killed_after(process, seconds):
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


def _death(code, log, timeout):
    tail = "\n".join(line for line in log.splitlines()[-_TAIL_LINES:])
    if code < 0:
        name = signal.Signals(-code).name
        mend = "the end of its log:\n" + tail
        if name == "SIGKILL":
            mend = (f"it ran longer than {timeout} s; " if timeout else "often the system ran out of memory; ") + mend
        return ChildDied(f"native code ended the process ({name})", mend, log, name)
    return ChildDied(f"the process ended with exit code {code} and no answer", "the end of its log:\n" + tail, log)


def _serve(fd, target):
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Programs that native code starts (ptxas) must not hold the pipe open after this process has ended.
    os.set_inheritable(fd, False)
    requests = os.fdopen(os.dup(0), "rb")
    # Nothing that the function calls may read the next request.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    with os.fdopen(fd, "w", buffering=1) as pipe:

        lock = threading.Lock()  # a thread may tell of progress beside the one that works

        def send(message):
            with lock:
                pipe.write(json.dumps(message) + "\n")

        # A child that waits for its first call has loaded what it needs by then; what fails here fails again in the call, and is told.
        with contextlib.suppress(Exception), collection.paused():
            importlib.import_module(target.partition(":")[0])
        for line in requests:
            _answer(target, json.loads(line), send)
            sys.stdout.flush()


def _answer(target, request, send):
    try:
        module, function = target.split(":")
        with progress.listening(lambda *said: send({"progress": said})):
            result = getattr(importlib.import_module(module), function)(request)
        sys.stdout.flush()
        send({"result": result})
    except errors.TftrtError as error:
        send({"error": error.to_dict()})
    except OSError as error:
        send({"error": errors.from_os_error(error).to_dict()})
    except MemoryError:
        send({"error": errors.TftrtError("out of memory", "free memory or use a larger machine").to_dict()})
    except BaseException as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("tensorflow"):
            missing = errors.TftrtError(f"TensorFlow is missing or not the one needed: {error}", "`tftrt doctor` says what mends it")
            send({"error": missing.to_dict()})
        else:
            send({"bug": traceback.format_exc()})


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    # TensorFlow's and CUDA's exit handlers can abort after the answer is sent; the answer stands.
    os._exit(0)
