"""Files that are written whole or not at all; devices and pipes, which cannot be replaced, are written to as they are."""

import contextlib
import os
import pathlib
import secrets

from tftrt_tools import errors

_MOST_LINKS = 40  # as Linux


def check_places(paths):
    """`check_place` of each of `paths`, and no two of them may be the same file. Raises: UsageError."""
    seen = set()
    for path in paths:
        check_place(path)
        target, stream = place(path)
        if target in seen and not stream:
            raise errors.UsageError(f"two results would be written to {path}", "give each a file of its own")
        seen.add(target)


def check_place(path):
    """Refuse a place where no file can be made, before the work whose result it is for. Raises: UsageError."""
    parent = pathlib.Path(path).resolve().parent
    if not parent.is_dir() or pathlib.Path(path).is_dir():
        why = "it is a directory" if parent.is_dir() else f"no directory {parent}"
        raise errors.UsageError(f"{path} cannot be written: {why}", "give the path of a file in a directory that is there")


def is_stream(path):
    """Whether `path` is a device, a pipe, or what a process has open (/dev/stdout): nothing that a new file may take the place of."""
    return place(path)[1]


def place(path):
    """(path without symbolic links, whether it is a stream). What is below /proc is a file that is open, under whatever name."""
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


def write_each(jobs):
    """Write several files; one that cannot be written does not keep the others from it.

    Args: jobs: (path, function that writes it) each; a path that is None or "" is left out. Returns: a line for each file that is lost.
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


def write_text(path, text):
    """Put `text` into `path` by one rename; readable like a file that was simply opened. Raises: OSError."""
    write_bytes(path, text.encode())


def write_bytes(path, data):
    """Put `data` into `path`, as `write_text` does. Raises: OSError."""
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path):
    """A binary file that takes the place of `path` by one rename where the block ends well, and leaves nothing else.

    Links are followed. To a stream (is_stream) it is written at once. Raises: OSError.
    """
    target, stream = place(path)
    try:
        with open(target, "ab") if stream else _renamed(pathlib.Path(target)) as file:
            yield file
    except OSError as error:
        # What was asked for, where the error names another file or none at all.
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def _renamed(target):
    # Named before it is made: an interrupt may come between any two steps.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
