"""Where the CUDA libraries of the environment's wheels lie."""

from __future__ import annotations

import importlib.util
import pathlib


def cupti() -> str:
    """CUPTI, or its bare name for the loader."""
    return _found("cuda_cupti", "libcupti.so.*") or "libcupti.so"


def runtime() -> str:
    """The CUDA 11 runtime, or its bare name for the loader."""
    return _found("cuda_runtime", "libcudart.so.11.0") or "libcudart.so.11.0"


def _found(package: str, pattern: str) -> str | None:
    """The path of a library of an `nvidia` wheel; None where the wheel is not there."""
    try:
        found = importlib.util.find_spec(f"nvidia.{package}")
    except ModuleNotFoundError:
        return None
    folders = [] if found is None else list(found.submodule_search_locations or ())
    return next((str(path) for folder in folders for path in sorted(pathlib.Path(folder, "lib").glob(pattern))), None)
