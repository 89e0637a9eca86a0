"""Renames that never replace what is there, and the exchange of two names. Linux does both in one step (renameat2); where a file system
does not, a name that is taken first stands in for the first."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pathlib

_AT_FDCWD = -100
_NOREPLACE, _EXCHANGE = 1, 2
# What a system or file system without it answers; EPERM: a container's filter of system calls that does not know it.
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_MOST_NAMES = 1000
# A name may have 255 bytes, and a character 4.
_MOST_CHARACTERS = 50
# Errors of a rename onto what is there.
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def new(source: pathlib.Path, target: pathlib.Path, served: bool = False) -> None:
    """Rename a file or a directory to a name that nothing has, not even an empty directory.

    Args: served: whether a server looks there: it never sees an empty directory, and where the system has not renameat2, one of the last
    moment is replaced. Raises: OSError, FileExistsError where something has the name (one of TAKEN where the system has not renameat2).
    """
    if _renamed(source, target, _NOREPLACE):
        return
    if served:
        os.rename(source, target)
    elif source.is_dir():
        _new_directory(source, target)
    else:
        _new_file(source, target)


def beside(source: pathlib.Path, target: pathlib.Path, end: str = ".finished") -> pathlib.Path | None:
    """Rename a file or a directory to the first free name that begins as the target's: TARGET.finished, TARGET.finished-2 and so on.
    Returns: that; None where there is none."""
    for number in range(1, _MOST_NAMES):
        place = named(target, end + (f"-{number}" if number > 1 else ""))
        try:
            new(source, place)
        except FileExistsError:
            continue
        except OSError:
            return None
        return place
    return None


def named(target: pathlib.Path, end: str, start: str = "") -> pathlib.Path:
    """A name in `target`'s folder that contains its name, cut to the bytes that a name may have."""
    return target.parent / f"{start}{target.name[:_MOST_CHARACTERS]}{end}"


def exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchange the names of two directories or files. Returns: False where the system cannot. Raises: OSError."""
    return _renamed(one, other, _EXCHANGE)


def _renamed(source: pathlib.Path, target: pathlib.Path, flag: int) -> bool:
    """renameat2. Returns: False where the system or the file system has not that flag. Raises: OSError."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag) == 0:
        return True
    if ctypes.get_errno() in _UNSUPPORTED:
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


def _new_directory(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.mkdir(target)
        os.rename(source, target)  # onto an empty directory; it fails where somebody has filled it meanwhile
    except FileExistsError:
        raise
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(target)
        raise


def _new_file(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.replace(source, target)
    else:
        os.unlink(source)
