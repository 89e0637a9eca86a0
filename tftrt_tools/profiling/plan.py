"""Asks child processes what the engines of a model tell of themselves on this machine's GPU: raw facts, part by part."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools import child, errors

# What is asked, each in a process of its own. told: sizes, shapes, names; timed: latency, each layer by IProfiler, clocks; traced: kernels
# and TensorRT's ranges by CUPTI; graph: a CUDA graph; streams: several contexts; tensorflow: the kernels by TensorFlow's profiler.
PARTS = ("told", "timed", "traced", "graph", "streams", "tensorflow")
_JOB = "tftrt_tools.profiling.job.plan_job:record"
_TIMEOUT = 150.0
_LOG_END = 4000


def record(model: str | os.PathLike[str], part: str, folder: str | os.PathLike[str],
           shapes: Mapping[str, Sequence[Sequence[int]]] | None = None) -> dict[str, Any]:
    """One part, of every engine and profile of `model`.

    Args: folder: where traces that are files go. shapes: {engine: shape of each input}; by default what each profile was tuned for.
    Returns: {"answers": [facts of an engine and profile], "log": its end}, or {"error": why there are none, "log"}.
    """
    request = {"model": str(model), "part": part, "shapes": shapes, "folder": str(folder)}
    try:
        outcome = child.run(_JOB, request, env=_environment(part), timeout=_TIMEOUT)
    except child.ChildDied as error:
        return {"error": str(error), "log": error.log[-_LOG_END:]}
    except (errors.TftrtError, child.ChildBug) as error:
        return {"error": str(error)[-_LOG_END:], "log": ""}
    return {"answers": outcome.result, "log": outcome.log[-_LOG_END:]}


def _environment(part: str) -> dict[str, str]:
    """TensorRT's ranges reach CUPTI only if NVTX is told of it before TensorRT is loaded. TensorFlow's own CUPTI wants to be alone."""
    return {"NVTX_INJECTION64_PATH": cupti_path()} if part == "traced" else {}


def cupti_path() -> str:
    """CUPTI of the environment's wheels, or its bare name for the loader."""
    return wheel_library("cuda_cupti", "libcupti.so.*") or "libcupti.so"


def wheel_library(package: str, pattern: str) -> str | None:
    """The path of a library of an `nvidia` wheel; None where the wheel is not there."""
    try:
        found = importlib.util.find_spec(f"nvidia.{package}")
    except ModuleNotFoundError:
        return None
    folders = [] if found is None else list(found.submodule_search_locations or ())
    return next((str(path) for folder in folders for path in sorted(pathlib.Path(folder, "lib").glob(pattern))), None)
