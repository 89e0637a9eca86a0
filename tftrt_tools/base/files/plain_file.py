"""Plain files, in folders that are put in place whole or are thrown away; where one cannot be written, the error names it.

The system names no file where a write fails: a full disk, a quota, a limit of a file's size. What is written under its final name is
written by `whole_file`, which names it too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

Path = str | os.PathLike[str]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What fails where bytes are written. Other errors in such a block may be those of a connection.
_OF_WRITING = (*_NO_ROOM, errno.EIO)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """For a block that writes to the file `path`, its closing included: an OSError of writing that names no file gets this name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_WRITING:
            error.filename = os.fspath(path)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file. Raises: OSError."""
    with naming(path):
        pathlib.Path(path).write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8. Raises: OSError."""
    write_bytes(path, text.encode())


def copy(source: Path, target: Path) -> None:
    """Copy the content of a file. Raises: OSError."""
    try:
        with naming(target):
            shutil.copyfile(source, target)
    except OSError as error:
        # The system call that copies names both files, and where there is no room, that is so of the copy.
        if error.errno in _NO_ROOM:
            error.filename, error.filename2 = os.fspath(target), None
        raise
