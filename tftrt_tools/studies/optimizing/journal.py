"""The steps of a work folder, one JSON file each, written whole: what an earlier run did need not be done again."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.studies.optimizing.step import Command, StepResult
from tftrt_tools.studies.tuning import journal

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
# In words of a command, what names a file that it makes or a folder of its own, and no input.
_MADE = re.compile(r"--(output\w*|json|html|plot|work_dir|base_path|log_file|engine_cache_dir)=")


class Journal:
    """Opened on a folder, which it makes."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises: OSError."""
        self.folder = pathlib.Path(folder)
        self._steps = self.folder / "steps"
        self._steps.mkdir(parents=True, exist_ok=True)
        self._digests: dict[str, str] = {}

    def document(self, name: str) -> str:
        """The path of a command's result."""
        return str(self.folder / f"{name}.json")

    def key(self, command: Command, facts: Mapping[str, Any]) -> str:
        """A digest of everything that a command's result depends on: its words, the bytes of the files that they name, and `facts`."""
        named = [*command.words[1:], *command.inputs]
        read = (word for word in named if not _MADE.match(word) and word not in command.outputs)
        inputs = {word: self._digest(_value(word)) for word in read}
        known = {word: found for word, found in inputs.items() if found}
        return journal.key(words=list(command.words), inputs=known, facts=dict(facts))

    def get(self, command: Command, key: str) -> tuple[StepResult, dict[str, Any]] | None:
        """(StepResult, the command's result) of an earlier run with the same key, if everything that it wrote is still there as it was;
        else None."""
        kept = _read(self._path(command.name))
        if not kept or kept.get("key") != key or kept.get("outputs") != self._outputs(command.outputs):
            return None
        try:
            result = StepResult.from_dict(kept["result"])
        except (KeyError, TypeError, ValueError):
            return None
        # The journal may have been moved, or be another's: it does not say which files are read.
        result = dataclasses.replace(result, file=self.document(command.name))
        document = _read(pathlib.Path(result.file))
        return (result, document) if document is not None else None

    def put(self, command: Command, key: str, result: StepResult) -> None:
        """Keep a step that ran to its end."""
        self.changed(command.outputs)
        journal.keep(
            self._path(command.name),
            "step",
            key,
            {"outputs": self._outputs(command.outputs), "result": result.to_dict()},
        )

    def made(self, path: str) -> bool:
        """Whether a step of this folder made what is at `path`, as it is now."""
        for step in sorted(self._steps.glob("*.json")):
            outputs = (_read(step) or {}).get("outputs") or {}
            if any(
                os.path.abspath(one) == os.path.abspath(path) and digest == self._digest(path)
                for one, digest in outputs.items()
            ):
                return True
        return False

    def changed(self, paths: Iterable[str]) -> None:
        """Forget the digests of paths that a step has written."""
        for path in paths:
            self._digests.pop(path, None)

    def _outputs(self, paths: Sequence[str]) -> dict[str, str]:
        return {path: self._digest(path) for path in paths}

    def _digest(self, text: str) -> str:
        """The digest of the files that a text names; "" if it names none. The user's own function counts by the file of its module."""
        if text not in self._digests:
            self._digests[text] = _digest(text)
        return self._digests[text]

    def _path(self, name: str) -> pathlib.Path:
        return self._steps / f"{name}.json"


def _value(word: str) -> str:
    """What a word may name: the value of a flag, or the word itself."""
    return word.partition("=")[2] if word.startswith("--") else word


def _digest(text: str) -> str:
    if not text:
        return ""
    if os.path.exists(text):
        return files.digest(text)
    if _FUNCTION.match(text):
        module = text.partition(":")[0].replace(".", "/") + ".py"
        return files.digest(module) if os.path.isfile(module) else ""
    matched = (
        sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path)) if glob.has_magic(text) else []
    )
    return "sha256:" + hashlib.sha256("".join(map(files.digest, matched)).encode()).hexdigest() if matched else ""


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    """A JSON object, None where there is none that can be read. Raises: TftrtError for one of a newer version."""
    try:
        found = documents.read(path)
        documents.check(found, {"schema_version": int})
    except (OSError, ValueError):
        return None
    if found.get("kind") == "step" and (found.get("schema_version") or 0) > passport.SCHEMA_VERSION:
        raise errors.TftrtError(
            f"{path} was written by a newer tftrt-tools", "upgrade tftrt-tools, or take another --work_dir"
        )
    return found
