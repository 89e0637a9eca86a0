"""Trials that need no other, side by side on the GPUs of this machine (`tftrt tune --on=local`).

Each is a task of a fleet, with a GPU of its own, and works in a folder of its own. What it measured and made is put into the work folder
as it comes, and the search finds it there, as it finds the trials of an earlier run. So the search is the same with and without a fleet.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.base.process import jobs, progress, starting
from tftrt_tools.fleet import running, stack
from tftrt_tools.fleet import task as fleet_task
from tftrt_tools.fleet.beside import Opened
from tftrt_tools.fleet.task import Given, Outcome
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
class Asked(records.Record):
    """One trial. told: for what makes its model; settings: a Settings as a dict; work_dir: has the calibrations that are done; output: the
    folder in which it works; folder: the user's, for modules and relative paths; log_file: of this trial, "" for none."""

    shared: Shared
    told: makers.Asked
    backend: str
    settings: Mapping[str, Any]
    work_dir: str
    output: str
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
    """Does trials side by side before the search asks for them. width: how many run at once.

    Only trials that need a GPU: each has one to itself, and the processors are enough for all. A trial that fails is left to the search,
    which tries it alone: several share the memory and the disk of this machine.
    """

    def __init__(self, opened: Opened, told: makers.Asked, task: Task, journal: Journal, trials: Trials) -> None:
        """Args: told: what makers are told."""
        self._fleet, self._live, self._told, self._task = opened.fleet, opened.live, told, task
        self._journal, self._trials = journal, trials
        self._wanted, self._numbers = stack.here(), itertools.count(1)
        self.width = opened.width

    def __call__(self, listed: Sequence[Named], seconds: float) -> None:
        """As search.Prefetch. A trial alone is left to the search. Raises: TftrtError where the fleet has gone."""
        missing = [one for one in dict.fromkeys(listed) if backends.named(one[0]).needs_gpu and not self._has(one)]
        if len(missing) < 2 or self.width < 2:
            return
        # The process of the trials here would keep its GPU.
        self._trials.rest()
        tasks = {f"{next(self._numbers)} {_text(one)}": one for one in missing}
        progress.say(f"{len(tasks)} trials, {min(self.width, len(tasks))} at a time")
        with contextlib.ExitStack() as left, self._live() as changed:
            asked = {name: self._of(name, one, self._folder(left)) for name, one in tasks.items()}
            outcomes = running.run(
                self._fleet,
                [fleet_task.Task(name=name, job=trial, request=one.to_dict()) for name, one in asked.items()],
                self._wanted,
                changed,
                goes_on=lambda rows: sum(row.seconds or 0.0 for row in rows) < seconds,
            )
            with contextlib.closing(outcomes):
                for outcome in outcomes:
                    name = outcome.task.name
                    self._keep(tasks[name], outcome, pathlib.Path(asked[name].output))

    def _has(self, one: Named) -> bool:
        backend, settings = one
        return self._trials.has(settings, backend)

    def _folder(self, left: contextlib.ExitStack) -> str:
        """A folder for a trial, on the file system of the work folder."""
        folder = tempfile.mkdtemp(dir=self._journal.folder.absolute(), prefix=_PREFIX)
        left.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _of(self, name: str, one: Named, folder: str) -> Asked:
        backend, settings = one
        log_file = self._told.log_file
        return Asked(
            shared=self._task.shared,
            told=self._told,
            backend=backend,
            settings=settings.to_dict(),
            work_dir=str(self._journal.folder.absolute()),
            output=folder,
            folder=starting.current_folder(),
            trial_minutes=self._trials.minutes,
            log_file=f"{os.path.abspath(log_file)}.trial-{name.partition(' ')[0]}" if log_file else "",
        )

    def _keep(self, one: Named, outcome: Outcome, folder: pathlib.Path) -> None:
        """Put what was measured and made into the work folder; what is there stays."""
        backend, settings = one
        done: Tried | None = outcome.answer
        failure = done.measured.failure if done else outcome.error.cause if outcome.error else ""
        if done is None or not done.key or failure and not self._trials.ran_out_of_time(failure):
            if outcome.status != "left out":
                progress.note(f"{_text(one)}: {failure}; it is tried alone when its turn comes")
            return
        _move(folder, self._journal.folder)
        assert outcome.where is not None
        self._trials.keep(done.key, settings, done.measured, backend, outcome.where.text())


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


def of_settings(written: Mapping[str, Any]) -> Settings:
    """The Settings of a dict."""
    return (space.Int8As if "int8_as" in written else Settings).from_dict(written)
