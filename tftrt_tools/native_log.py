"""What native libraries write to stderr, caught: TF-TRT reports much in its log only."""

import contextlib
import os
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
