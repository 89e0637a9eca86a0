"""A loaded object and the requests that are in it."""

import threading


class Held:
    """Counts who uses `loaded`. Once retired nobody new gets in, and the last one out calls a function."""

    __slots__ = ("loaded", "_lock", "_users", "_retired", "_on_idle")

    def __init__(self, loaded):
        self.loaded = loaded
        self._lock = threading.Lock()
        self._users = 0
        self._retired = False
        self._on_idle = None

    def enter(self):
        """Returns: False where it is retired; else `leave` must follow."""
        with self._lock:
            if self._retired:
                return False
            self._users += 1
            return True

    def leave(self):
        with self._lock:
            self._users -= 1
            call = self._on_idle if self._retired and not self._users else None
        if call:
            call()

    def retire(self, on_idle):
        """Let nobody new in. May be called again, to change the function.

        Args: on_idle: called once, by the last one to leave. Returns: True where nobody is in: then it is not called.
        """
        with self._lock:
            self._retired = True
            self._on_idle = on_idle
            return not self._users

    def is_idle(self):
        with self._lock:
            return self._retired and not self._users


class Handle:
    """`with handle as loaded`: in use for as long as the block lasts. acquire: function () -> Held that was entered, or raises."""

    __slots__ = ("_acquire", "_held")

    def __init__(self, acquire):
        self._acquire = acquire
        self._held = None

    def __enter__(self):
        self._held = self._acquire()
        return self._held.loaded

    def __exit__(self, *_):
        held, self._held = self._held, None
        held.leave()
