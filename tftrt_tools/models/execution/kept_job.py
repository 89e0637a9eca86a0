"""The models that stay loaded in this process between requests: the one place of child processes that keeps them open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from tftrt_tools.models.execution.runner import Wanted

Loaded = TypeVar("Loaded")
# A context that nothing refers to would close at once, and the engines go when their model goes.
_OPEN = contextlib.ExitStack()


def kept(
    load: Callable[[str, Wanted], AbstractContextManager[Loaded]], path: str, wanted: Wanted, beside: bool = False
) -> Loaded:
    """Load a model and keep it open as long as the process lives, or until another one is loaded in its place.

    Args: load: of the model's kind. beside: also keep the models that were loaded before. Without it they are closed first, so that two
      never need the GPU's memory at once; the caller has to drop its references to them.
    Returns: the loaded model. Raises: what `load` raises.
    """
    if not beside:
        _OPEN.close()
    return _OPEN.enter_context(load(path, wanted))
