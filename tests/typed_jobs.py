"""Jobs of the tests of `jobs`."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs, progress


@dataclasses.dataclass(frozen=True)
class Asked(records.Record):
    """A request."""

    text: str
    times: int | None = None


@dataclasses.dataclass(frozen=True)
class Told(records.Record):
    """An answer."""

    asked: Asked
    process: int
    share: float = float("inf")


def answered(asked: Asked) -> Told:
    if asked.text == "refuse":
        raise errors.UsageError("no", "ask for something else")
    if asked.text == "note":
        progress.say("a step")
        progress.note("wait no longer")
    return Told(asked, os.getpid())


@jobs.job
def work() -> Callable[[Asked], Told]:
    """A job of records."""
    return answered


@jobs.job
def plain() -> Callable[[None], Mapping[str, Sequence[Told]]]:
    """A job of what JSON takes."""
    return lambda nothing: {"all": [answered(Asked("a")), answered(Asked("b"))]}
