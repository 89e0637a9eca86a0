"""Measures how long calls take, in the process that makes them."""

from __future__ import annotations

import time
from collections.abc import Callable

WARM_UP_CALLS = 20


def seconds(call: Callable[[], object]) -> float:
    """The seconds that one call takes. Args: call: function without arguments."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
