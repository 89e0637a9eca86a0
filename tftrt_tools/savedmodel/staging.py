"""Writing a directory whole or not at all.

The content grows in a sibling of the target and takes its name in one rename. An existing target is swapped
out by one atomic exchange where the file system has it (renameat2), else by two renames.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator

from tftrt_tools import errors
from tftrt_tools.savedmodel import files

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def check_target(target: str | os.PathLike[str], overwrite: bool, sources: Iterable[str | os.PathLike[str]] = ()) -> pathlib.Path:
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
            raise errors.UsageError(f"the output {target} and the input {source} lie inside one another", "choose another output directory")
    if target.is_symlink():
        target = pathlib.Path(os.path.realpath(target))
    if target.is_symlink() or target.exists():
        if not target.is_dir():
            raise errors.UsageError(f"the output {target} exists and is no directory", "choose another output directory")
        if any(target.iterdir()):
            if not overwrite:
                raise errors.UsageError(f"the output directory exists: {target}", "add --overwrite to replace it, or choose another")
            if not files.is_saved_model(target) and not files.is_plan(target):
                raise errors.UsageError(f"--overwrite replaces SavedModels and plan directories only, and {target} holds something else",
                                        "choose another output directory")
    return target


@contextlib.contextmanager
def staged(target: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield an empty directory beside `target`; on a clean exit it becomes `target`, else it is removed.

    Raises: TftrtError where the parent directory cannot be made or written.
    """
    target = pathlib.Path(target)
    made = _make_parents(target.parent)
    try:
        _sweep(target)
        stage = target.parent / f".{target.name}.tftrt-{os.getpid()}"
        # An interrupt may come between any two steps; the first step makes the directory.
        try:
            try:
                stage.mkdir()
            except PermissionError:
                raise errors.TftrtError(f"no permission to write in {target.parent}", "choose another output directory") from None
            yield stage
            _flush(stage)
            _publish(stage, target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except BaseException:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _make_parents(folder: pathlib.Path) -> list[pathlib.Path]:
    """Create missing parents. Returns: those created, deepest first."""
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


def _sweep(target: pathlib.Path) -> None:
    """Remove what a killed run left beside the target."""
    pattern = re.compile(re.escape(f".{target.name}.tftrt-") + r"(\d+)(-old)?$")
    for path in target.parent.iterdir() if os.access(target.parent, os.R_OK) else ():
        match = pattern.match(path.name)
        if match and not pathlib.Path(f"/proc/{match.group(1)}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _flush(folder: pathlib.Path) -> None:
    """Force the content to disk before the rename, so that a full disk is an error now and a power cut loses nothing."""
    for path in [*folder.rglob("*"), folder]:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _publish(stage: pathlib.Path, target: pathlib.Path) -> None:
    if not target.exists():
        os.rename(stage, target)
    elif not any(target.iterdir()):
        os.rename(stage, target)  # POSIX: an empty directory is replaced atomically
    elif _exchange(stage, target):
        shutil.rmtree(stage)
    else:
        old = stage.with_name(stage.name + "-old")
        os.rename(target, old)
        try:
            os.rename(stage, target)
        except BaseException:
            os.rename(old, target)
            raise
        shutil.rmtree(old)


def _exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Swap two directories in one system call. Returns: False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))
