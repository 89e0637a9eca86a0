"""Runs native work, which cannot be interrupted, in a thread: the caller reports its progress, and may stop waiting."""

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable
from typing import TypeVar

from tftrt_tools.base.process import background

T = TypeVar("T")


class NotReady(Exception):
    """The time was over before the work was done. It goes on in its thread until the process ends."""


@dataclasses.dataclass
class Budget:
    """Time for builds. minutes: for all together, from the first on; None for no bound."""

    minutes: float | None = None
    _until: float | None = None

    def until(self) -> float | None:
        """The end, a time of time.monotonic; the first call starts the clock. None for no bound."""
        if self.minutes is not None and self._until is None:
            self._until = time.monotonic() + 60 * self.minutes
        return self._until

    @property
    def over(self) -> bool:
        """Whether the clock was started and has run down."""
        return self._until is not None and time.monotonic() >= self._until


def run(work: Callable[[], T], tick: Callable[[float], None], until: float | None = None, every: float = 1.0) -> T:
    """Call `work` in a thread of its own; a native call that releases Python's lock stops nobody else.

    Args: tick: is called with the seconds that have passed, every `every` seconds. until: as of Budget.until.
    Returns: what `work` returns. Raises: what it raises; NotReady.
    """
    start = time.monotonic()
    done = background.start(work)
    while True:
        left = every if until is None else min(every, until - time.monotonic())
        try:
            return done.result(max(left, 0))
        except concurrent.futures.TimeoutError:
            if done.done():
                return done.result()
            if until is not None and time.monotonic() >= until:
                raise NotReady from None
            tick(time.monotonic() - start)
