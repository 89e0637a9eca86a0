"""Runs a function of this package in a process of its own.

TensorFlow, TensorRT and CUDA abort the process on some inputs and broken installations. Whatever calls them
runs here, so that an abort becomes an error message, and the command itself starts without loading them.

The child is `python -m tftrt_tools.child FD module:function`. It reads one JSON request on stdin and writes
JSON lines to the pipe FD: {"progress": [text, done, total]}, then {"result": …} or {"error": …}.
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
import tempfile
import traceback

from tftrt_tools import errors, progress

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
    """Call `target` ("package.module:function") with `request` in a child process.

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
    with tempfile.TemporaryDirectory(prefix="tftrt-child-") as folder:
        log_path = pathlib.Path(log_file) if log_file else pathlib.Path(folder) / "log"
        answer, died = None, None
        with _started(target, request, env, python, log_path) as (process, lines):
            killer = _kill_after(process, timeout)
            for line in lines:
                message = json.loads(line)
                if "progress" in message:
                    progress.say(*message["progress"])
                else:
                    answer = message
            code = process.wait()
            if killer:
                killer.cancel()
        log = log_path.read_text(errors="replace") if log_path.exists() else ""
        if answer is None:
            died = _death(code, log, timeout)
    if died:
        raise died
    if "error" in answer:
        raise errors.from_dict(answer["error"])
    if "bug" in answer:
        raise ChildBug(answer["bug"])
    return Outcome(answer["result"], log)


def _environment(changes):
    env = dict(os.environ, PYTHONUNBUFFERED="1")
    env.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    root = str(pathlib.Path(__file__).resolve().parents[1])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), root]))
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


@contextlib.contextmanager
def _started(target, request, env, python, log_path):
    reader, writer = os.pipe()
    process = None
    try:
        with open(log_path, "wb") as log:
            command = [python or sys.executable, "-m", "tftrt_tools.child", str(writer), target]
            # A session of its own, so that Ctrl-C reaches this process first and it decides what to clean.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writer],
                                       env=_environment(env), start_new_session=True)
        os.close(writer)
        writer = None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
        with os.fdopen(reader, "rb") as lines:
            reader = None
            yield process, lines
    finally:
        for fd in (reader, writer):
            if fd is not None:
                os.close(fd)
        if process is not None and process.poll() is None:
            _end(process)


def _end(process):
    process.terminate()
    try:
        process.wait(_TERMINATE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _kill_after(process, seconds):
    if seconds is None:
        return None
    import threading

    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    return timer


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
    request = json.load(sys.stdin)
    with os.fdopen(fd, "w", buffering=1) as pipe:

        def send(message):
            pipe.write(json.dumps(message) + "\n")

        try:
            module, function = target.split(":")
            with progress.listening(lambda *said: send({"progress": said})):
                result = getattr(importlib.import_module(module), function)(request)
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
