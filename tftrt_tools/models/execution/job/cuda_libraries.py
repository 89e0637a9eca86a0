"""Where the CUDA libraries of the environment's wheels lie."""

from __future__ import annotations

import ctypes
import importlib.util
import pathlib


def cupti() -> str:
    """The path of CUPTI, or its bare name for the loader."""
    return _found("cuda_cupti", "libcupti.so.*") or "libcupti.so"


# TensorRT 8.5 comes with CUDA 11, later releases with the others.
_RUNTIMES = ("libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13")


def runtime() -> str:
    """The path of a wheel's CUDA runtime, or the bare name of one that the loader finds."""
    wheels = ((package, name) for package in ("cuda_runtime", "cu13") for name in _RUNTIMES)
    return next(filter(None, (_found(*one) for one in wheels)), None) or next(filter(_loads, _RUNTIMES), _RUNTIMES[0])


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _found(package: str, pattern: str) -> str | None:
    """The path of a library of an `nvidia` wheel; None where the wheel is not there."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{package}")
    except ModuleNotFoundError:
        return None
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return next((str(path) for folder in folders for path in sorted(pathlib.Path(folder, "lib").glob(pattern))), None)
