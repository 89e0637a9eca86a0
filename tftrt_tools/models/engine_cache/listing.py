"""The contents of the cache, and what a command removed."""

import dataclasses
import typing
from collections.abc import Iterable

from tftrt_tools.base import records
from tftrt_tools.models.engine_cache.entry import Entry
from tftrt_tools.models.engine_cache.store import Store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listing(records.Record):
    """The entries of one cache, and what is wrong with it."""

    # Where the cache lies.
    folder: str
    # The most bytes that it may hold.
    max_bytes: int
    # The most recently used first.
    entries: tuple[Entry, ...]
    # Names of the entries that a command took away.
    removed: tuple[str, ...] = ()
    # What is wrong with the folder, or "".
    problem: str = ""
    document: typing.ClassVar[str] = "engine_cache"
    written_too: typing.ClassVar[tuple[str, ...]] = ("bytes",)

    @classmethod
    def of(cls, store: Store, removed: Iterable[str] = ()) -> "Listing":
        """Make the Listing of a Store as it is now."""
        entries = tuple(store.entries())
        return cls(
            folder=str(store.folder),
            max_bytes=store.max_bytes,
            entries=entries,
            removed=tuple(removed),
            problem=store.problem,
        )

    @property
    def bytes(self) -> int:
        """The bytes of all entries."""
        return sum(entry.bytes for entry in self.entries)
