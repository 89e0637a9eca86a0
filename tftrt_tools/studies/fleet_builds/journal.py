"""What the kinds in OUTPUT were built from, so that the same command takes over what an earlier one has built there:

OUTPUT/.tftrt-build.json    an entry for each kind, written whole before the kind gets its name; it counts as long as the files are those
OUTPUT/.tftrt-build.lock    held (flock) while a command builds into OUTPUT
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents, locks, whole_file
from tftrt_tools.fleet.stack import Stack
from tftrt_tools.models.savedmodel import files, passport, staging

# `publish` takes no name with a dot for a kind.
NAME, _LOCK = ".tftrt-build.json", ".tftrt-build.lock"
MEND = "add --overwrite to build all kinds anew"
# What is read without a look at its type.
_SHAPE = {str: {"origin!": {"request!": {"options!": dict}}, "built!": dict}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin(records.Record):
    """What a kind was built from. content: the `identity` of the model. request: what a machine was asked, but for its bounds of time.
    stack: that a machine had to have."""

    content: str
    request: Mapping[str, Any]
    stack: Stack

    def differs(self, now: Origin) -> str:
        """In what this one is not `now`, in words; "" where they are the same."""
        if self.content != now.content:
            return "it was built from another model"
        if self.request != now.request:
            there, asked = _flat(self.request), _flat(now.request)
            names = sorted(name for name in {*there, *asked} if there.get(name) != asked.get(name))
            return f"it was built with other settings ({', '.join(names)})"
        return f"it was built with {line}" if (line := self.stack.unlike(now.stack)) else ""


def _flat(request: Mapping[str, Any]) -> dict[str, Any]:
    return {**request, **request.get("options", {}), "options": None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(records.Record):
    """A kind. digest: of the model that it is then, as `identity`. built: of the command that wrote it, as JSON."""

    origin: Origin
    digest: str
    built: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Written(passport.Stamped, records.Record):
    entries: Mapping[str, Entry]
    schema_version: int = passport.SCHEMA_VERSION

    document: typing.ClassVar[str] = "fleet journal"


def identity(model: str | os.PathLike[str]) -> str:
    """A digest of a model's files and of what says how it was made. What `verify` and the like keep beside them does not change it.
    Raises: OSError."""
    manifest = passport.folder(model) / passport.MANIFEST
    made = manifest.read_bytes() if manifest.is_file() else b""
    return "sha256:" + hashlib.sha256(files.digest(model).encode() + made).hexdigest()


class Journal:
    """Of an OUTPUT that this process holds; made by `held`. path: of its file."""

    def __init__(self, folder: pathlib.Path, entries: Mapping[str, Entry]) -> None:
        self.path, self._entries = folder / NAME, dict(entries)

    def kinds(self) -> tuple[str, ...]:
        """Those that have an entry, sorted."""
        return tuple(sorted(self._entries))

    def refused(self, kind: str, target: pathlib.Path, now: Origin) -> str:
        """Why the kind at `target` is not what a build from `now` would make, in words; "" where it is. Raises: OSError."""
        entry = self._entries.get(kind)
        if entry is None:
            return "nothing says what it was built from"
        if line := entry.origin.differs(now):
            return line
        return "its files have changed since it was built" if identity(target) != entry.digest else ""

    def built(self, kind: str) -> Mapping[str, Any]:
        """What the command that built it said."""
        return self._entries[kind].built

    def put(self, kind: str, origin: Origin, model: pathlib.Path, built: Mapping[str, Any]) -> None:
        """Keep a kind whose files are at `model` before they get its name. Raises: OSError."""
        entries = {**self._entries, kind: Entry(origin=origin, digest=identity(model), built=built)}
        document = _Written(entries=entries).to_dict()
        whole_file.write_text(self.path, json.dumps(document, indent=2) + "\n")
        self._entries = entries


@contextlib.contextmanager
def held(output: str, anew: bool) -> Iterator[Journal]:
    """Hold the directory OUTPUT, which is made; at the end it goes again if it is empty.

    Args: anew: whether all kinds are built: then what an earlier command wrote need not be readable. Raises: TftrtError where another
      command holds it, and for a journal that is damaged or of a newer version; OSError.
    """
    folder = pathlib.Path(os.path.abspath(output))
    made = staging.make_parents(folder)
    lock = None
    try:
        try:
            lock = locks.acquire(folder / _LOCK, wait=False)
            if lock is None:
                raise errors.TftrtError(
                    f"another `tftrt build --on` builds into {folder}", "wait for it, or choose another --output"
                )
        except OSError as error:
            if error.errno not in locks.UNSUPPORTED:
                raise
        yield Journal(folder, _read(folder / NAME, anew))
    finally:
        if lock is not None:
            locks.release(lock, folder / _LOCK)
        staging.remove_empty(made)


def _read(path: pathlib.Path, anew: bool) -> Mapping[str, Entry]:
    if not path.is_file():
        return {}
    try:
        with documents.reading(path, MEND):
            document = documents.read(path)
            if document["kind"] != _Written.document or document["schema_version"] > passport.SCHEMA_VERSION:
                raise errors.TftrtError(
                    f"{path} was not written by this version of tftrt-tools, or by one before",
                    "upgrade tftrt-tools, or choose another --output",
                )
            documents.check(document["entries"], _SHAPE)
            return _Written.from_dict(document).entries
    except errors.TftrtError:
        if anew:
            return {}
        raise
