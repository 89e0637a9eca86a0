"""Writing a directory whole or not at all, over nothing that may not be replaced.

The content grows in a folder beside the target and takes the target's name in one rename:

    .NAME.tftrt-sXXXXXXXX/lock     held (flock) as long as the writer lives; the others are swept by the next writer
    .NAME.tftrt-sXXXXXXXX/model/   grows
    .NAME.tftrt-sXXXXXXXX/old/NAME what is replaced, for a moment, where the file system cannot exchange two names

The target is looked at again at the end. What appeared there meanwhile stays, and the finished result is kept beside it.
"""

import contextlib
import os
import pathlib
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator

from tftrt_tools.base import errors
from tftrt_tools.base.files import locks, renaming, whole_file
from tftrt_tools.models.savedmodel import files

_MODEL, _LOCK, _OLD = "model", "lock", "old"
# Seconds after which a stage without a lock (of a version before, which has the number of its process) is surely abandoned. The number
# alone says little: containers that share a disk number their processes separately.
_ABANDONED = 24 * 3600
_TURNS = 20


def check_target(
    target: str | os.PathLike[str], overwrite: bool, sources: Iterable[str | os.PathLike[str]] = ()
) -> pathlib.Path:
    """Raise UsageError where `target` must not be written. Returns: its absolute path; of a symbolic link, the place that it leads to.

    Args:
      target: directory to write.
      overwrite: whether a SavedModel, a plan directory or an empty directory there may be replaced. Other things are never replaced.
      sources: inputs, which must neither lie inside the target nor hold it.
    """
    target = pathlib.Path(os.path.abspath(target))
    for source in map(pathlib.Path, map(os.path.realpath, sources)):
        real = pathlib.Path(os.path.realpath(target))
        if real == source or source in real.parents or real in source.parents:
            raise errors.UsageError(
                f"the output {target} and the input {source} lie inside one another", "choose another output directory"
            )
    if target.is_symlink():
        target = pathlib.Path(os.path.realpath(target))
    whole_file.check_named(target)
    whole_file.check_folder(target.parent, "the folder of the output")
    if target.is_symlink() or target.exists():
        if not target.is_dir():
            raise errors.UsageError(
                f"the output {target} exists and is no directory", "choose another output directory"
            )
        if os.path.ismount(target):
            raise errors.UsageError(
                f"the output {target} is a file system of its own, which no rename can replace",
                f"choose a folder in it, such as {target / _MODEL}",
            )
        if any(target.iterdir()):
            if not overwrite:
                raise errors.UsageError(
                    f"the output directory exists: {target}", "add --overwrite to replace it, or choose another"
                )
            if not _is_replaceable(target):
                raise errors.UsageError(
                    f"--overwrite replaces SavedModels and plan directories only, and {target} holds something else",
                    "choose another output directory",
                )
    return target


def _is_replaceable(path: pathlib.Path) -> bool:
    """Whether --overwrite may replace what is at `path`: a model, or an empty directory."""
    if path.is_symlink() or not path.is_dir():
        return False
    return files.is_saved_model(path) or files.is_plan(path) or not any(path.iterdir())


@contextlib.contextmanager
def staged(target: str | os.PathLike[str], overwrite: bool) -> Iterator[pathlib.Path]:
    """Yield an empty directory; on a clean exit it becomes `target`, else it is removed.

    Args: target: as `check_target` returned it. overwrite: as there. It counts for what is there at the end; without it only an empty
      directory that was there at the start is replaced.

    Raises: TftrtError where the parent directory cannot be made or written; UsageError where something that may not be replaced appeared at
      `target` meanwhile. It says where the finished directory is then. Errors name `target` in place of the directory that is yielded.
    """
    target = pathlib.Path(target)
    parents = make_parents(target.parent)
    try:
        _sweep(target)
        was_there = os.path.lexists(target)
        with _stage(target) as stage:
            yield stage
            _flush(stage)
            _publish(stage, target, overwrite, was_there)
    except BaseException:
        remove_empty(parents)
        raise


def remove_empty(folders: Iterable[pathlib.Path]) -> None:
    """Remove those folders that are empty, one after the other."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def make_parents(folder: pathlib.Path) -> list[pathlib.Path]:
    """Create a folder and its missing parents. Returns: those created, deepest first. Raises: TftrtError, OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(exist_ok=True)
        except (PermissionError, NotADirectoryError):
            raise errors.TftrtError(f"no permission to make {new}", "choose another output directory") from None
    return missing


