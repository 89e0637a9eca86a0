"""Compares two models at several batch sizes: one after the other here, or beside each other on the GPUs of this machine.

Each batch size is a comparison of its own (`regress`), with both models in turns in one process on one GPU.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs, progress, starting
from tftrt_tools.fleet import beside
from tftrt_tools.fleet.task import Given, Task
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.studies.regression import baseline, regress
from tftrt_tools.studies.regression.comparison import Regression
from tftrt_tools.studies.regression.several import Part, Regressions

# A result, or why there is none.
_Made: TypeAlias = Regression | errors.TftrtError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """One batch size. options: regress.Options without its models, its TLS and its baseline. latest, kept: the baseline, None for none.
    folder: the user's, for modules and relative paths."""

    options: Mapping[str, Any]
    native: Source
    candidate: Source
    latest: baseline.Latest | None = None
    kept: baseline.Baseline | None = None
    folder: str = ""

    def whole(self) -> regress.Options:
        """The Options."""
        found: regress.Options = records.structured(self.options, regress.Options)
        models: dict[str, Any] = {"native": self.native, "candidate": self.candidate}
        return dataclasses.replace(found, **models, baseline=self.latest or self.kept)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(records.Record):
    """What the process answers. regression: of Regression.fields; missed: of its answers.Judged."""

    regression: Mapping[str, Any]
    missed: tuple[str, ...] = ()

    @classmethod
    def of(cls, done: Regression) -> Compared:
        """What travels of a result."""
        return cls(regression=done.fields(), missed=done.answers.missed if done.answers else ())

    def whole(self) -> Regression:
        """The result."""
        done = Regression.from_dict(self.regression)
        if not done.answers:
            return done
        return dataclasses.replace(done, answers=dataclasses.replace(done.answers, missed=self.missed))


@jobs.job
def compare() -> Callable[[Given], Compared]:
    """One batch size, in a process of its own."""
    from tftrt_tools.studies.regression import sizes_job

    return sizes_job.job


def regress_each(options: regress.Options, sizes: Sequence[int], where: beside.Where | None = None) -> Regressions:
    """Compare at each batch size.

    Args: options: their batch_size is not looked at. sizes: at least one, each once. where: the fleet of this machine; None for one after
      the other, here. Returns: Regressions, also after an interrupt after the first result. Raises: UsageError; TftrtError if nothing
      could be measured.
    """
    regress.check(options)
    regress.check_models(options)
    begun, found, ended = time.monotonic(), dict[int, _Made](), ""
    try:
        with beside.opened(where) as fleet:
            each = _beside(fleet, options, sizes) if fleet and fleet.width > 1 else _in_turn(options, sizes)
            for size, made in each:
                found[size] = made
                if isinstance(made, Regression) and made.ended == regress.INTERRUPTED:
                    ended = regress.INTERRUPTED
                    break
    except (KeyboardInterrupt, errors.TftrtError) as error:
        # An interruption, or a fleet that has gone.
        if not _measured(found):
            raise
        ended = error.cause if isinstance(error, errors.TftrtError) else regress.INTERRUPTED
    if not _measured(found):
        # Of several that failed the first one that was asked for.
        raise next(one for one in map(found.get, sizes) if isinstance(one, errors.TftrtError))
    parts = tuple(_part(size, found.get(size), ended) for size in sizes)
    return Regressions(stamp=passport.stamp(), parts=parts, ended=ended, seconds=time.monotonic() - begun)


def _measured(found: Mapping[int, _Made]) -> bool:
    return any(isinstance(made, Regression) for made in found.values())


def _part(size: int, made: _Made | None, ended: str) -> Part:
    if isinstance(made, Regression):
        return Part(batch_size=size, regression=made)
    return Part(batch_size=size, cause=made.cause if made else ended, mend=made.mend if made else "")


def _in_turn(options: regress.Options, sizes: Sequence[int]) -> Iterator[tuple[int, _Made]]:
    """Yields: (batch size, its result, or why there is none)."""
    for size in sizes:
        progress.say(f"batch size {size}")
        try:
            yield size, regress.regress(_of_size(options, size))
        except errors.TftrtError as error:
            yield size, error


def _beside(fleet: beside.Opened, options: regress.Options, sizes: Sequence[int]) -> Iterator[tuple[int, _Made]]:
    """As _in_turn, each size on a GPU of its own."""
    names = {name(size): size for size in sizes}
    tasks = {one: functools.partial(_task, options, size) for one, size in names.items()}
    for done in beside.run(fleet, tasks):
        yield names[done.outcome.task.name], of_done(done)


def name(size: int) -> str:
    """What people read of a task."""
    return f"batch size {size}"


def _of_size(options: regress.Options, size: int) -> regress.Options:
    """The Options of one batch size, with a log of its own."""
    log_file = f"{os.path.abspath(options.log_file)}.batch-{size}" if options.log_file else None
    return dataclasses.replace(options, batch_size=size, log_file=log_file)


def _task(options: regress.Options, size: int, others: int) -> Task:
    of_size = dataclasses.replace(_of_size(options, size), others=others)
    bare = dataclasses.replace(of_size, native="", candidate="", baseline=None)
    asked = Asked(
        options=records.plain(bare),
        native=of(options.native),
        candidate=of(options.candidate),
        latest=options.baseline if isinstance(options.baseline, baseline.Latest) else None,
        kept=options.baseline if isinstance(options.baseline, baseline.Baseline) else None,
        folder=starting.current_folder(),
    )
    return Task(name=name(size), job=compare, request=asked.to_dict())


def of_done(done: beside.Done) -> _Made:
    """The result of a batch size, with the place where it was measured; or why there is none."""
    compared: Compared | None = done.outcome.answer
    if compared is None:
        return done.error()
    found, ran = compared.whole(), done.ran()
    return dataclasses.replace(found, beside=ran, notes=(ran.note(), *found.notes))
