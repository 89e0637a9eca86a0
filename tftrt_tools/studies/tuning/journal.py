"""The trials of a work folder, one JSON file each, written whole: after an interruption, finished trials need not run again."""

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents, whole_file
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.tuning.tried import Measured
from tftrt_tools.tftrt.conversion.settings import Settings

_NAME = re.compile(r"trial-([0-9]{4,})\.json")


def key(**facts: object) -> str:
    """A digest of everything that a measurement depends on (JSON values). Returns: "sha256:…"."""
    return "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def keep(path: pathlib.Path, kind: str, wanted: str, what: Mapping[str, Any]) -> None:
    """Write an entry of a work folder, whole. Args: kind: of the document; wanted: its key; what: JSON values that are kept under it."""
    document = {"kind": kind, "schema_version": passport.SCHEMA_VERSION, **passport.stamp(), "key": wanted, **what}
    whole_file.write_text(path, json.dumps(document, indent=2) + "\n")


class Journal:
    """Opened on a folder, which it makes."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises: TftrtError where a trial there is damaged or of a newer version, OSError."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._measured: dict[str, Any] = {}
        self._last = 0
        for path in sorted(self.folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match:
                self._last = max(self._last, int(match[1]))
                document = _read(path)
                self._measured[document["key"]] = document["measured"]

    @property
    def seconds(self) -> float:
        """Wall time of all its trials."""
        return sum(Measured.from_dict(one).seconds for one in self._measured.values())

    def get(self, wanted: str) -> Measured | None:
        """The Measured of a key, or None."""
        found = self._measured.get(wanted)
        return Measured.from_dict(found) if found else None

    def put(self, wanted: str, settings: Settings, measured: Measured, backend: str) -> pathlib.Path:
        """Keep a trial. Args: settings, backend: for people. Returns: the file."""
        self._last += 1
        # Another process may have written some since this one read the folder.
        while (path := self.folder / f"trial-{self._last:04d}.json").exists():
            self._last += 1
        kept = {"backend": backend, "settings": settings.to_dict(), "measured": measured.to_dict()}
        keep(path, "trial", wanted, kept)
        self._measured[wanted] = kept["measured"]
        return path

    def fact(self, name: str, wanted: str, make: Callable[[], Any]) -> Any:
        """A JSON value that is expensive to make: read from NAME-<digest>.json, or made by `make()` and kept there."""
        path = self.folder / f"{name}-{wanted.removeprefix('sha256:')[:16]}.json"
        if path.is_file():
            return _read(path)["value"]
        value = make()
        keep(path, name, wanted, {"value": value})
        return value


def _read(path: pathlib.Path) -> dict[str, Any]:
    with documents.reading(path, "remove it: its trial is then done again"):
        document = documents.read(path)
        if document["schema_version"] > passport.SCHEMA_VERSION:
            raise errors.TftrtError(
                f"{path} was written by a newer tftrt-tools", "upgrade tftrt-tools, or take another --work_dir"
            )
        if "value" in document:
            return dict(document)
        # An empty trial would be read as one without a failure.
        document["measured"]["failure"], Measured.from_dict(document["measured"])
        return {"key": str(document["key"]), "measured": document["measured"]}
