"""Puts a version directory in place whole or not at all, even with other publishers and a polling server.

The server loads the numbered children of MODEL, the model's directory. Each publisher has a stage in a workplace, which is MODEL itself or
another directory on its file system:

    WORKPLACE/.tftrt-publish-XXXXXXXX/lock     held (flock) as long as the publisher lives
    WORKPLACE/.tftrt-publish-XXXXXXXX/model/   grows; renamed to MODEL/N when it is complete and on disk
    WORKPLACE/.tftrt-publish.lock              held for moments: to make or sweep stages, and to choose N and rename

A stage without a held lock was left by a killed publisher. None of these names parses as a version.
"""

import contextlib
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator

from tftrt_tools.base import errors
from tftrt_tools.base.files import locks, renaming
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel import files
from tftrt_tools.servers.serving import version_directories

_PREFIX = ".tftrt-publish-"
_LOCK = ".tftrt-publish.lock"
# How often a directory that other publishers remove is made.
_TURNS = 100


class Stage:
    """Where a version grows; made by `staged`. folder: the directory to fill; what lies beside it goes with the stage."""

    def __init__(self, base: pathlib.Path, workplace: pathlib.Path, folder: pathlib.Path) -> None:
        self._base, self._workplace, self.folder = base, workplace, folder

    def place(self, wanted: int | None, allow_older: bool, complete: Callable[[int], None]) -> tuple[int, pathlib.Path]:
        """Give the version its number and its name.

        Args: wanted: the number, None for the next. allow_older: accept one smaller than the largest. complete: called with the number;
          it writes the files that depend on it, and they are on disk when it returns.
        Returns: (number, path). Raises: UsageError for a number that is taken or would not be served, TftrtError, OSError.
        """
        flush(self.folder)
        with _locked(self._workplace):
            while True:
                number = version_directories.following(self._base) if wanted is None else wanted
                if wanted is not None:
                    version_directories.check(self._base, number, allow_older)
                complete(number)
                target = self._base / str(number)
                try:
                    renaming.new(self.folder, target, served=True)
                except OSError as error:
                    # A publisher without locks was faster: take the next number, or raise the clear error above.
                    if error.errno not in renaming.TAKEN or not os.path.lexists(target):
                        raise
                    continue
                flush_folder(self._base)
                return number, target


@contextlib.contextmanager
def staged(base: pathlib.Path, workplace: pathlib.Path | None = None) -> Iterator[Stage]:
    """Yield a Stage for `base`, the directory of one model, which is made where it is missing.

    Leftovers of killed publishers are removed first. At the end this stage is removed, placed or not; if nothing was placed, also the
    directories that were made for it.

    Args: workplace: where the stages of this model are, by default in `base`; on the same file system. All publishers of a model need the
      same, or only the rename decides between them. Raises: TftrtError, OSError.
    """
    base = pathlib.Path(base)
    workplace = base if workplace is None else pathlib.Path(workplace)
    created = _missing(workplace)
    holder = lock = None
    try:
        holder, lock = _new_stage(workplace)
        if workplace != base:
            _sweep_in(base)
        for folder in created:
            flush_folder(folder.parent)
        with errors.told_as({holder / "model": base, holder: base}):
            yield Stage(base, workplace, holder / "model")
    finally:
        if holder is not None:
            shutil.rmtree(holder, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        for folder in created:
            with contextlib.suppress(OSError):
                folder.rmdir()  # removing fails while the folder holds anything


def _missing(folder: pathlib.Path) -> list[pathlib.Path]:
    """The missing directories of the path `folder`, deepest first."""
    leftovers = []
    while not folder.exists():
        leftovers.append(folder)
        folder = folder.parent
    return leftovers


def _sweep_in(base: pathlib.Path) -> None:
    """Remove what a killed publisher without a workplace left in a model's directory. Without such a leftover nothing is touched."""
    if any(base.glob(_PREFIX + "*")):
        with _locked(base) as locking:
            if locking:
                _sweep(base)


def _new_stage(base: pathlib.Path) -> tuple[pathlib.Path, int | None]:
    """Returns: (directory, descriptor of its lock or None where the file system keeps no locks)."""
    turns = 0
    while True:
        try:
            base.mkdir(parents=True, exist_ok=True)
            with _locked(base) as locking:
                if locking:
                    _sweep(base)
                holder = base / (_PREFIX + secrets.token_hex(4))
                holder.mkdir()
                try:
                    (holder / "model").mkdir()
                    return holder, locks.acquire(holder / "lock", wait=False) if locking else None
                except BaseException:  # also SIGTERM, which is an exception here
                    shutil.rmtree(holder, ignore_errors=True)
                    raise
        except FileNotFoundError:
            # Another publisher, which ended, has just removed the directory that it had made; a third may have made it again.
            turns += 1
            if turns == _TURNS:
                raise


@contextlib.contextmanager
def _locked(base: pathlib.Path) -> Iterator[bool]:
    """Hold the lock of a model's directory. Yields: False where the file system keeps no locks; the rename alone then decides."""
    path = base / _LOCK
    try:
        lock = locks.acquire(path, wait=True, on_wait=lambda: progress.say("waiting for another publisher"))
    except OSError as error:
        if error.errno not in locks.UNSUPPORTED:
            raise
        with contextlib.suppress(OSError):
            path.unlink()
        yield False
        return
    try:
        yield True
    finally:
        if lock is not None:  # with wait=True it always is a descriptor
            locks.release(lock, path)


def _sweep(base: pathlib.Path) -> None:
    """Remove the stages of dead publishers."""
    for holder in base.glob(_PREFIX + "*"):
        try:
            lock = locks.acquire(holder / "lock", wait=False)
        except OSError:
            continue  # another user's folder, or none of this module
        if lock is not None:
            shutil.rmtree(holder, ignore_errors=True)
            os.close(lock)


def copy(source: str | pathlib.Path, target: str | pathlib.Path, left_out: Collection[str] = ()) -> None:
    """As files.copy, where the disk has room. Raises: TftrtError, too."""
    check_space(source, pathlib.Path(target))
    files.copy(source, target, left_out, lambda name: progress.say(f"copying {name}"))


def check_space(source: str | pathlib.Path, target: pathlib.Path) -> None:
    """Raise TftrtError where the file system of `target` clearly has no room for the files of `source`."""
    needed = files.size(source)
    free = shutil.disk_usage(target).free
    if needed > free:
        raise errors.TftrtError(
            f"no space for the model below {target.parent.parent}: it has {needed:,} bytes, and {free:,} are free",
            "free space on that disk; nothing was published",
        )


def flush(folder: pathlib.Path) -> None:
    """Force all files and directories of `folder` to disk."""
    progress.say("flushing to disk")
    for path in [*pathlib.Path(folder).rglob("*"), folder]:
        flush_folder(path)


def flush_folder(path: str | pathlib.Path) -> None:
    """Force one file or directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
