"""Files of the cache, opened so that nothing outside its folder is touched."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil
import stat
import time
from collections.abc import Iterator

from tftrt_tools.base.files import documents
from tftrt_tools.models.engine_cache.entry import EngineRecord

ENGINE, RECORD = "engine", "record.json"
# O_NONBLOCK: a FIFO in place of a file must not hang the reader.
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CHUNK_BYTES = 1 << 20
_RECORD_LIMIT_BYTES = 16 << 20
# Older stages whose lock is free were left by a process that died.
_STAGE_SECONDS = 3600


class DamagedError(Exception):
    """An entry that cannot be used; the text says why."""


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    """Yield the descriptor; close it."""
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened(name: str, folder: int) -> Iterator[int]:
    """A descriptor of the regular file `name` in the folder of descriptor `folder`. Raises: DamagedError, FileNotFoundError, OSError."""
    try:
        fd = os.open(name, OPEN, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedError(f"its {name} is a symbolic link") from None
        raise
    with closing(fd):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedError(f"its {name} is no file")
        yield fd


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[int]:
    """A descriptor of a file that is removed again where the block fails."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with closing(fd):
            yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def copy(source: int, target: int) -> tuple[str, int]:
    """Copy between descriptors. Returns: (hex SHA-256, bytes)."""
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(source, _CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        write_all(target, chunk)
    return digest.hexdigest(), size


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`. Raises: OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_record(fd: int) -> EngineRecord:
    """The EngineRecord in an open file. Raises: DamagedError."""
    if os.fstat(fd).st_size > _RECORD_LIMIT_BYTES:
        raise DamagedError("its record is too large")
    with os.fdopen(os.dup(fd), "rb") as file:
        try:
            return EngineRecord.from_dict(documents.parse_object(file.read()))
        except ValueError as error:
            raise DamagedError(f"its record cannot be read: {documents.reason(error)}") from None
        except documents.MISREAD:
            raise DamagedError("its record cannot be read: it is no record of an engine") from None


def is_same(fd: int, path: pathlib.Path) -> bool:
    """Whether `path` is still the folder of descriptor `fd`."""
    try:
        there, here = os.stat(path, follow_symlinks=False), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def last_used(path: pathlib.Path) -> int:
    """Time of the last use, nanoseconds since 1970. Raises: FileNotFoundError."""
    try:
        return os.stat(path / RECORD, follow_symlinks=False).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return os.stat(path, follow_symlinks=False).st_mtime_ns


def size(path: pathlib.Path) -> int:
    """Bytes of the files directly in a folder; 0 where `path` is something else."""
    if path.is_symlink() or not path.is_dir():
        return 0
    return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))


def abandoned(stage: pathlib.Path) -> bool:
    """Whether a stage is old and its writer is gone."""
    try:
        if time.time() - os.stat(stage, follow_symlinks=False).st_mtime < _STAGE_SECONDS:
            return False
        with closing(os.open(stage, OPEN | os.O_DIRECTORY)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False


def delete(path: pathlib.Path) -> None:
    """Delete a file, a link or a folder with what is in it, as far as it goes."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
