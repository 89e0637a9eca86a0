"""The comparisons of several batch sizes, each with a verdict of its own. Text, JSON, JUnit and pages are made from these classes."""

import dataclasses
import typing
from typing import Any

from tftrt_tools.base import choices, records
from tftrt_tools.studies.regression import comparison
from tftrt_tools.studies.regression.comparison import Regression

# What decides for all, the worst first: what one batch size showed stays true, whatever the others show.
_WORST_FIRST = (comparison.FAIL, comparison.ENDED, comparison.UNSURE, comparison.PASS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(records.Record):
    """One batch size. regression: None where it could not be measured; cause, mend: why, "" where it was."""

    batch_size: int
    regression: Regression | None = None
    cause: str = ""
    mend: str = ""

    @property
    def outcome(self) -> choices.RunVerdict:
        return self.regression.outcome if self.regression else comparison.ENDED

    @property
    def text(self) -> str:
        """The finding, such as "batch size 8: the candidate is …"."""
        found = self.regression.headline.partition(": ")[2] if self.regression else f"not measured: {self.cause}"
        return f"batch size {self.batch_size}: {found}"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Regressions(comparison.Judged):
    """parts: in the order asked for. stamp: as of Regression. ended: "" for a whole run, else why it ended early. seconds: wall time."""

    stamp: dict[str, Any]
    parts: tuple[Part, ...]
    ended: str = ""
    seconds: float = 0.0

    document: typing.ClassVar[str] = "regressions"

    @property
    def complete(self) -> bool:
        """Whether each batch size was measured to its end."""
        return not self.ended and all(one.regression and one.regression.complete for one in self.parts)

    @property
    def outcome(self) -> choices.RunVerdict:
        """The worst of all; it is a PASS only where each batch size passed."""
        found = {one.outcome for one in self.parts} | ({comparison.ENDED} if self.ended else set())
        return next(one for one in _WORST_FIRST if one in found)

    @property
    def headline(self) -> str:
        """One line: the outcome, and the findings that made it."""
        made = [one.text for one in self.parts if one.outcome == self.outcome]
        return f"{self.outcome.upper()}: " + "; ".join(made or [self.ended])

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: the document begins with the outcome."""
        return {
            **self.beginning(),
            "batch_sizes": [one.to_dict() for one in self.parts],
            "seconds": round(self.seconds, 2),
        }
