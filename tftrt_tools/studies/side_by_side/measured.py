"""The result of models that were measured side by side. The table, JSON and pages are made from these classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from tftrt_tools.base import records, results
from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.regression import sentences
from tftrt_tools.studies.regression import verdict as verdicts

INTERRUPTED = "interrupted"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure(records.Record):
    """A metric of one model: seconds, or answers a second. low, high: its interval; None where there were too few requests or rounds."""

    metric: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    # Why the value is None, "" where it is known.
    unknown: str = ""

    def text(self) -> str:
        """For a table: milliseconds, or answers a second."""
        if self.value is None:
            return self.unknown
        return f"{self.value:.1f}" if self.metric == verdicts.THROUGHPUT else f"{1e3 * self.value:.3f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(records.Record):
    """One model."""

    # Its name in the table; its path as it was given, and the digest of its files.
    name: str
    model: str
    digest: str
    # Its kind, such as "SavedModel".
    form: str = records.field(key="format")
    # In the order of verdict.METRICS that were measured.
    figures: tuple[Figure, ...]
    # Requests that were answered, and that failed, with the first messages.
    answered: int
    failed: int
    errors: tuple[str, ...] = ()
    # Against the first model, metric by metric; () of the first itself.
    against_first: tuple[verdicts.Judgement, ...] = ()
    # Whether its answers are like the first model's, None where they were not compared; and in words. (None, "") of the first.
    alike: bool | None = None
    answers: str = ""
    # Why its times say nothing of its engines, "" where they do.
    not_judged: str = ""

    def figure(self, metric: str) -> Figure:
        """The Figure of a metric that was measured."""
        return next(one for one in self.figures if one.metric == metric)

    def of(self, metric: str) -> verdicts.Judgement | None:
        """The Judgement against the first model, None of the first itself."""
        return next((one for one in self.against_first if one.metric == metric), None)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SideBySide(passport.Stamped, results.Result):
    """Models measured side by side."""

    document: ClassVar[str] = "side by side"
    written_too: ClassVar[tuple[str, ...]] = ("complete", "sentences")

    rows: tuple[Row, ...]
    # The requests, the same for all models.
    signature: str
    shapes: tuple[str, ...]
    values: str
    distinct: int
    concurrency: int
    # Rounds, and requests to each model in one of them.
    rounds: int
    requests: int
    # The smallest difference that counts, as a share; and the share of false alarms over all models and metrics.
    min_effect: float
    alpha: float
    # Facts about this machine.
    machine: Fingerprint
    # {flag: value} of the flags that were set.
    settings: Mapping[str, object]
    notes: tuple[str, ...] = ()
    # "" for a whole run, else why it ended early.
    ended: str = ""
    # Wall time.
    seconds: float = records.field(digits=2)

    @property
    def complete(self) -> bool:
        """Whether it came to its end."""
        return not self.ended

    @property
    def failed(self) -> int:
        """Requests to all models that were not answered."""
        return sum(row.failed for row in self.rows)

    @property
    def sentences(self) -> list[str]:
        """What can be said of each model against the first, and how sure that is; a line each."""
        return [self._sentence(row) for row in self.rows[1:]]

    def _sentence(self, row: Row) -> str:
        judged = row.of("p50")
        assert judged is not None
        if row.not_judged:
            return f"{row.name}: no verdict: {row.not_judged}"
        said = sentences.sentence(judged, row.name)
        if judged.verdict == verdicts.UNSURE:
            return f"{said}: NOT SURE: {judged.reason}"
        if judged.verdict == verdicts.SAME:
            return f"{said}: sure, {judged.reason}"
        # How fast a model is says little where it answers something else.
        unlike = {
            False: ", but its answers are not like the first model's",
            None: ", but the answers were not compared",
        }
        return f"{said}: sure, with at most {self.alpha:.1%} of false alarms{unlike.get(row.alike, '')}"

    def summary(self) -> str:
        """As Result.summary."""
        first = self.rows[0]
        return "; ".join([f"{first.name} p50 {first.figure('p50').text()} ms", *self.sentences])
