"""Python interpreters of other environments, which run this package out of its own files, so it need not be installed there; and modules
of the user's own, which lie in the current folder."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import shutil
import sys
import types
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import starting

_PACKAGE = pathlib.Path(__file__).resolve().parents[2]
# As `python -m MODULE ARGUMENTS`, with this package and nothing else of this environment.
_RUN_MODULE = """
import sys
sys.path[:] = [place for place in sys.path if place]
import importlib.util, runpy
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
        raise errors.UsageError(
            f"--{flag}={python} is no program", "give the Python of an environment, such as ENVIRONMENT/bin/python"
        )
    return os.path.abspath(path)


def command(python: str | None, module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package. Args: python: of another environment; None for this one."""
    if python is None:
        return [sys.executable, "-m", module, *arguments]
    return [python, "-c", _RUN_MODULE, str(_PACKAGE), module, *arguments]


def path_variables(python: str | None, search_path: str) -> dict[str, str | None]:
    """Variables for a process of `command`. Args: search_path: PYTHONPATH for this environment. A value of None unsets one."""
    return {"PYTHONPATH": search_path} if python is None else dict.fromkeys(_OWN_PLACES)


def own_module(name: str) -> Any:
    """Import a module of the user's own: from the current folder, which comes behind all libraries. Raises: what the module raises."""
    look_here(name)
    return importlib.import_module(name)


def look_here(name: str) -> None:
    """Let the module `name` be found in the current folder. Raises: ImportError where a library has that name."""
    here, first = starting.current_folder(), name.partition(".")[0]
    if "" not in sys.path:
        sys.path.append("")
    importlib.invalidate_caches()
    places = os.path.join(here, first, "__init__.py"), os.path.join(here, first + ".py")
    own = next(filter(os.path.isfile, places), None)
    if own is None:
        return
    loaded = sys.modules.get(first)
    spec = loaded.__spec__ if isinstance(loaded, types.ModuleType) else importlib.util.find_spec(first)
    origin = spec.origin if spec is not None else None
    if origin and not os.path.realpath(origin).startswith(os.path.realpath(here) + os.sep):
        raise ImportError(
            f"{first} is also a module of Python or of a library ({origin}), which comes first; give {own} another name"
        )
