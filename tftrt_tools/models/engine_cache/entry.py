"""The cache's records of engines."""

import dataclasses
import pathlib
import typing

from tftrt_tools.base import records
from tftrt_tools.models.engine_cache.key import EngineKey
from tftrt_tools.models.engine_cache.plan_key import PlanKey

# Of an engine of TF-TRT, or of a plan. A file says which by its fields.
Key = EngineKey | PlanKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineRecord(records.Record):
    """An entry's record.json."""

    # What the engine depends on.
    key: Key
    # Digest of the engine file, hex.
    sha256: str
    # Size of the engine file.
    bytes: int
    # Seconds to build it; None where not known.
    build_seconds: float | None
    # The model and the engine op that it was built for first, for people; of a plan the model alone.
    origin: str
    # Version of the GPU's driver at that time.
    driver: str
    # Who wrote the record, and when (UTC).
    tool: str
    created: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(records.Record):
    """An entry in the cache's folder."""

    # The key's name.
    name: str
    # None where it cannot be read.
    record: EngineRecord | None
    # Why it cannot be read, or "".
    problem: str
    # On disk.
    bytes: int
    # Seconds since 1970.
    last_used: float


@dataclasses.dataclass(frozen=True)
class Hit:
    """path: the copy that was made. record: its EngineRecord."""

    path: pathlib.Path
    record: EngineRecord
    hit: typing.ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class Miss:
    """reason: one line, for people. damaged: an entry was there, could not be used, and was removed."""

    reason: str
    damaged: bool = False
    hit: typing.ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class Stored:
    """done: whether the engine is in the cache now; reason: why not. evicted: names of the entries that made room."""

    done: bool
    reason: str = ""
    evicted: tuple[str, ...] = ()
