"""What the tests of load put load on without a server."""

import dataclasses
import time
from collections.abc import Callable

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs
from tftrt_tools.servers.load import function_load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clock(records.Record):
    """seconds: of each call. failing: the index of the calls that fail, or "all". refuse: why there is no clock at all."""

    seconds: float = 0.0
    failing: int | str | None = None
    refuse: str = ""


@jobs.job
def clock() -> Callable[[Clock], function_load.Indexed]:
    """Five functions that wait."""
    return _clock


def _clock(asked):
    if asked.refuse:
        raise errors.TftrtError(asked.refuse, "take another")

    def infer(index):
        time.sleep(asked.seconds)
        if asked.failing in (index, "all"):
            raise ArithmeticError("overflow")

    return infer, 5
