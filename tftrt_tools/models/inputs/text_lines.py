"""The lines of text files. No TensorFlow here."""

from __future__ import annotations

import pathlib

from tftrt_tools.base import errors


def read(path: str) -> list[bytes]:
    """The lines of a file without their ends; an empty line in between counts. Raises: UsageError."""
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be read: {error.strerror}", "check its permissions") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise errors.UsageError(f"{path} is UTF-16", "save it as UTF-8")
    # Not splitlines: a form feed does not end a line.
    lines = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").split(b"\n")
    return lines[:-1] if not lines[-1] else lines
