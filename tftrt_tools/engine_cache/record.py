"""What the cache says of an engine."""

import dataclasses
import pathlib

from tftrt_tools.engine_cache.key import EngineKey


@dataclasses.dataclass(frozen=True)
class Record:
    """An entry's record.json. key: EngineKey. sha256: hex, and bytes: of the engine file. build_seconds: what building it took, None
    where not known. origin: model and engine op that it was built for first, for people. driver: version there. tool, created: who wrote
    it, and when (UTC)."""

    key: EngineKey
    sha256: str
    bytes: int
    build_seconds: float | None
    origin: str
    driver: str
    tool: str
    created: str

    def to_dict(self):
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {"key": self.key.to_dict()}

    @classmethod
    def from_dict(cls, data):
        """Rebuild from `to_dict`. Raises: ValueError where `data` is no record that this version understands."""
        try:
            record = cls(**{**data, "key": EngineKey.from_dict(data["key"])})
        except (KeyError, TypeError, AttributeError):
            raise ValueError("it is no record of an engine") from None
        if not isinstance(record.bytes, int) or not isinstance(record.sha256, str):
            raise ValueError("it is no record of an engine")
        return record


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry as it lies there. name: EngineKey.name. record: None where it cannot be read, and problem says why. bytes: on disk.
    last_used: seconds since 1970."""

    name: str
    record: Record | None
    problem: str
    bytes: int
    last_used: float

    def to_dict(self):
        return dataclasses.asdict(self) | {"record": self.record and self.record.to_dict()}

    @classmethod
    def from_dict(cls, data):
        return cls(**{**data, "record": data["record"] and Record.from_dict(data["record"])})


@dataclasses.dataclass(frozen=True)
class Hit:
    """path: the copy that was made. record: what the cache says of it."""

    path: pathlib.Path
    record: Record
    hit = True


@dataclasses.dataclass(frozen=True)
class Miss:
    """reason: one line, for people. damaged: an entry was there, could not be used, and was removed."""

    reason: str
    damaged: bool = False
    hit = False


@dataclasses.dataclass(frozen=True)
class Stored:
    """done: whether the engine is in the cache now; reason: why not. evicted: names of the entries that made room."""

    done: bool
    reason: str = ""
    evicted: tuple = ()
