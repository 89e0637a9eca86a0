"""The result of a search for batching parameters. Text, JSON and the plot are made from it."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import records, results
from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.studies.batching import search
from tftrt_tools.studies.batching.trial import Trial
from tftrt_tools.studies.batching.turns import Turns


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Tuned(records.Record, results.Result):
    """A finished search."""

    document: typing.ClassVar[str] = "batching"
    written_too: typing.ClassVar[tuple[str, ...]] = ("winner", "gain")

    # Tool, version and time, as passport.stamp gives them.
    stamp: Mapping[str, Any]
    # The SavedModel directory and the digest of its files.
    model: str
    model_digest: str
    # Facts about this machine.
    machine: Fingerprint
    # What served.
    backend: str
    # {flag: value} of the flags that were set.
    settings: Mapping[str, Any]
    # The promise, and its percentile, such as "p99".
    goal: str
    percentile: str
    # Batch sizes of the engines for people, and where that is known from.
    sizes: str
    source: str
    trials: tuple[Trial, ...]
    # Why the search ended.
    ended: str
    # Of the best trial; None where that does not batch, or where nothing keeps the promise.
    turns: Turns | None = None
    # {what: path} of the files that were written.
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def summary(self) -> str:
        """As Result.summary."""
        found = f"trial {self.winner} with {self.best.rate:g} requests/s" if self.winner and self.best else "no winner"
        return f"{self.model}, {self.goal}: {found}"

    @property
    def best(self) -> Trial | None:
        """The Trial with the highest rate, None where none kept the promise."""
        return search.best(self.trials)

    @property
    def kept(self) -> bool | None:
        """Whether the best trial kept the promise in turns too; True where there were none."""
        return self.turns.winner.kept if self.turns else True

    @property
    def winner(self) -> int | None:
        """Number of the trial with the highest rate; None where none kept the promise, or this one did not keep it in turns."""
        return self.best.number if self.best and self.kept else None

    @property
    def without(self) -> Trial:
        """The Trial without batching."""
        return self.trials[0]

    @property
    def gain(self) -> float | None:
        """The winner's highest rate as a multiple of that without batching; None where one of them is not known."""
        return (
            self.best.rate / self.without.rate
            if self.winner and self.best and self.best.rate and self.without.rate
            else None
        )