@contextlib.contextmanager
def _stage(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield an empty directory near `target`, which other writers leave alone; at the end it is removed, if it is still there."""
    held: list[int] = []
    for _ in range(_TURNS):
        # The name is known before anything is made: an interrupt may come between any two steps.
        holder = renaming.named(target, f".tftrt-s{secrets.token_hex(4)}", ".")
        try:
            with errors.told_as({holder / _MODEL: target, holder: target}):
                if _made(holder, held):
                    yield holder / _MODEL
                    return
        finally:
            shutil.rmtree(holder, ignore_errors=True)
            for lock in held:
                os.close(lock)
    raise errors.TftrtError(
        f"{target.parent} is swept by others again and again", "try again, or choose another output directory"
    )


def _made(holder: pathlib.Path, held: list[int]) -> bool:
    """Make and lock a stage. Args: held: gets the descriptor of the lock, where the file system has locks. Returns: False where another
    writer took it for abandoned between its making and its lock. Raises: OSError, TftrtError."""
    try:
        holder.mkdir()
    except PermissionError:
        raise errors.TftrtError(
            f"no permission to write in {holder.parent}", "choose another output directory"
        ) from None
    try:
        lock = locks.acquire(holder / _LOCK, wait=False)
        if lock is None:
            return False
        held.append(lock)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and holder.parent.is_dir():
            return False
        if error.errno not in locks.UNSUPPORTED:
            raise
    (holder / _MODEL).mkdir()
    return True


def _sweep(target: pathlib.Path) -> None:
    """Remove what killed writers left beside the target; give the target back what one was replacing."""
    pattern = re.compile(re.escape(renaming.named(target, ".tftrt-", ".").name) + "s[0-9a-f]{8}")
    before = re.compile(re.escape(f".{target.name}.tftrt-") + r"(\d+)(-old)?")
    for path in list(target.parent.iterdir()) if os.access(target.parent, os.R_OK) else ():
        with contextlib.suppress(OSError):
            if pattern.fullmatch(path.name):
                _sweep_one(path, target)
            elif (match := before.fullmatch(path.name)) and not os.path.exists(f"/proc/{match[1]}") and _is_old(path):
                _removed(path, target if match[2] else None)


def _sweep_one(holder: pathlib.Path, target: pathlib.Path) -> None:
    """Remove a stage that no living writer holds. Raises: OSError where it is another user's, or where the system has no locks."""
    if not (holder / _LOCK).exists():
        if _is_old(holder):
            _removed(holder)
        return
    lock = locks.acquire(holder / _LOCK, wait=False)
    if lock is None:
        return
    try:
        for old in (holder / _OLD).glob("*"):
            _removed(old, target.with_name(old.name))
        _removed(holder)
    finally:
        os.close(lock)


def _removed(path: pathlib.Path, home: pathlib.Path | None = None) -> None:
    """Remove a directory, or give it the name `home` back that its writer had taken from it, if nothing has it now."""
    if home is not None and not os.path.lexists(home):
        renaming.new(path, home)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _is_old(folder: pathlib.Path) -> bool:
    """Whether nothing in a folder has changed for a day."""
    newest = max(path.stat(follow_symlinks=False).st_mtime for path in (folder, *folder.rglob("*")))
    return time.time() - newest > _ABANDONED


def _flush(folder: pathlib.Path) -> None:
    """Force the content to disk before the rename, so that a full disk is an error now and a power cut loses nothing."""
    for path in [*folder.rglob("*"), folder]:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _publish(stage: pathlib.Path, target: pathlib.Path, overwrite: bool, was_there: bool) -> None:
    """Give a finished directory its name. Raises: UsageError where something that may not be replaced has it, TftrtError where the system
    refuses; both say where the finished directory is then."""
    try:
        if _is_placed(stage, target, was_there) or overwrite and _has_replaced(stage, target):
            return
    except OSError as error:
        refused = errors.from_os_error(OSError(error.errno, error.strerror, str(target)))
        raise errors.TftrtError(refused.cause + _kept(stage, target), refused.mend) from None
    what = "and is no model, which alone --overwrite replaces" if overwrite else "and is left as it is"
    raise errors.UsageError(
        f"what is at {target} appeared there meanwhile, {what}" + _kept(stage, target),
        "move the one or the other, or choose another output directory",
    )


def _is_placed(stage: pathlib.Path, target: pathlib.Path, was_there: bool) -> bool:
    """Rename the directory, if nothing is lost by that. Args: was_there: whether something was at `target` before, that may be replaced.
    Raises: OSError."""
    try:
        if was_there:
            os.rename(stage, target)  # POSIX: an empty directory is replaced, and nothing else
        else:
            renaming.new(stage, target)
    except OSError as error:
        if error.errno not in renaming.TAKEN or not os.path.lexists(target):
            raise
        return False
    return True


def _has_replaced(stage: pathlib.Path, target: pathlib.Path) -> bool:
    """Put the directory in the place of a model; what was there is then in the stage's folder, which goes. Raises: OSError."""
    if not _is_replaceable(target):
        return False
    if renaming.exchange(stage, target):
        if _is_replaceable(stage):
            return True
        renaming.exchange(stage, target)  # it became something else in the last moment
        return False
    old = stage.with_name(_OLD) / target.name
    old.parent.mkdir()
    try:
        os.rename(target, old)
        renaming.new(stage, target)
    except BaseException:
        _give_back(old, target)
        raise
    return True


def _give_back(old: pathlib.Path, target: pathlib.Path) -> None:
    """Give what was to be replaced its name back, or one beside it where the name is taken."""
    if old.exists():
        try:
            renaming.new(old, target)
        except FileExistsError:
            renaming.beside(old, target, ".before")


def _kept(stage: pathlib.Path, target: pathlib.Path) -> str:
    """Keep a finished directory beside the place that it cannot have. Returns: where, for a message; "" where that cannot be, too."""
    place = renaming.beside(stage, target)
    return f"; the finished result is in {place}" if place else ""
