"""Ranks nodes by the simulation of a back end itself (protocol.Simulates); what it found is kept in the journal's folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.backends.protocol import Ranked, Rows
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import journal as journal_module
from tftrt_tools.studies.tuning import ranking
from tftrt_tools.studies.tuning.makers import Direct
from tftrt_tools.studies.tuning.trial import Task
from tftrt_tools.tftrt.conversion.settings import Settings


class Simulated:
    """As makers.Ranks."""

    def __init__(self, maker: Direct, task: Task, journal: journal_module.Journal) -> None:
        """Args: maker: of a back end that is a protocol.Simulates."""
        self._maker, self._task, self._journal = maker, task, journal
        self._backend: Any = maker.backend

    def __call__(self, settings: Settings) -> Ranked:
        """Raises: TftrtError where nothing can be simulated."""
        found = self._found("rank", settings, lambda own, rows: dataclasses.asdict(self._backend.rank(own, rows)))
        return Ranked(tuple(found["names"]), found["first"])

    def snr_db(self, settings: Settings) -> float:
        """As Simulates.promise."""
        return float(self._found("promise", settings, lambda own, rows: str(self._backend.promise(own, rows))))

    def _found(self, name: str, settings: Settings, ask: Callable[[Recipe, Rows], Any]) -> Any:
        title, task = self._maker.backend.name, self._task
        try:
            own, data = self._maker.built_with(settings), self._maker.data(settings)
            facts = {**task.facts, **self._maker.asked.facts, **backends.versions(title)}
            key = journal_module.key(settings=own.to_dict(), **facts)
            rows = Rows(source=self._maker.asked.source, calls=ranking.first_calls(task.scoring), data=data)
            progress.say(f"simulating the rounding of {title}")
            return self._journal.fact(f"{title}-{name}", key, lambda: ask(own, rows))
        except errors.UsageError as error:
            # What the back end refuses is not an error in the command's flags.
            raise errors.TftrtError(error.cause, error.mend) from None
