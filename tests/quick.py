"""`make quick`: the tests that start no process and load no TensorFlow. No list says which these are: a test that does either is skipped at
the moment when it does, and so is a module that imports TensorFlow."""

import importlib.abc
import importlib.machinery
import multiprocessing.process
import platform
import sys

import pytest

_PACKAGES = frozenset({"tensorflow", "keras"})
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"})


_skipped = []  # why, each time in the running test


def _skip(why):
    _skipped.append(why)
    pytest.skip(why, allow_module_level=True)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        _skip("it loads TensorFlow: make test")

    def exec_module(self, module):
        """Never reached."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the packages where they are, so that code may look whether they are there, and loads them by a skip."""

    def find_spec(self, name, path=None, target=None):
        found = importlib.machinery.PathFinder.find_spec(name, path, target) if name in _PACKAGES else None
        if found is not None:
            found.loader = _Loader()
        return found


def _refuse(*_, **__):
    _skip("it starts a process: make test")


def _audited(event, _arguments):
    if event in _STARTS:
        _refuse()


def install():
    """From now on this process skips each test, and each module of tests, that loads TensorFlow or starts a process."""
    platform.processor()  # starts a process the first time, and remembers
    sys.meta_path.insert(0, _Finder())
    sys.addaudithook(_audited)
    multiprocessing.process.BaseProcess.start = _refuse


def watched(report):
    """A test that fails since something in it caught the skip is skipped all the same. Args: report: TestReport of a step of it."""
    if report.failed and _skipped:
        report.outcome, report.longrepr = "skipped", ("tests/quick.py", 0, f"Skipped: {_skipped[0]}")
    if report.when == "teardown":
        _skipped.clear()
