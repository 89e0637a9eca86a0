"""Calls of a model without a server, traced. Runs in a child process, for `alone`."""

import itertools
import math
import time

from tftrt_tools.models.execution.run import LoadRequest
from tftrt_tools.studies.bench import in_process_job
from tftrt_tools.studies.bench.in_process import Inside

# So many seconds of calls are timed, and so many are traced, a multiple of the number of different calls at least once.
_SECONDS = 1.0
_MOST_CALLS = 200


def split(request: LoadRequest) -> Inside:
    """Make each call, time them, and trace them. Raises: TftrtError."""
    call, count = in_process_job.make(request)
    from tftrt_tools.models.execution.job import profiling

    begun = time.perf_counter()
    for index in range(count):
        call(index)
    rounds = min(math.ceil(_SECONDS / max(time.perf_counter() - begun, 1e-6)), max(1, _MOST_CALLS // count))
    order = list(itertools.chain.from_iterable(range(count) for _ in range(rounds)))

    def every() -> None:
        for index in order:
            call(index)

    begun = time.perf_counter()
    every()
    plain = (time.perf_counter() - begun) / len(order)
    return Inside(plain_seconds=plain, split=profiling.split(every))
