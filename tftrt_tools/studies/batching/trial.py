"""One set of batching parameters and what a server did with it."""

import dataclasses

from tftrt_tools.base import records
from tftrt_tools.servers.serving.configuration import batching_file
from tftrt_tools.servers.serving.configuration.batching_file import Settings

NO_BATCHING = "no batching"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(records.Record):
    """One server with one set of parameters, searched for the highest rate that keeps the promise."""

    # Counted from 1.
    number: int
    # None: the server did not batch.
    settings: Settings | None
    # Requests a second that it had to keep first, None where nothing was known yet.
    floor: float | None
    # The highest requests a second that were shown to keep the promise, None where none was; the lowest that were not.
    rate: float | None = None
    above: float | None = None
    # Milliseconds of the promised percentile at `rate`.
    ms: float | None = None
    # Where no rate kept it: the smallest milliseconds of that percentile that were seen, and the rate there.
    nearest_ms: float | None = None
    nearest_rate: float | None = None
    # Why the search for its rate ended, in words.
    ended: str = ""
    # Why the load generator, and not the server, may have ended that search; "" where it did not.
    limited: str = ""
    # Why there is no figure: the server did not start, or its answers are wrong.
    failure: str = ""
    # Seconds that the trial took.
    seconds: float = 0.0


def text(settings: Settings | None) -> str:
    """The parameters for people: "batches of 1, 8, 32; wait 2000 us; 2 threads; queue 10"."""
    if settings is None:
        return NO_BATCHING
    sizes = (
        f"padded to {batching_file.text_of(settings.allowed_batch_sizes)}"
        if settings.allowed_batch_sizes
        else f"up to {settings.max_batch_size}"
    )
    threads = f"{settings.num_batch_threads} thread{'s' * (settings.num_batch_threads != 1)}"
    return f"batches {sizes}; wait {settings.batch_timeout_micros} us; {threads}; queue {settings.max_enqueued_batches}"
