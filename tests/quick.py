"""`make quick`: the tests that start no process and load no TensorFlow. No list says which these are: a test that does either is skipped at
the moment when it does, and so is a module that imports TensorFlow. In .venv-dev, which lacks some packages of .venv, so is a test that asks
for one of those."""

import functools
import importlib.abc
import importlib.machinery
import multiprocessing.process
import platform
import sys

import pytest

_PACKAGES = frozenset({"tensorflow", "keras"})
# Large, or of no use without TensorFlow: the extra `dev` leaves them out.
_IN_VENV_ALONE = frozenset({"tensorflow_serving", "tensorrt", "tf2onnx", "kubernetes_validate", "jsonschema", "mkdocs"})
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"})


_skipped = []  # why, each time in the running test


def _skip(why):
    _skipped.append(why)
    pytest.skip(why, allow_module_level=True)


class _Loader(importlib.abc.Loader):
    def __init__(self, why):
        self._why = why

    def create_module(self, spec):
        _skip(self._why)

    def exec_module(self, module):
        """Never reached."""


@functools.cache
def _there(package):
    return importlib.machinery.PathFinder.find_spec(package) is not None


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the packages, so that code may look whether they are there, and loads them by a skip."""

    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in _PACKAGES | _IN_VENV_ALONE and not _there(package):
            return importlib.machinery.ModuleSpec(name, _Loader(_missing(package)))
        found = importlib.machinery.PathFinder.find_spec(name, path, target) if name in _PACKAGES else None
        if found is not None:
            found.loader = _Loader("it loads TensorFlow: make test")
        return found

    def find_distributions(self, context):
        """Called for the version of a package."""
        if context.name in _PACKAGES | _IN_VENV_ALONE and not _there(context.name):
            _skip(_missing(context.name))
        return iter(())


def _missing(package):
    return f"it needs {package}, which is not installed here: make test"


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
