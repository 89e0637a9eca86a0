"""Which batching parameters are tried, as pure functions. Batch sizes come from the engines' profiles alone."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.servers.serving.configuration import batching_file
from tftrt_tools.servers.serving.configuration.batching_file import Settings

# Rows of the largest batch that is tried first, in requests, where every size can be served; and those that are tried next.
_LARGEST, _OTHERS = 32, (8, 128)
# How many smaller values of max_batch_size are tried.
_SMALLER = 3
# Shares of the promised time that a batch may wait for more requests.
_WAITS = (0.05, 0.1, 0.25)
# max_enqueued_batches: the server's default first.
_QUEUES = (10, 100)


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """A direction of the search. name: for people. values: what replaces fields of Settings, {field: value} each."""

    name: str
    values: tuple[dict[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Space:
    """start: the first Settings. coordinates: in the order in which they are searched."""

    start: Settings
    coordinates: tuple[Coordinate, ...]


def space(covered: Sequence[int] | None, rows: int, limit_s: float, cores: int) -> Space:
    """The Space of a model.

    Args: covered: batch sizes that its engines serve, None for every size. rows: of a request. limit_s: the promised time in seconds.
      cores: of the server. Raises: UsageError where the engines serve no batch of two requests.
    """
    sizes = list(_sizes(covered, rows))
    threads = sorted(
        {max(1, cores // 4), max(1, cores // 2), cores, 2 * cores, 1}, key=lambda count: (count != cores, -count)
    )
    waits = [0, *(_rounded(limit_s * share * 1e6) for share in _WAITS)]
    start = Settings(
        **sizes[0], batch_timeout_micros=waits[0], num_batch_threads=threads[0], max_enqueued_batches=_QUEUES[0]
    )
    return Space(
        start,
        (
            Coordinate("num_batch_threads", tuple({"num_batch_threads": thread} for thread in threads)),
            Coordinate("max_batch_size", tuple(sizes)),
            Coordinate("batch_timeout_micros", tuple({"batch_timeout_micros": wait} for wait in dict.fromkeys(waits))),
            Coordinate("max_enqueued_batches", tuple({"max_enqueued_batches": queue} for queue in _QUEUES)),
        ),
    )


def _sizes(covered: Sequence[int] | None, rows: int) -> Iterator[dict[str, Any]]:
    """{field: value} of the batch sizes, the first to try first."""
    if covered is None:
        largest: list[int] = [rows * count for count in (_LARGEST, *_OTHERS)]
    else:
        fitting = [size for size in covered if size >= 2 * rows]
        if not fitting:
            raise errors.UsageError(
                f"the engines serve batches of {batching_file.text_of(covered)}: no two requests of {rows} "
                f"row{'s' * (rows > 1)} fit into one",
                "build engines for larger batches (`tftrt build --shapes`)",
            )
        largest = fitting[::-1] if len(fitting) <= 1 + _SMALLER else _halved(fitting)
    for size in largest:
        chosen = batching_file.chosen(Settings(max_batch_size=size), covered)
        yield {"allowed_batch_sizes": chosen.allowed_batch_sizes, "max_batch_size": chosen.max_batch_size}


def _halved(fitting: Sequence[int]) -> list[int]:
    """The largest size, the largest that is at most half of it, and so on."""
    chosen = [fitting[-1]]
    while len(chosen) <= _SMALLER and (smaller := [size for size in fitting if 2 * size <= chosen[-1]]):
        chosen.append(smaller[-1])
    return chosen


def _rounded(value: float) -> int:
    """With two digits."""
    return int(float(f"{value:.2g}"))
