"""Files that are written whole or not at all; devices and pipes, which cannot be replaced, are written to as they are."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from tftrt_tools.base import errors
from tftrt_tools.base.files import renaming

Path = str | os.PathLike[str]
_MOST_LINKS = 40  # as Linux follows


def check_places(paths: Iterable[Path]) -> None:
    """Check each path with `check_place`, and that no two are the same file. Raises: UsageError."""
    seen, wrong = set(), errors.Wrong()
    for path in paths:
        with wrong.collected():
            check_place(path)
            target, stream = place(path)
            if target in seen and not stream:
                raise errors.UsageError(f"two results would be written to {path}", "give each a file of its own")
            seen.add(target)
    wrong.check()


def check_place(path: Path) -> None:
    """Check, before the work is done, that a file can be made at `path`. Raises: UsageError."""
    parent = pathlib.Path(path).resolve().parent
    if not parent.is_dir() or pathlib.Path(path).is_dir():
        why = "it is a directory" if parent.is_dir() else f"no directory {parent}"
        raise errors.UsageError(
            f"{path} cannot be written: {why}", "give the path of a file in a directory that is there"
        )
    if not is_stream(path) and not takes_files(pathlib.Path(place(path)[0]).parent):
        raise errors.UsageError(
            f"{path} cannot be written: this user cannot write to {parent}",
            "choose another directory, or fix its rights",
        )


def check_folder(path: Path, flag: str) -> None:
    """Check, before the work is done, that `path` is a folder to write in, or can become one. Args: flag: that names it, or what it is.
    Raises: UsageError."""
    first, said = nearest(pathlib.Path(os.path.abspath(path))), f"{flag}={path}" if flag[0] == "-" else f"{flag} {path}"
    if not first.is_dir():
        raise errors.UsageError(f"{said}: {first} is no folder", "name one that is there, or a new one")
    if not takes_files(first):
        other = flag if flag[0] == "-" else "place"
        raise errors.UsageError(
            f"{said}: {first} cannot be written to by this user", f"choose another {other}, or fix its rights"
        )


def takes_files(folder: pathlib.Path) -> bool:
    """Whether this user can make a file in a folder. Nobody can in those of the kernel, whatever their rights say."""
    kernels = ("/proc", "/sys")
    return os.access(folder, os.W_OK | os.X_OK) and not str(folder.resolve()).startswith(kernels)


def nearest(path: pathlib.Path) -> pathlib.Path:
    """`path`, or the nearest of its parents that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def is_stream(path: Path) -> bool:
    """Whether `path` is a device, a pipe, or an open file of a process (/dev/stdout): a new file must not replace it."""
    return place(path)[1]


def place(path: Path) -> tuple[str, bool]:
    """(path without symbolic links, whether it is a stream). Paths below /proc are files that a process has open: streams."""
    path = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.realpath(os.path.dirname(path)), os.path.basename(path)
        path = os.path.join(folder, name)
        if path.startswith("/proc/"):
            return path, True
        if not os.path.islink(path):
            break
        path = os.path.join(folder, os.readlink(path))
    return path, os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def write_each(jobs: Iterable[tuple[str | None, Callable[[], object]]]) -> list[str]:
    """Write several files. If one cannot be written, the others still are.

    Args: jobs: (path, function that writes it) each; a path that is None or "" is left out. Returns: a line for each file that could not
      be written.
    """
    lost = []
    for path, job in jobs:
        if not path:
            continue
        try:
            job()
        except BrokenPipeError:
            raise
        except OSError as error:
            lost.append(errors.from_os_error(error).cause)
    return lost


def write_text(path: Path, text: str, grows_in: pathlib.Path | None = None, overwrite: bool = True) -> None:
    """Write `text` to `path` by one rename. Args and raises: as `replacing`."""
    write_bytes(path, encoded(text), grows_in, overwrite)


def encoded(text: str) -> bytes:
    """A text as UTF-8. The name of a file in it that is none becomes the bytes that it is, and what stands for no byte an escape."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace")


def check_named(path: Path) -> None:
    """Raise UsageError for a path that TensorFlow cannot take: its bytes are no UTF-8."""
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise errors.not_utf8(os.path.abspath(path)) from None


def write_bytes(path: Path, data: bytes, grows_in: pathlib.Path | None = None, overwrite: bool = True) -> None:
    """Write `data` to `path`, as `write_text` does."""
    with replacing(path, grows_in, overwrite) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, grows_in: pathlib.Path | None = None, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write to. It replaces `path` by one rename at the end of the block; after an exception, nothing is left of it. A new
    file has the permissions that the umask leaves, one that is replaced keeps its own.

    Links are followed. A stream (is_stream) is written to directly.

    Args: grows_in: the directory where it grows; by default, and where `path` is a link, that of the file itself. overwrite: whether a file
      may be replaced. Raises: OSError; UsageError without `overwrite` where something has the name at the end. It says where the content
      is.
    """
    target, stream = place(path)
    folder = pathlib.Path(target).parent if grows_in is None or os.path.islink(path) else grows_in
    try:
        with open(target, "ab") if stream else _renamed(pathlib.Path(target), folder, overwrite) as file:
            yield file
    except OSError as error:
        if _names_another(error, pathlib.Path(target)):
            raise
        # Name the path that the caller gave: the error may name the temporary file, or none.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _names_another(error: OSError, target: pathlib.Path) -> bool:
    """Whether an error inside the block is about another file, such as one that is written together with this one."""
    name = error.filename
    return (
        isinstance(name, str)
        and pathlib.Path(name).name != target.name
        and not pathlib.Path(name).name.startswith(f".{target.name}.")
    )


@contextlib.contextmanager
def _renamed(target: pathlib.Path, folder: pathlib.Path, overwrite: bool) -> Iterator[BinaryIO]:
    # The name is known before the file exists, so the file is removed whenever an interrupt comes.
    temporary = folder / renaming.named(target, f".{secrets.token_hex(4)}", ".").name
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            with contextlib.suppress(FileNotFoundError):  # a new file has what the umask leaves
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(target).st_mode) & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        _place(temporary, target, overwrite)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _place(temporary: pathlib.Path, target: pathlib.Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, target)
        return
    try:
        renaming.new(temporary, target)
    except FileExistsError:
        kept = renaming.beside(temporary, target)
        remark = f"; the finished file is {kept}" if kept else ""
        raise errors.UsageError(
            f"what is at {target} appeared there meanwhile, and is left as it is{remark}",
            "move the one or the other, or choose another file",
        ) from None
