"""What native libraries write to stderr, caught or read on the way: TF-TRT reports much in its log only."""

import contextlib
import os
import stat
import sys
import tempfile


@contextlib.contextmanager
def captured():
    """Yield a list that, after the block, holds one string: what was written to file descriptor 2. It is passed on too."""
    text = []
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


def position():
    """Where file descriptor 2 is now, for `since`; None where it is no file (a terminal, a pipe)."""
    found = os.fstat(2)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def since(position):
    """What was written to file descriptor 2 since `position`; "" for None. Unlike `captured` it keeps nothing back meanwhile."""
    if position is None:
        return ""
    sys.stderr.flush()
    with open("/proc/self/fd/2", "rb") as file:
        file.seek(position)
        return file.read().decode(errors="replace")
