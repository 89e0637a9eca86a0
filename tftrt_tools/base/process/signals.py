"""Ctrl-C, SIGTERM and a limit of time end a command through its clean-up, but never during an import or the start of a process.

If a signal handler raises while numpy or TensorFlow is being imported, their C code turns the exception into an ImportError with two
tracebacks. If it raises inside subprocess.Popen, nobody knows the new process, and nobody ends it. So such a signal waits until the
import or the start is done, at most PATIENCE_SECONDS.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from types import FrameType

from tftrt_tools.base import errors
from tftrt_tools.base.process import background

# TensorFlow's import takes seconds on a slow disk. An import that hangs (of the user's module) must still be interruptible.
PATIENCE_SECONDS = 10
_AGAIN_SECONDS = 0.02
_IMPORT_FILE = "<frozen importlib._bootstrap>"
_START = subprocess.Popen.__init__.__code__


def install() -> None:
    """Set both handlers. SIGINT stays ignored where the parent process has set it so. An exception that a thread does not catch comes as
    SIGTERM does; LOST then tells it."""
    LOST.watch()
    signal.signal(signal.SIGTERM, _Handler(errors.Interrupted, "ended by SIGTERM"))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Handler(KeyboardInterrupt))


LOST = background.Lost(signal.SIGTERM, lambda: isinstance(signal.getsignal(signal.SIGTERM), _Handler))


class Limit:
    """A limit of time. over: whether it was reached."""

    def __init__(self) -> None:
        self.over = False


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[Limit]:
    """After so many seconds the block ends as by SIGTERM, by errors.Interrupted. Only for the main thread. Yields: Limit."""
    reached, handler = Limit(), _Handler(errors.Interrupted, "its time was over")

    def ring(number: int, frame: FrameType | None) -> None:
        reached.over = True
        handler(number, frame)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, _AGAIN_SECONDS))
    try:
        yield reached
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # A bell that waited for an import may still ring once.
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


class Noted:
    """What `noted` yields. came: whether a signal did."""

    def __init__(self) -> None:
        self.came = False


@contextlib.contextmanager
def noted() -> Iterator[Noted]:
    """Inside the block the first Ctrl-C or SIGTERM is only noted, for work that looks and ends what others do for it; the next one
    interrupts as ever. In another thread than the main one, where no signal comes, it does nothing. Yields: Noted."""
    found = Noted()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if found.came and callable(handler):
            handler(number, frame)
        found.came = True

    for number, handler in before.items():
        # What is ignored stays so, and what would end the process at once does.
        if callable(handler):
            signal.signal(number, note)
    try:
        yield found
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)


class _Handler:
    def __init__(self, kind: type[BaseException], *arguments: str) -> None:
        self._kind, self._arguments = kind, arguments
        self._since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if _busy(frame) and now - self._since < PATIENCE_SECONDS:
            again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        self._since = None
        if number == signal.SIGTERM:
            # A second SIGTERM must not interrupt the clean-up.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise self._kind(*self._arguments)


def _busy(frame: FrameType | None) -> bool:
    """Whether an import or the start of a process is under way."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FILE or frame.f_code is _START:
            return True
        frame = frame.f_back
    return False
