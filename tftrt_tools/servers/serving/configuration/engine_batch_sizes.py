"""Which batch sizes the engines of a model serve, read from its files; nothing is loaded or run. `covered` asks a child process."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Covered(records.Record):
    """path: version directory. sizes: batch sizes, None for every size; known: False if the files do not tell, then sizes is (); reason:
    the source of this, one line; unbatched: a line for each tensor that keeps a signature from being batched."""

    path: str
    sizes: tuple[int, ...] | None
    known: bool
    reason: str
    unbatched: tuple[str, ...] = ()


@jobs.job
def read() -> Callable[[Sequence[str]], Sequence[Covered]]:
    """Covered for each SavedModel directory."""
    from tftrt_tools.servers.serving.configuration import engine_batch_sizes_job

    return engine_batch_sizes_job.read


def covered(paths: Sequence[str | pathlib.Path]) -> list[Covered]:
    """Covered for each SavedModel directory. Raises: TftrtError, UsageError."""
    models = [str(path) for path in paths]
    if not models:
        return []
    return list(read.run(models).result)


def common(found: Sequence[Covered]) -> tuple[tuple[int, ...] | None, bool]:
    """The sizes that all of `found` cover. Returns: (sizes or None for every size, whether all are known)."""
    limited = [set(one.sizes) for one in found if one.known and one.sizes is not None]
    return (tuple(sorted(set.intersection(*limited))) if limited else None), all(one.known for one in found)
