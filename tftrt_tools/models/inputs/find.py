"""Finds which kind of data --data or --calibration_data names, and its files. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
import re
from collections.abc import Iterator

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import foreign

_KINDS = {
    "arrays": (".npz", ".npy"),
    "tfrecords": (".tfrecord", ".tfrecords"),
    "images": (".jpg", ".jpeg", ".png", ".bmp", ".gif"),
    "tables": (".csv", ".tsv"),
    "texts": (".txt",),
}
# Beside other data these files are lists of labels and notes, and not data.
_BESIDE = ("tables", "texts")
_SHARD = re.compile(r"\.tfrecords?(-\d+-of-\d+)?$")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
# The names, in messages, of a calibration's data and of data that is an argument.
FLAG, POSITIONAL = "--calibration_data", ""
KNOWN = ".npz or .npy, .tfrecord, pictures (" + ", ".join(_KINDS["images"]) + "), .csv, .txt"


@dataclasses.dataclass(frozen=True)
class Found:
    """kind: "arrays", "tfrecords", "images", "tables", "texts", "files" (of no known kind: whole files, for inputs that take strings) or
    "function"; files: paths in order, () for a function."""

    kind: str
    files: tuple[str, ...]

    @property
    def by_file(self) -> bool:
        """Whether each file is a row."""
        return self.kind in ("images", "files") or self.kind == "texts" and len(self.files) > 1


def find(source: str, said: str = FLAG) -> Found:
    """What `source` names: a file, a folder (with its sub-folders; hidden files are left out), a glob, or module:function.

    Args: said: the flag that named it, for messages; "" for an argument.
    Returns: Found. Raises: UsageError if it finds no known kind, or more than one.
    """
    if is_function(source):
        return Found("function", ())
    said = f"{said}={source}" if said else source
    foreign.check(source, said)
    files = _files(source, said)
    kinds: dict[str, list[str]] = {}
    for path in files:
        kinds.setdefault(_kind(path), []).append(path)
    others = kinds.pop("", [])
    if set(kinds) - set(_BESIDE):
        kinds = {kind: paths for kind, paths in kinds.items() if kind not in _BESIDE}
    if not kinds:
        return Found("files", _whole(others, source, said))
    if len(kinds) > 1:
        counts = ", ".join(f"{len(paths)} {kind} ({pathlib.Path(paths[0]).name})" for kind, paths in kinds.items())
        raise errors.UsageError(
            f"{said} holds data of several kinds: {counts}",
            "give one kind: a sub-folder, or a glob such as 'DIR/*.npz'",
        )
    ((kind, paths),) = kinds.items()
    return Found(kind, tuple(paths))


def is_function(source: str) -> bool:
    """Whether a text names a function of the user's own, module:function, and no file."""
    return not os.path.lexists(source) and bool(_FUNCTION.match(source))


def _whole(files: list[str], source: str, said: str) -> tuple[str, ...]:
    """Files of no known kind; a model that takes strings may decode them. Raises: UsageError if there are none."""
    if not files:
        what = "matches no file" if not os.path.exists(source) else "holds no file of a known kind"
        raise errors.UsageError(f"{said} {what}", f"known: {KNOWN}, or module:function")
    for path in files:
        if files != [source]:
            foreign.check(path, f"{said} holds {pathlib.Path(path).name}, which")
    return tuple(files)


def _files(source: str, said: str) -> list[str]:
    if os.path.isdir(source):
        return sorted(_walk(source))
    if os.path.exists(source):
        return [source]
    if glob.has_magic(source):
        return sorted(path for path in glob.glob(source, recursive=True) if os.path.isfile(path))
    raise errors.UsageError(
        f"{said}: no such file or folder", f"give {KNOWN}, a folder of one kind, a glob, or module:function"
    )


def _walk(folder: str) -> Iterator[str]:
    """Files below `folder`, through links to folders too, each folder once."""
    seen: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:
            folders[:] = []
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(root, name) for name in names if not name.startswith("."))


def _kind(path: str) -> str:
    name = pathlib.Path(path).name.lower()
    if _SHARD.search(name):
        return "tfrecords"
    matching = next((kind for kind, endings in _KINDS.items() if name.endswith(endings)), "")
    return "arrays" if not matching and foreign.is_arrays(path) else matching


def is_picture(name: str) -> bool:
    """Whether a file is a picture, by its name."""
    return name.strip().lower().endswith(_KINDS["images"])


def spread(total: int, count: int) -> list[int]:
    """`count` of the numbers 0 .. total - 1 at even distances, in order; all if there are fewer."""
    return (
        sorted({(2 * number + 1) * total // (2 * count) for number in range(count)})
        if count < total
        else list(range(total))
    )
