"""Locks between processes: flock on a file. The system frees the lock of a process that dies."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
from collections.abc import Callable

# Errors of file systems without locks (some network file systems).
UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def acquire(path: pathlib.Path, wait: bool, on_wait: Callable[[], object] | None = None) -> int | None:
    """Take the lock of file `path`, which is made where it is missing.

    Args: wait: whether to wait for another holder; on_wait: called once before waiting.

    Returns: a descriptor for `release`; None where another holds it and `wait` is false. Raises: OSError.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if not _lock(fd, wait, on_wait):
                os.close(fd)
                return None
            if _is_there(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        # The holder before this one removed the file: a lock on it excludes nobody.
        os.close(fd)


def _lock(fd: int, wait: bool, on_wait: Callable[[], object] | None) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            return False
        if on_wait:
            on_wait()
        fcntl.flock(fd, fcntl.LOCK_EX)
    return True


def _is_there(fd: int, path: pathlib.Path) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (status.st_dev, status.st_ino) == (held.st_dev, held.st_ino)


def release(fd: int, path: pathlib.Path) -> None:
    """Give the lock back and remove its file."""
    try:
        os.unlink(path)
    except OSError:
        pass
    # close() alone does not free the lock if a child that was forked meanwhile shares the descriptor.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
