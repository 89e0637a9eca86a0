"""Loads a model of any kind into this process."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager

from tftrt_tools.models.execution.runner import Load, Runner, Wanted
from tftrt_tools.models.kinds import table


def load(path: str, wanted: Wanted) -> AbstractContextManager[Runner]:
    """The model's Runner, for a block. Raises: UsageError, TftrtError."""
    function: Load = importlib.import_module(table.kind(path).runtime.jobs).load
    return function(path, wanted)
