"""Temporary folders. What a killed process left of them, engines and copies of models often, the next one removes."""

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time

_PREFIX = "tftrt-scratch-"
# A folder that is younger may not be held yet.
_SETTLED_SECONDS = 60


@contextlib.contextmanager
def folder(what):
    """A new temporary folder, which goes with the context. Args: what: it is for; part of its name. Yields: path as str."""
    _sweep()
    made = tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{what}-", ignore_cleanup_errors=True)
    held = os.open(made.name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # The system lets go of it when this process ends, however it ends; its children do not inherit it. A process identifier would not
        # do: containers that share a disk number their processes on their own.
        with contextlib.suppress(OSError):  # a file system without locks: nobody can take the folder for abandoned there either
            fcntl.flock(held, fcntl.LOCK_EX)
        yield made.name
    finally:
        made.cleanup()
        os.close(held)


def _sweep():
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            _remove_abandoned(path)


def _remove_abandoned(path):
    """Raises: OSError where somebody holds it, or it is not ours to look at."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid == os.getuid() and time.time() - facts.st_mtime > _SETTLED_SECONDS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
