"""Where the cache lies, and which folders cannot be a cache."""

from __future__ import annotations

import os
import pathlib
import stat

from tftrt_tools.base import errors


def default() -> pathlib.Path:
    """$XDG_CACHE_HOME/tftrt/engines, or ~/.cache/tftrt/engines. Raises: TftrtError where there is no home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    base = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise errors.TftrtError(
            "there is no home folder for the engine cache", "set HOME or XDG_CACHE_HOME, or give --engine_cache_dir"
        )
    return pathlib.Path(base) / "tftrt" / "engines"


def check(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Raise UsageError where `folder` can never be a cache, whatever space and permissions there are. Returns: its absolute path."""
    path = pathlib.Path(os.path.abspath(folder))
    mend = "choose another --engine_cache_dir"
    try:
        existing = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
        state = existing.stat()
    except OSError as error:
        raise errors.UsageError(
            f"the engine cache {path} cannot be used: {errors.from_os_error(error).cause}", mend
        ) from None
    if not stat.S_ISDIR(state.st_mode):
        raise errors.UsageError(f"the engine cache {path} cannot be used: {existing} is no folder", mend)
    if existing == path and state.st_mode & stat.S_IWOTH:
        # An engine is machine code that TensorRT runs without a check.
        raise errors.UsageError(
            f"the engine cache {path} cannot be used: every user may write there, and engines are programs",
            f"`chmod o-w {path}`, or {mend}",
        )
    return path


def make(folder: pathlib.Path) -> None:
    """Make `folder` and its missing parents, for this user alone. Raises: OSError."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
