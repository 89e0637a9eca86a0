"""Lets processes of one machine build on a GPU one after the other: TensorRT chooses kernels by timing them, and other work on the GPU
makes it slow and its choices poor.

Each GPU has a lock file in /tmp, where processes of all users see it; $TMPDIR may be a process's own. Containers take turns with each
other if the environment variable TFTRT_BUILD_TURNS names a folder that they share. A turn lasts for one engine.
"""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Callable, Iterator

SWITCH = "TFTRT_BUILD_TURNS"
_FOLDER = "/tmp"
WAITS = "waiting for another process that builds on this GPU"


@contextlib.contextmanager
def turn(gpu: str, on_wait: Callable[[str], object]) -> Iterator[bool]:
    """Hold the turn of a GPU; wait for it.

    Args: gpu: execution.job.gpu.identity; "" takes no turns, nor does TFTRT_BUILD_TURNS=0 in the environment. on_wait: called
      once before waiting, with what it waits for.
    Yields: whether the turn is held. The block also runs if no lock is possible.
    """
    descriptor = _open(gpu) if gpu and os.environ.get(SWITCH, "1") != "0" else None
    try:
        if descriptor is not None:
            _take(descriptor, on_wait)
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def place(gpu: str) -> pathlib.Path:
    """The lock file of a GPU."""
    folder = os.environ.get(SWITCH, "1")
    return pathlib.Path(_FOLDER if folder == "1" else folder) / f"tftrt-gpu-{gpu}.lock"


def _open(gpu: str) -> int | None:
    """Its descriptor, or None. The file is never removed: a process that waits would then hold another file than one that comes later."""
    path = place(gpu)
    with contextlib.suppress(OSError):
        # Read-only, for it may be another user's.
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444))
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    return None


def _take(descriptor: int, on_wait: Callable[[str], object]) -> None:
    with contextlib.suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait(WAITS)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
