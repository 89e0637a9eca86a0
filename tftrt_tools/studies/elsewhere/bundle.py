"""What a command reads, in one folder that stands for /: each file at its own path, as a link that `content.pack` follows."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator

from tftrt_tools.base import errors
from tftrt_tools.base.files import linked, scratch
from tftrt_tools.studies.elsewhere import request

# {path below a folder: what tells a file from a later one of its name}.
State = dict[str, tuple[int, int, int]]


@contextlib.contextmanager
def bundled(paths: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
    """A folder with links to all files below `paths`, and with empty `folders`, where the command may write. Args: both: absolute paths.
    Yields: its path. Raises: UsageError for what is no file and no folder; OSError."""
    with scratch.folder("send") as home:
        root = os.path.join(home, "root")
        os.mkdir(root)
        for folder in folders:
            request.below(root, folder).mkdir(parents=True, exist_ok=True)
        for path in paths:
            _link(path, root)
        yield root


def check(path: str) -> None:
    """Refuse what is no file and no folder. Raises: UsageError."""
    if not os.path.isfile(path) and not os.path.isdir(path):
        what = "is a pipe or a device" if os.path.exists(path) else "leads to nothing"
        raise errors.UsageError(f"{path} {what}: it cannot travel", "give a file or a folder")


def _link(path: str, root: str) -> None:
    if not os.path.isdir(path):
        _link_file(path, root)
        return
    for folder, _, found in linked.walk(path):
        request.below(root, str(folder)).mkdir(parents=True, exist_ok=True)
        for name in found:
            _link_file(str(folder / name), root)


def _link_file(path: str, root: str) -> None:
    check(path)
    place = request.below(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        place.symlink_to(os.path.realpath(path))


def state(folder: str | os.PathLike[str]) -> State:
    """The State of all files in a folder."""
    top = pathlib.Path(folder)
    found: State = {}
    for one in top.rglob("*"):
        if one.is_file():
            facts = one.stat()
            found[str(one.relative_to(top))] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return found
