"""Threads whose exceptions are not lost: a function's result or exception comes with its future, and an exception that no code catches ends
what the process does."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def start(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Call `work` in a thread of its own, which does not keep the process. Returns: the future of what it returns or raises."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    threading.Thread(target=_fill, args=(done, work), daemon=True).start()
    return done


def _fill(done: concurrent.futures.Future[T], work: Callable[[], T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)


class Lost:
    """Exceptions that no code of their thread has caught. The first one interrupts the main thread by a signal; what ends the work there
    calls `raise_first`."""

    def __init__(self, number: signal.Signals, is_heard: Callable[[], bool] = lambda: True) -> None:
        """Args: number: of the signal. is_heard: whether a handler of that signal raises an exception in the main thread."""
        self._number, self._is_heard = number, is_heard
        self._errors: list[BaseException] = []

    def watch(self) -> None:
        """Start to watch for uncaught exceptions, and forget those before."""
        self._errors.clear()
        threading.excepthook = self._take

    def raise_first(self) -> None:
        """Raise the first exception, if there is one."""
        if self._errors:
            raise self._errors[0]

    def _take(self, lost: threading.ExceptHookArgs) -> None:
        if lost.exc_value is None or lost.exc_type is SystemExit:
            return
        self._errors.append(lost.exc_value)
        if len(self._errors) == 1 and self._is_heard():
            signal.pthread_kill(threading.main_thread().ident or 0, self._number)


def end_process(lost: threading.ExceptHookArgs) -> None:
    """A threading.excepthook for a process whose parent sees that it has ended: print the traceback, and end."""
    traceback.print_exception(lost.exc_type, lost.exc_value, lost.exc_traceback)
    sys.stderr.flush()
    os._exit(1)
