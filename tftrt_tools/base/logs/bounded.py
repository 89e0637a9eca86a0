"""Tables that stay small however long a log is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Table(Generic[Key, Value]):
    """A table of rows by key, with a limit. It counts what comes after the limit and does not keep it."""

    def __init__(self, make: Callable[[], Value], most: int) -> None:
        """Args: make: a new row."""
        self._make, self._most = make, most
        self.rows: dict[Key, Value] = {}
        # How often a new row had no place.
        self.left_out = 0

    def row(self, key: Key) -> Value | None:
        """The row of a key, new or old, or None where there is no place for it."""
        old = self.rows.get(key)
        if old is not None:
            return old
        if len(self.rows) >= self._most:
            self.left_out += 1
            return None
        new = self.rows[key] = self._make()
        return new


class Counts:
    """How often each word came, for a limited number of words."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.of: dict[str, int] = {}
        # How often words came that had no place.
        self.left_out = 0

    def add(self, word: str, count: int = 1) -> None:
        """Count a word."""
        if word in self.of or len(self.of) < self._most:
            self.of[word] = self.of.get(word, 0) + count
        else:
            self.left_out += count

    def sorted(self) -> dict[str, int]:
        """{word: how often}, the most frequent first."""
        return dict(sorted(self.of.items(), key=lambda one: -one[1]))
