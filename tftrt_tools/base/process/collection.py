"""Python's garbage collector while large modules are imported."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pause the collector, and exempt all objects made in this block from later collections.

    TensorFlow's import makes hundreds of thousands of objects that stay. Searching them for garbage takes a fifth of the import's time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
