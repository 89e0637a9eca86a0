"""A step of `tftrt optimize` as data, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import records
from tftrt_tools.base.choices import StepState

if TYPE_CHECKING:
    from tftrt_tools.studies.optimizing.known import Known

Document = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a step. name: of its files in the work folder; words: of the command, without `tftrt`, --json and limits of time;
    outputs: paths that it makes besides; inputs: paths that it reads and no word names."""

    name: str
    words: Sequence[str]
    outputs: Sequence[str] = ()
    inputs: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Why a step has no command."""

    reason: str


def _no_words(known: Known, minutes: float) -> list[str]:
    return []


def _never(document: Document) -> bool:
    return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One entry of the order."""

    # Short, and the question that it answers.
    name: str
    question: str
    # The commands to run, by what is known when its turn comes; or why there are none. Raises: UsageError.
    commands: Callable[[Known], Sequence[Command] | LeftOut]
    # What a command gave, in words, by its result.
    gave: Callable[[Known, Document], str]
    # Without a GPU it is left for one; its result belongs to this machine's GPU.
    needs_gpu: bool = False
    of_gpu: bool = False
    # Without its result nothing that follows makes sense; and whether a refusal of its words (exit code 2) ends the run, too.
    needed: bool = False
    strict: bool = True
    # The part that it may take of the time that is left, 0 to 1; and the words by which the command itself keeps to these minutes.
    share: float = 1.0
    limits: Callable[[Known, float], list[str]] = _no_words
    # Whether a result was cut short by its limit: with more time it is done again.
    cut: Callable[[Document], bool] = _never
    # Done anew in each run.
    always: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepResult(records.Record):
    """What came of a command of a step, or of a step without one."""

    # Of Step; and of the Command, the step's own without one.
    step: str
    name: str
    question: str = ""
    state: StepState
    # Exactly what ran, without `tftrt`; () if nothing did.
    words: tuple[str, ...] = ()
    exit_code: int = 0
    # Wall time of the run that did it, and the minutes that it had.
    seconds: float = records.field(digits=2, default=0.0)
    minutes: float = records.field(digits=2, default=0.0)
    # What it gave, in words; or why it gave nothing, and what mends that.
    gave: str = ""
    cause: str = ""
    mend: str = ""
    # Path of the JSON that it wrote, "" for none.
    file: str = ""
    # Whether an earlier run did it.
    before: bool = False

    @property
    def passed(self) -> bool:
        """Whether it ran to its end, and found nothing wrong."""
        return self.state == "done" and self.exit_code == 0
