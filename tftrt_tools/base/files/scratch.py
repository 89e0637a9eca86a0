"""Temporary folders. Those that a killed process left (they often hold engines and copies of models) are removed by the next process."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator

_PREFIX = "tftrt-scratch-"
# A younger folder may belong to a process that has not locked it yet.
_SETTLED_SECONDS = 60


@contextlib.contextmanager
def folder(what: str) -> Iterator[str]:
    """A new temporary folder, removed at the end of the context. Args: what: its purpose, part of its name. Yields: its path, a str."""
    _sweep()
    scratch = tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{what}-", ignore_cleanup_errors=True)
    held = os.open(scratch.name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # The lock marks the folder as in use. The system releases it however this process ends; children do not inherit it.
        # A process identifier would not do: containers that share a disk number their processes separately.
        with contextlib.suppress(
            OSError
        ):  # without locks on this file system, nobody can remove the folder as abandoned either
            fcntl.flock(held, fcntl.LOCK_EX)
        yield scratch.name
    finally:
        scratch.cleanup()
        os.close(held)


def _sweep() -> None:
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            _remove_abandoned(path)


def _remove_abandoned(path: str) -> None:
    """Remove a folder that no process has locked. Raises: OSError where a process has, or where it is another user's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid == os.getuid() and time.time() - facts.st_mtime > _SETTLED_SECONDS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
