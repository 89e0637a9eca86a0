"""A loaded object and the requests that use it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Loaded = TypeVar("Loaded")


class Held(Generic[Loaded]):
    """Counts the users of `loaded`. Once it is retired nobody new may enter, and the last one to leave calls a function."""

    __slots__ = ("loaded", "_lock", "_users", "_retired", "_on_idle")

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._lock = threading.Lock()
        self._users = 0
        self._retired = False
        self._on_idle: Callable[[], object] | None = None

    def enter(self) -> bool:
        """Returns: False where it is retired; else `leave` must follow."""
        with self._lock:
            if self._retired:
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            call = self._on_idle if self._retired and not self._users else None
        if call:
            call()

    def retire(self, on_idle: Callable[[], object]) -> bool:
        """Let no new user in. It may be called again, to change the function.

        Args: on_idle: called once, by the last one to leave. Returns: True where nobody is in: then it is not called.
        """
        with self._lock:
            self._retired = True
            self._on_idle = on_idle
            return not self._users

    def is_idle(self) -> bool:
        with self._lock:
            return self._retired and not self._users


class Handle(Generic[Loaded]):
    """`with handle as loaded`: in use for as long as the block lasts. acquire: function () -> Held that was entered, or raises."""

    __slots__ = ("_acquire", "_held")

    def __init__(self, acquire: Callable[[], Held[Loaded]]) -> None:
        self._acquire = acquire
        self._held: Held[Loaded] | None = None

    def __enter__(self) -> Loaded:
        self._held = self._acquire()
        return self._held.loaded

    def __exit__(self, *_: object) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.leave()
