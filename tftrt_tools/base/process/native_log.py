"""Captures or reads what native libraries write to stderr: TF-TRT reports much only there."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Capture what is written to file descriptor 2. Yields: a list; after the block it holds the text, which goes to stderr as well."""
    text: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            raw = file.read()
            text.append(raw.decode(errors="replace"))
            with open(2, "wb", closefd=False) as stderr:
                stderr.write(raw)


def position() -> int | None:
    """The length of stderr's file, for `since`; None where stderr is a terminal or a pipe."""
    found = os.fstat(2)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def since(position: int | None) -> str:
    """What was written to stderr since `position`; "" for None. Unlike `captured`, it does not delay the output."""
    return after(position)[0]


def after(position: int | None) -> tuple[str, int | None]:
    """What was written to stderr since `position`, and the position behind it; ("", None) for None."""
    if position is None:
        return "", None
    sys.stderr.flush()
    with open("/proc/self/fd/2", "rb") as file:
        file.seek(position)
        text = file.read()
    return text.decode(errors="replace"), position + len(text)
