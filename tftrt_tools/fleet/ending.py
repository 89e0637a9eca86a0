"""What a command says that is ended while its tasks run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tftrt_tools.base import errors


@contextlib.contextmanager
def written_told(written: Callable[[], Sequence[str]], goes_on: str = "") -> Iterator[None]:
    """On Ctrl-C, SIGTERM and where the fleet goes, say what is written. Args: written: its paths then. goes_on: how the next run does."""
    try:
        yield
    except (KeyboardInterrupt, errors.TftrtError) as error:
        paths = written()
        if not paths:
            raise
        cause = error.cause if isinstance(error, errors.Ending) else "interrupted"
        kind = errors.Interrupted if isinstance(error, KeyboardInterrupt) else errors.TftrtError
        raise kind(cause, f"written: {', '.join(paths)}" + (f"; {goes_on}" if goes_on else "")) from error
