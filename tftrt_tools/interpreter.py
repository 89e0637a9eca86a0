"""Python interpreters of other environments. They run this package out of its own files, so it need not be installed there."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

from tftrt_tools import errors

_PACKAGE = pathlib.Path(__file__).resolve().parent
# As `python -m MODULE ARGUMENTS`, with this package and nothing else of this environment.
_RUN_MODULE = """
import importlib.util, runpy, sys
place, module = sys.argv[1:3]
del sys.argv[1:3]
spec = importlib.util.spec_from_file_location("tftrt_tools", place + "/__init__.py", submodule_search_locations=[place])
sys.modules["tftrt_tools"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["tftrt_tools"])
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
# Variables that say where this environment has its packages.
_OWN_PLACES = ("PYTHONPATH", "PYTHONHOME")


def found(python: str, flag: str) -> str:
    """The path of the interpreter that a flag names. Links stay: the target of a virtual environment's Python lies outside of it.

    Raises: UsageError where there is no such program.
    """
    path = shutil.which(python)
    if path is None:
        raise errors.UsageError(f"--{flag}={python} is no program", "give the Python of an environment, such as ENVIRONMENT/bin/python")
    return os.path.abspath(path)


def command(python: str | None, module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package. Args: python: of another environment; None for this one."""
    if python is None:
        return [sys.executable, "-m", module, *arguments]
    return [python, "-c", _RUN_MODULE, str(_PACKAGE), module, *arguments]


def path_variables(python: str | None, search_path: str) -> dict[str, str | None]:
    """Variables for a process of `command`. Args: search_path: PYTHONPATH for this environment. A value of None unsets one."""
    return {"PYTHONPATH": search_path} if python is None else dict.fromkeys(_OWN_PLACES)
