"""The story of an optimization: what was asked, what each step gave, what is left, and the verdict. Pure functions."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import ClassVar

from tftrt_tools.base import errors, records, results, terminal
from tftrt_tools.base.choices import GoalOutcome
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.optimizing import gave
from tftrt_tools.studies.optimizing import known as knowledge
from tftrt_tools.studies.optimizing.asked import Asked
from tftrt_tools.studies.optimizing.known import Known
from tftrt_tools.studies.optimizing.step import StepResult
from tftrt_tools.tftrt.calibration.comparison import Comparison

# The steps that say whether the goal is kept, in the order of their turn.
_JUDGES = (knowledge.TUNE, knowledge.VERIFY, knowledge.REGRESS, knowledge.BENCH)
# Findings of a diagnosis that are repeated, the most worth first.
_FINDINGS = 5
# Fewer rows than these say little about what INT8 keeps.
FEW_ROWS = 16
# What an outcome means, in a title.
MEANINGS: Mapping[GoalOutcome, str] = {
    "kept": "the goal is kept",
    "open": "not decided yet",
    "not kept": "the goal is not kept",
    "cannot tell": "too noisy to tell",
}
EXIT: Mapping[GoalOutcome, int] = {
    "kept": errors.EXIT_DONE,
    "open": errors.EXIT_DONE,
    "not kept": errors.EXIT_CHECK,
    "cannot tell": errors.EXIT_UNSURE,
}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Story(passport.Stamped, results.Result):
    """A finished optimization, or the finished part of one."""

    document: ClassVar[str] = "optimization"
    written_too: ClassVar[tuple[str, ...]] = ("exit_code",)
    written_first: ClassVar[tuple[str, ...]] = ("kind", "tool", "created", "outcome", "verdict", "exit_code")

    asked: Asked
    outcome: GoalOutcome
    # The outcome in a sentence, with its reason.
    verdict: str
    # Name of the GPU, "" without one.
    gpu: str
    steps: tuple[StepResult, ...]
    # Flags that inspect advised and that were taken; and what is left to the user, a sentence each.
    mends: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    # Names of steps that give more with a GPU, or need one, where this machine has none.
    left: tuple[str, ...] = ()
    # The command that started this, as words; the same command goes on.
    command: tuple[str, ...]
    # What comes next, a command each.
    following: tuple[tuple[str, ...], ...] = ()
    # {what: path} of what was made.
    made: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Wall time of this run, and its budget in minutes.
    seconds: float = records.field(digits=2)
    max_minutes: float
    # Why it ended early, and what mends that; "" for a whole run.
    ended: str = ""
    mend: str = ""

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.asked.model}: {self.outcome.upper()}: {self.verdict}" + (
            f"; ended early: {self.ended}" if self.ended else ""
        )

    @property
    def meaning(self) -> str:
        """The outcome in a few words; how fast the model is first, where that was judged."""
        compared = next((one for one in self.begun if one.step == knowledge.REGRESS and one.passed), None)
        ended = " so far" if self.ended else ""
        words = f"{MEANINGS[self.outcome]}{ended}"
        if compared is None or self.outcome != "kept":
            return words
        return f"{re.sub('^pass: ', '', compared.gave, flags=re.IGNORECASE)}; {words}"

    @property
    def begun(self) -> tuple[StepResult, ...]:
        """The steps that ran, to their end or not."""
        return tuple(one for one in self.steps if one.words)

    @property
    def not_begun(self) -> tuple[StepResult, ...]:
        """The steps that were left out, or are left for a GPU."""
        return tuple(one for one in self.steps if not one.words)

    @property
    def exit_code(self) -> int:
        """Of the command."""
        if self.ended:
            return self.steps[-1].exit_code or errors.EXIT_FAILED
        return EXIT[self.outcome]


def outcome(known: Known) -> tuple[GoalOutcome, str]:
    """(outcome, the sentence) of what is known in the end."""
    judged = [one for one in known.results if one.step in _JUDGES]
    wrong = next((one for one in judged if one.exit_code == errors.EXIT_CHECK), None)
    if wrong:
        return "not kept", f"{wrong.name}: {wrong.gave or wrong.cause}"
    if known.missed:
        return "not kept", known.missed
    verified, compared = known.of(knowledge.VERIFY), [one for one in judged if one.step == knowledge.REGRESS]
    if verified is None or not verified.passed:
        return "open", "nothing was verified"
    if not known.gpu:
        unseen = "" if known.goal_seen else f". Nobody has looked at {known.goal.metric} yet"
        return "open", f"{_answers(known)}, and no engine has run: there is no GPU here{_of_int8(known)}{unseen}"
    wanted = [*compared, *(one for one in judged if one.step == knowledge.BENCH and known.asked.slo)]
    unsure = next((one for one in wanted if not one.passed), None)
    if unsure or not compared:
        why = f"{unsure.name}: {unsure.gave or unsure.cause}" if unsure else "nothing was compared"
        return "cannot tell", why
    return "kept", "; ".join(f"{one.name}: {one.gave}" for one in wanted)


def _answers(known: Known) -> str:
    """What `verify` saw without engines."""
    simulation = (known.document(knowledge.VERIFY) or {}).get("simulation") or {}
    what = " and ".join(dict.fromkeys(simulation.get("simulated", {}).values()))
    if not what:
        return "the rewritten graph answers like the original"
    left = ", ".join(simulation.get("left_out", {}))
    return f"{what}, simulated on {simulation['rows']} rows, answers like the original" + (
        f"; {left}: not simulated" if left else ""
    )


def _of_int8(known: Known) -> str:
    """What is known of INT8, where another precision was converted."""
    if known.precision == "INT8" or not known.asked.int8:
        return ""
    if known.int8_misses:
        return f". INT8 misses the goal, simulated: {known.int8_misses}"
    left = ", ".join(((known.int8_verification or {}).get("simulation") or {}).get("left_out", {}))
    if known.int8_verification and not left:
        return ""
    return ". INT8 was not simulated on the rows that are scored" + (f" for {left}" if left else "")


def _of_calibration(known: Known) -> Iterator[str]:
    """What is strange about the rows that calibrate."""
    calibrated = known.document(knowledge.CALIBRATE) or {}
    yield from (line for line in (calibrated.get("data") or {}).get("warnings") or () if line.startswith("integers "))
    compared = calibrated.get("comparison")
    yield from (
        f"calibration data: {line}" for line in (Comparison.from_dict(compared).nothing_shown if compared else ())
    )
    verified = known.int8_verification or known.document(knowledge.VERIFY) or {}
    yield from (verified.get("calibration") or {}).get("scaled") or ()


def remarks(known: Known) -> Iterator[str]:
    """What the user should know and decide."""
    yield from (known.document(knowledge.TUNE) or {}).get("hints", ())
    yield from known.mends.left
    yield from _of_calibration(known)
    if known.of(knowledge.CALIBRATE) and not known.gpu and known.int8_misses:
        yield (
            f"INT8 misses the goal where it is simulated ({known.int8_misses}): on a GPU tune keeps nodes in a higher precision, where "
            "that helps"
        )
    if 0 < known.simulated_rows < FEW_ROWS:
        rows = terminal.counted(known.simulated_rows, "row")
        yield f"INT8 was simulated on {rows}, which says little: give more rows, with --data or --calibration_data"
    for found in [one for one in known.findings if one.command][:_FINDINGS]:
        trial = found.trial
        what = gave.gain(trial) if trial and trial.gained is not None else f"tftrt {shlex.join(found.command)}"
        yield f"{found.title}: {what}"
    for one in known.results:
        if one.state in ("failed", "out of time"):
            yield f"{one.name} {'failed' if one.state == 'failed' else 'was ended'}: {one.cause}" + (
                f"; {one.mend}" if one.mend else ""
            )
