"""What is in the cache, and what a command did to it."""

import dataclasses

from tftrt_tools.engine_cache.record import Entry


@dataclasses.dataclass(frozen=True)
class Listing:
    """folder: of the cache. max_bytes: what it may hold. entries: the most recently used first. removed: names of entries that a command
    took away. problem: what is wrong with the folder, or ""."""

    folder: str
    max_bytes: int
    entries: tuple
    removed: tuple = ()
    problem: str = ""

    @classmethod
    def of(cls, store, removed=()):
        """From a Store as it is now."""
        entries = tuple(store.entries())
        return cls(str(store.folder), store.max_bytes, entries, tuple(removed), store.problem)

    @property
    def bytes(self):
        """Bytes of all entries."""
        return sum(entry.bytes for entry in self.entries)

    def to_dict(self):
        return {"kind": "engine_cache", "folder": self.folder, "max_bytes": self.max_bytes, "bytes": self.bytes,
                "entries": [entry.to_dict() for entry in self.entries], "removed": list(self.removed), "problem": self.problem}

    @classmethod
    def from_dict(cls, data):
        return cls(data["folder"], data["max_bytes"], tuple(map(Entry.from_dict, data["entries"])), tuple(data["removed"]), data["problem"])
