"""The trials of a work folder, a JSON line each: after an interruption, finished trials are not run again.

The first line says what they belong to: the model, the machine, and the flags that decide a figure. The file is written whole each time.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents, whole_file
from tftrt_tools.servers.serving.configuration.batching_file import Settings
from tftrt_tools.studies.batching.trial import Trial
from tftrt_tools.studies.batching.turns import Turns

NAME = "journal.jsonl"
_KIND, _VERSION = "batching journal", 1
_WHAT = {"model": "another model", "machine": "another machine or other versions"}


class Journal:
    """Args: folder: made if it is not there. of: {what: JSON value} that all its trials belong to. renamed: {name that a flag had before:
    its name}; a journal may have either. Raises: UsageError for a journal of something else; TftrtError for a damaged one; OSError."""

    def __init__(self, folder: pathlib.Path, of: Mapping[str, Any], renamed: Mapping[str, str] | None = None) -> None:
        self._renamed = renamed or {}
        self.path = folder / NAME
        folder.mkdir(parents=True, exist_ok=True)
        self._head = {"kind": _KIND, "schema_version": _VERSION, "of": json.loads(json.dumps(of))}
        self._trials: list[Trial] = []
        self._turns: list[tuple[Settings, Turns]] = []
        if self.path.is_file():
            self._read()
        self._write()  # a folder that cannot be written is told before any work

    def get(self, settings: Settings | None, floor: float | None) -> Trial | None:
        """The finished Trial of these parameters, or None. One that kept no rate counts only where the floor was no higher than now."""
        for trial in reversed(self._trials):
            if trial.settings == settings and (
                trial.rate is not None
                or trial.failure
                or trial.floor is None
                or (floor is not None and trial.floor <= floor)
            ):
                return trial
        return None

    def put(self, one: Trial) -> None:
        """Keep a Trial."""
        self._trials.append(one)
        self._write()

    def turns(self, settings: Settings, wanted: float) -> Turns | None:
        """The comparison of these parameters at that rate, or None."""
        return next((turns for known, turns in self._turns if known == settings and turns.wanted == wanted), None)

    def put_turns(self, settings: Settings, turns: Turns) -> None:
        """Keep a comparison."""
        self._turns.append((settings, turns))
        self._write()

    def _write(self) -> None:
        lines: list[Any] = [self._head, *({"trial": one.to_dict()} for one in self._trials)]
        lines += [{"settings": settings.to_dict(), "turns": turns.to_dict()} for settings, turns in self._turns]
        whole_file.write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))

    def _read(self) -> None:
        with documents.reading(self.path, "remove it, or take another --work_dir"):
            lines = documents.read_text(self.path).splitlines()
        for number, line in enumerate(lines if len(lines) > 1 else (), 1):  # one without trials belongs to nobody
            try:
                read = documents.parse_object(line)
                if number == 1:
                    self._check(read)
                elif "trial" in read:
                    self._trials.append(Trial.from_dict(read["trial"]))
                else:
                    self._turns.append((Settings.from_dict(read["settings"]), Turns.from_dict(read["turns"])))
            except documents.MISREAD as error:
                raise errors.TftrtError(
                    f"{self.path}, line {number} is damaged: {documents.reason(error)}",
                    "remove that line: its trial is then done again; without its first line remove the file",
                ) from None

    def _check(self, head: Mapping[str, Any]) -> None:
        if head["kind"] != _KIND or head["schema_version"] > _VERSION:
            raise errors.UsageError(f"{self.path} is no journal that this version can read", "take another --work_dir")
        there, own = dict(head["of"]), self._head["of"]
        if "flags" in there:
            there["flags"] = {self._renamed.get(name, name): value for name, value in there["flags"].items()}
        other = next((name for name in (*own, *there) if there.get(name) != own.get(name)), None)
        if other is not None:
            what = _WHAT.get(other) or f"other flags ({self._differing(there[other], own[other])})"
            raise errors.UsageError(
                f"{self.path} has trials of {what}", "take another --work_dir, or remove that folder"
            )

    @staticmethod
    def _differing(there: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
        names = sorted({*there, *mine})
        return ", ".join(f"--{name}" for name in names if there.get(name) != mine.get(name))
