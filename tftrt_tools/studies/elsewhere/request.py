"""What a machine is asked to run, and what it answers. Paths are those of the machine where the command was typed."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection

from tftrt_tools.base import records
from tftrt_tools.models.savedmodel import files as model_files

# In a word: the folder that stands for / on the other machine. No word of a command line can have this character.
ROOT = "\0"
# In what a machine makes: what its command printed, and the files that it wrote.
STDOUT, STDERR, FILES = "stdout", "stderr", "files"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """A command. words: behind `tftrt`; an absolute path begins with ROOT.

    The other fields are absolute paths. current: where it was typed. files: that it may write; families: the same, with others whose names
    begin alike (model.onnx, model.onnx.data). folders: that it may write as a whole. models: directories in which it keeps a result."""

    words: tuple[str, ...]
    current: str
    files: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def may_write(self, path: str) -> bool:
        """Whether a file, by its absolute path, belongs to what the flags name."""
        place = pathlib.PurePosixPath(path)
        if ".." in place.parts:
            return False
        return (
            path in self.files
            or any(_of_family(place, pathlib.PurePosixPath(one)) for one in self.families)
            or any(pathlib.PurePosixPath(one) in place.parents for one in self.folders)
            or self.model_of(path) is not None
        )

    def model_of(self, path: str) -> str | None:
        """The model in whose passport a file lies; None for another one."""
        place = pathlib.PurePosixPath(path)
        return next(
            (one for one in self.models if pathlib.PurePosixPath(one, model_files.PASSPORT) in place.parents), None
        )

    def came(self, place: str, made: Collection[str]) -> bool:
        """Whether what is written at one of its places is among these paths: of a family, any of it."""
        first = pathlib.PurePosixPath(place)
        return (
            place in made
            or place in self.families
            and any(_of_family(pathlib.PurePosixPath(one), first) for one in made)
        )

    def written(self) -> tuple[str, ...]:
        """All paths that are written."""
        return (*self.files, *self.families, *self.folders)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Response(records.Record):
    """What became of it. exit_code: of the command. made: files, by their absolute paths. left: files that it wrote and no flag names; they
    stay there. foreign: those of `made` that name a path of that machine."""

    exit_code: int
    made: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def below(folder: str | os.PathLike[str], path: str) -> pathlib.Path:
    """Where an absolute path lies below a folder that stands for /."""
    return pathlib.Path(folder, path.lstrip("/"))


def _of_family(place: pathlib.PurePosixPath, first: pathlib.PurePosixPath) -> bool:
    return place.parent == first.parent and (
        place.name.startswith((f"{first.name}.", f"{first.stem}.")) or place == first
    )
