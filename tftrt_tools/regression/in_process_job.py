"""The worker's side of `in_process`: both models in one process."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def make(request: Mapping[str, Any]) -> tuple[Callable[[int], Any], int]:
    """For load.function_load, in the worker: both models, the native one's calls first.

    Args: request: {"models": two requests of models.model.Kind.timed, each with "make": its "module:function"}.
    Returns: (function of a call's index, number of calls of both).
    """
    sides = []
    for one in request["models"]:
        module, _, function = one["make"].partition(":")
        sides.append(getattr(importlib.import_module(module), function)(one))
    count = sides[0][1]

    def infer(index: int) -> Any:
        sides[index // count][0](index % count)

    return infer, len(sides) * count
