"""The worker's side of `in_process`: both models in one process, or one of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def make(request: Mapping[str, Any]) -> tuple[Callable[[int], Any], int]:
    """For load.function_load, in the worker: the models, with the calls of the first before those of the second.

    Args: request: {"models": one or two requests of bench.in_process.maker, each with "make": its "module:function"}.
    Returns: (function of a call's index, number of calls of all).
    """
    sides = []
    for one in request["models"]:
        module, _, function = one["make"].partition(":")
        sides.append(getattr(importlib.import_module(module), function)(one))
    count = sides[0][1]

    def infer(index: int) -> Any:
        sides[index // count][0](index % count)

    return infer, len(sides) * count
