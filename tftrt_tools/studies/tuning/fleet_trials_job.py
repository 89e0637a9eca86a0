"""One trial of a search, in a folder of its own."""

import dataclasses
import os
import pathlib
import shutil

from tftrt_tools.fleet.task import Given
from tftrt_tools.studies.tuning import journal, making
from tftrt_tools.studies.tuning.fleet_trials import CALIBRATIONS, Asked, Tried, of_settings
from tftrt_tools.studies.tuning.trial import Task, Trials


def job(given: Given) -> Tried:
    """Try. Raises: UsageError, TftrtError where it cannot even begin."""
    asked = Asked.from_dict(given.request)
    if asked.folder:
        os.chdir(asked.folder)
    settings, folder = of_settings(asked.settings), pathlib.Path(asked.output)
    log_file = asked.log_file or None
    told = dataclasses.replace(asked.told, folder=folder, log_file=log_file)
    made = making.of([asked.backend], told)
    kept = journal.Journal(folder)
    for path in pathlib.Path(asked.work_dir).glob(CALIBRATIONS):
        shutil.copy2(path, folder)
    with Trials(Task.of(asked.shared, made), kept, log_file, trial_minutes=asked.trial_minutes) as trials:
        measured = trials.made(settings, asked.backend) if made else trials(settings)
        done = Tried(key=trials.kept_as(settings, asked.backend), measured=measured)
    # The search numbers its own trials.
    for path in (folder / "lock", *folder.glob("trial-*.json")):
        path.unlink()
    return done
