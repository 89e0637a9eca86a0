"""Commands in the process of their tests, and children shared or forked: TensorFlow is imported once for all of them.

The command is read, run and reported by the same code as in a process of its own, and each child is a process. Whether a command starts,
and what one command leaves to the next, is the business of the tests that start it anew: those of README's examples first.
"""

import collections
import contextlib
import logging
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings

import pytest

from tests import conftest, forks
from tftrt_tools.base.process import child
from tftrt_tools.command_line import cli
from tftrt_tools.servers.load import workers
from tftrt_tools.servers.serving.launch import watched_process
from tftrt_tools.studies.regression import rounds

_KEPT = 4  # idle children: each has TensorFlow, some have a model
_ALONE = (
    "tests.rooms.base.test_child:",
    "tests.rooms.base.test_lean_import:",
)  # the start, the first import and its log are what they look at
# It asks the system's loader, which reads its variable at the start of a process; and it does without TensorFlow.
_LOADER = "tftrt_tools.base.stack.probes:machine"
_UNSHARED = (*_ALONE, "tftrt_tools.base.stack.")  # they ask a process that is new
_start = child.worker


class Children:
    """Stands for `child.worker`: who asks for a child gets one that another has left, of the same function, environment and folder."""

    share = True

    def __init__(self):
        self._idle = collections.OrderedDict()

    @contextlib.contextmanager
    def worker(self, target, env=None, log_file=None, python=None):
        if (
            not self.share
            or log_file
            or python
            or not target.startswith("tftrt_tools.")
            or target.startswith(_UNSHARED)
            or threading.current_thread() is not threading.main_thread()
        ):  # a child ends with the thread that started it
            with _start(target, env, log_file, python) as one:
                yield one
            return
        environment = {
            name: value for name, value in child._environment(env or {}).items() if name != "PYTEST_CURRENT_TEST"
        }
        key = (target, os.getcwd(), frozenset(environment.items()))
        held, one = self._idle.pop(key, (None, None))
        if one is None or not one.alive:
            held = contextlib.ExitStack()
            one = held.enter_context(_start(target, env))
        try:
            yield one
        finally:
            if one.alive and key not in self._idle:
                self._idle[key] = (held, one)
                held = self._idle.popitem(last=False)[1][0] if len(self._idle) > _KEPT else contextlib.ExitStack()
            held.close()

    def close(self):
        while self._idle:
            self._idle.popitem()[1][0].close()


@contextlib.contextmanager
def unshared():
    """In this block each child is a new one: some leave to their next call what they have loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Children, "share", False)
        yield


def _started(argv, env, **more):
    """As subprocess.Popen starts a child, or a process of the load generator."""
    return (subprocess.Popen if argv[-1].startswith((*_ALONE, _LOADER)) else forks.popen)(argv, env=env, **more)


def _served(argv, env, preexec_fn, **more):
    """As subprocess.Popen starts the server of `tftrt serve`. A fork ends with its parent, and so needs no function that sees to it."""
    if list(argv[:3]) == [sys.executable, "-m", "tftrt_tools.servers.serving.local"]:
        return forks.popen(list(argv), env=env, **more)
    return subprocess.Popen(argv, env=env, preexec_fn=preexec_fn, **more)


@contextlib.contextmanager
def _as_a_process(argv, env, cwd, out, err):
    """What a process has of its own, for a while: folder, environment, stdin, stdout, stderr, handlers of signals, warnings and logs."""
    with contextlib.ExitStack() as undo:
        patch = undo.enter_context(pytest.MonkeyPatch.context())
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        patch.chdir(cwd or conftest.ROOT)
        patch.setattr(sys, "argv", argv)
        patch.setattr(sys, "stdin", undo.enter_context(open(os.devnull)))
        for number in (signal.SIGINT, signal.SIGTERM):
            undo.callback(signal.signal, number, signal.getsignal(number))
        for fd, name, file in ((1, "stdout", out), (2, "stderr", err)):
            getattr(sys, name).flush()
            kept = os.dup(fd)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, fd)
            os.dup2(file.fileno(), fd)
            patch.setattr(sys, name, undo.enter_context(open(fd, "w", encoding="utf-8", closefd=False)))
        undo.enter_context(warnings.catch_warnings())
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        warnings.showwarning = lambda *told, file=None, line=None: sys.stderr.write(warnings.formatwarning(*told, line))
        patch.setattr(logging.root, "handlers", [])
        patch.setattr(logging.root, "level", logging.WARNING)
        yield


@contextlib.contextmanager
def shared():
    """Until the end of this, children are shared or forked, `run_tftrt` runs commands here, and `tftrt regress` here warms its models up for
    a fifth of a second and not for two: what is measured is little where it is tests that measure."""
    with forks.used(), contextlib.closing(Children()) as children, pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "worker", children.worker)
        for module, start in ((child, _started), (workers, _started), (watched_process, _served)):
            patch.setattr(module, "subprocess", types.SimpleNamespace(**vars(subprocess) | {"Popen": start}))
        patch.setattr(rounds, "_WARM_UP_SECONDS", 0.1)
        yield


def run_tftrt(*arguments, env=None, cwd=None, timeout=240):
    """Run the command. A command that never ends is ended by the test's own limit of time. Returns: CompletedProcess with text output."""
    if child.worker is _start:
        return conftest.run_tftrt(*arguments, env=env, cwd=cwd, timeout=timeout)
    arguments = [str(one) for one in arguments]
    return _ran(["tftrt", *arguments], lambda: cli.main(arguments), env, cwd)


def _ran(argv, run, env, cwd):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _as_a_process(argv, env, cwd, out, err):
            code = run()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(argv, code, *texts)


def run_script(path, *arguments, env=None, cwd=None):
    """Run a program of Python, a file in `cwd`, as `run_tftrt` runs commands: what it asks of the API runs in children that tests share.
    Returns: CompletedProcess with text output."""

    def run():
        try:
            runpy.run_path(str(pathlib.Path(cwd or conftest.ROOT) / path), run_name="__main__")
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
                return 1
            return end.code or 0
        except Exception:
            traceback.print_exc()
            return 1
        return 0

    return _ran([str(path), *map(str, arguments)], run, env, cwd)


def run_program(text, *arguments):
    """Run the text of a program here, where TensorFlow is imported already. It writes a model to one of its arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["program", *map(str, arguments)])
        exec(compile(text, "program", "exec"), {"__name__": "__main__"})
