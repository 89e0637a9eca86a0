"""Trials that need no other, side by side on the GPUs of this machine (`tftrt tune --on=local`).

Each is a task of a fleet, with a GPU of its own, and works in a folder of its own. What it measured and made is put into the work folder
as it comes, and the search finds it there, as it finds the trials of an earlier run. So the search is the same with and without a fleet.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.base.process import environment, jobs, progress, starting
from tftrt_tools.base.stack import local_gpus
from tftrt_tools.fleet import content, running, session, stack
from tftrt_tools.fleet import task as fleet_task
from tftrt_tools.fleet.content import Packed
from tftrt_tools.fleet.place import Place
from tftrt_tools.fleet.session import Fleet
from tftrt_tools.fleet.task import Given, Outcome, Row
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import makers, space
from tftrt_tools.studies.tuning.journal import Journal
from tftrt_tools.studies.tuning.trial import Shared, Task, Trials
from tftrt_tools.studies.tuning.tried import Measured
from tftrt_tools.tftrt.conversion.settings import Settings

# In the work folder; Trials removes what a process that was killed has left under it.
_PREFIX = ".trial-"
# The tables there that are made of data.
CALIBRATIONS = "calibration-*.json"
# (back end, settings) of a trial.
Named = tuple[str, Settings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Where:
    """The fleet that a search may use. live: shows a table while tasks run; what it yields is told the rows."""

    place: Place
    live: Callable[[], AbstractContextManager[Callable[[Sequence[Row]], None]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(records.Record):
    """One trial. told: for what makes its model; settings: a Settings as a dict; work_dir: has the calibrations that are done; folder: the
    user's, for modules and relative paths; log_file: of this trial, "" for none."""

    shared: Shared
    told: makers.Asked
    backend: str
    settings: Mapping[str, Any]
    work_dir: str
    folder: str
    trial_minutes: float = 0.0
    log_file: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tried(records.Record):
    """What it answers. key: under which the journal keeps it."""

    key: str
    measured: Measured


@jobs.job
def trial() -> Callable[[Given], Tried]:
    """One trial, in a folder of its own."""
    from tftrt_tools.studies.tuning import fleet_trials_job

    return fleet_trials_job.job


class Prefetch:
    """Does trials side by side before the search asks for them. width: how many run at once."""

    def __init__(
        self,
        fleet: Fleet,
        where: Where,
        told: makers.Asked,
        task: Task,
        journal: Journal,
        trials: Trials,
        tried: Sequence[str],
    ) -> None:
        """Args: fleet: of `where`; told: what makers are told; tried: names of the back ends."""
        self._fleet, self._live, self._told, self._task = fleet, where.live, told, task
        self._journal, self._trials = journal, trials
        self._wanted = stack.here()
        kind = "GPU" if any(backends.named(one).needs_gpu for one in tried) else "CPU"
        self.width = max(1, int(sum(one.get(kind, 0) for one in fleet.nodes().values())))
        if self.width < 2:
            progress.note(f"--on=local changes nothing: there is one {kind} here")

    def __call__(self, listed: Sequence[Named]) -> None:
        """Do what is not done yet. A trial alone is left to the search, and so is what no worker brings to an end. Raises: TftrtError where
        the fleet has gone."""
        missing = [one for one in dict.fromkeys(listed) if not self._trials.has(one[1], one[0])]
        if len(missing) < 2 or self.width < 2:
            return
        # The process of the trials here would keep its GPU.
        self._trials.rest()
        tasks = {f"{number} {_text(one)}": one for number, one in enumerate(missing, 1)}
        progress.say(f"{len(tasks)} trials, {min(self.width, len(tasks))} at a time")
        with (
            self._live() as changed,
            contextlib.closing(
                running.run(self._fleet, [self._of(name, one) for name, one in tasks.items()], self._wanted, changed)
            ) as outcomes,
        ):
            for outcome in outcomes:
                self._keep(tasks[outcome.task.name], outcome)

    def _of(self, name: str, one: Named) -> fleet_task.Task:
        backend, settings = one
        log_file = self._told.log_file
        asked = Asked(
            shared=self._task.shared,
            told=self._told,
            backend=backend,
            settings=settings.to_dict(),
            work_dir=str(self._journal.folder.absolute()),
            folder=starting.current_folder(),
            trial_minutes=self._trials.minutes,
            log_file=f"{os.path.abspath(log_file)}.{name.partition(' ')[0]}" if log_file else "",
        )
        gpus = 1 if backends.named(backend).needs_gpu else 0
        return fleet_task.Task(name=name, job=trial, request=asked.to_dict(), gpus=gpus)

    def _keep(self, one: Named, outcome: Outcome) -> None:
        backend, settings = one
        done: Tried | None = outcome.answer
        if done is None or not done.key:
            cause = outcome.error.cause if outcome.error else done and done.measured.failure
            progress.note(f"{_text(one)}: {cause}; it is tried here when its turn comes")
            return
        if outcome.output is not None:
            self._take(outcome.output)
        assert outcome.where is not None
        self._trials.keep(done.key, settings, done.measured, backend, outcome.where.text())

    def _take(self, packed: Packed) -> None:
        """Put what was made into the work folder; what is there stays."""
        with tempfile.TemporaryDirectory(dir=self._journal.folder, prefix=_PREFIX) as folder:
            _move(content.unpack(packed, pathlib.Path(folder, "made")), self._journal.folder)


def _move(source: pathlib.Path, target: pathlib.Path) -> None:
    for one in source.iterdir():
        there = target / one.name
        if not there.exists():
            os.replace(one, there)
        elif one.is_dir() and there.is_dir():
            _move(one, there)


def _text(one: Named) -> str:
    backend, settings = one
    return space.text(settings, backend=backend)


@contextlib.contextmanager
def opened(where: Where | None) -> Iterator[Fleet | None]:
    """Yields: the fleet; None without `where`. Raises: TftrtError where it does not start."""
    if where is None:
        yield None
        return
    with environment.variables(local_gpus.variables()), session.opened(where.place) as fleet:
        yield fleet


def of_settings(written: Mapping[str, Any]) -> Settings:
    """The Settings of a dict."""
    return (space.Int8As if "int8_as" in written else Settings).from_dict(written)
