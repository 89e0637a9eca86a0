"""The result of a comparison. Text, JSON, JUnit and pages are made from these classes."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tftrt_tools.base import choices, errors, records, results, terminal
from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.fleet.beside import Ran
from tftrt_tools.servers.serving.smoke import engine_evidence
from tftrt_tools.studies.regression import answers as comparing
from tftrt_tools.studies.regression import goals as goal_rules
from tftrt_tools.studies.regression import sentences
from tftrt_tools.studies.regression import verdict as verdicts
from tftrt_tools.studies.regression.models import Model
from tftrt_tools.studies.regression.rounds import Side

PASS: choices.RunVerdict = "pass"
FAIL: choices.RunVerdict = "fail"
UNSURE: choices.RunVerdict = "cannot tell"
ENDED: choices.RunVerdict = "ended early"
_EXIT_CODES: Mapping[choices.RunVerdict, int] = {
    PASS: errors.EXIT_DONE,
    FAIL: errors.EXIT_CHECK,
    UNSURE: errors.EXIT_UNSURE,
    ENDED: errors.EXIT_FAILED,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check(records.Record):
    """One check."""

    # Short and stable, such as "speed/p50" or "goal/p99_ms_at_most".
    name: str
    # The requirement and the finding, in words.
    what: str
    found: str
    verdict: choices.RunVerdict
    # The failure in words, "" if it passed.
    reason: str = ""

    @property
    def text(self) -> str:
        """The finding as a sentence."""
        return f"{self.what}: {self.found}" if self.name.startswith("goal/") else self.found


@dataclasses.dataclass(frozen=True)
class PerRound(records.Record):
    """Figures of each round, in order: medians in seconds, and answers a second."""

    native_p50: tuple[float, ...] = records.field(digits=9, default=())
    candidate_p50: tuple[float, ...] = records.field(digits=9, default=())
    native_rate: tuple[float, ...] = records.field(digits=9, default=())
    candidate_rate: tuple[float, ...] = records.field(digits=9, default=())


@dataclasses.dataclass(frozen=True)
class Compared(records.Record):
    """This run compared with a baseline. source: where the baseline is; created: when it was measured; candidate_digest: of the model
    measured then; judgements: of each compared metric."""

    source: str
    created: str
    candidate_digest: str
    judgements: tuple[verdicts.Judgement, ...]


class Judged(results.Result):
    """A result with an outcome. stamp: tool, version and time, as passport.stamp gives them. ended: "" for a whole run, else why it ended
    early."""

    stamp: Mapping[str, str]
    ended: str

    @property
    def complete(self) -> bool:
        """Whether all of it was measured."""
        raise NotImplementedError

    @property
    def outcome(self) -> choices.RunVerdict:
        """PASS, FAIL, UNSURE or ENDED."""
        raise NotImplementedError

    @property
    def headline(self) -> str:
        """One line: the outcome and its reason."""
        raise NotImplementedError

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return _EXIT_CODES[self.outcome]

    def summary(self) -> str:
        """As Result.summary."""
        return self.headline

    def beginning(self) -> dict[str, Any]:
        """The keys with which the document begins."""
        return {
            "kind": self.document,
            "schema_version": 1,
            **self.stamp,
            "complete": self.complete,
            "ended": self.ended,
            "outcome": self.outcome,
            "headline": self.headline,
            "exit_code": self.exit_code,
        }


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Regression(records.Record, Judged):
    """A finished comparison, or the finished part of one."""

    # Tool, version and time, as passport.stamp gives them.
    stamp: Mapping[str, str]
    native: Model
    candidate: Model
    # "address", "backend", "reason".
    server: Mapping[str, Any]
    # The requests: two runs are comparable only if these are the same.
    workload: Mapping[str, Any]
    # How it was measured.
    settings: Mapping[str, Any]
    # The Fingerprint of this machine.
    fingerprint: Fingerprint
    # None if no round was complete.
    verdict: verdicts.Verdict | None
    rounds: PerRound
    # Requests to each model in a round.
    requests: int
    # {model: requests without an answer}, {model: texts of the first errors}.
    failed: Mapping[Side, int]
    errors: Mapping[Side, Sequence[str]]
    # None if the answers were not compared.
    answers: comparing.Judged | None = None
    # Whether the candidate's engines ran; None if not checked.
    engines: engine_evidence.Verdict | None = None
    # The goals that were set, judged.
    kept: tuple[goal_rules.Kept, ...] = ()
    # Metrics whose "cannot tell" makes the run's outcome "cannot tell".
    must_decide: tuple[str, ...] = ("p50",)
    # None without a baseline.
    compared: Compared | None = None
    # Whether a slower candidate is accepted.
    allow_worse: bool = False
    # Why the speed is not judged, "" where it is.
    speed_not_judged: str = ""
    # "" for a whole run, else why it ended early.
    ended: str = ""
    # Wall time.
    seconds: float = 0.0
    # Notes, a line each.
    notes: tuple[str, ...] = ()
    # Where it was measured, if it is one of several; else None.
    beside: Ran | None = None

    document: ClassVar[str] = "regression"

    @property
    def complete(self) -> bool:
        return not self.ended

    @property
    def checks(self) -> tuple[Check, ...]:
        """(Check, …): everything that decides the outcome."""
        return tuple(_checks(self))

    @property
    def outcome(self) -> choices.RunVerdict:
        """PASS, FAIL, UNSURE, or ENDED for a run that ended early."""
        if self.ended:
            return ENDED
        found = {one.verdict for one in self.checks}
        return FAIL if FAIL in found else UNSURE if UNSURE in found else PASS

    @property
    def rounds_help(self) -> bool:
        """Whether the outcome is open and more rounds could decide it."""
        opened = [one.name for one in self.checks if one.verdict == UNSURE]
        return self.outcome == UNSURE and any(
            name.startswith(("speed/", "baseline/")) or name in goal_rules.MEASURED for name in opened
        )

    @property
    def headline(self) -> str:
        """One line: the outcome and its first reason."""
        if self.ended:
            return f"{ENDED.upper()}: {self.ended}; no verdict"
        word, wrong = self.outcome.upper(), [one for one in self.checks if one.verdict == self.outcome != PASS]
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            return f"{word}: {wrong[0].text}{more}"
        if self.speed_not_judged:
            right = "the graph's answers are right, and no engine ran; " if self.answers else ""
            return f"{word}: {right}no verdict on speed: {self.speed_not_judged}"
        one = self.verdict.of("p50") if self.verdict else None
        uncounted = "only the goals count here (--allow_worse); " if self.allow_worse else ""
        return f"{word}: {uncounted}{sentences.sentence(one)}" if one else word

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: the document begins with the outcome, and has other names for some parts."""
        return {
            **self.beginning(),
            "native": self.native.to_dict(),
            "candidate": self.candidate.to_dict(),
            "server": self.server,
            "workload": self.workload,
            "settings": self.settings,
            "machine": self.fingerprint.to_dict(),
            "verdict": self.verdict.to_dict() if self.verdict else None,
            "rounds": self.rounds.to_dict(),
            "requests_per_round": self.requests,
            "failed": self.failed,
            "errors": self.errors,
            "answers": self.answers.to_dict() if self.answers else None,
            "speed_not_judged": self.speed_not_judged,
            "engines": self.engines.to_dict() if self.engines else None,
            "goals": [one.to_dict() for one in self.kept],
            "baseline": self.compared.to_dict() if self.compared else None,
            "checks": [one.to_dict() for one in self.checks],
            "seconds": round(self.seconds, 2),
            "notes": list(self.notes),
            "beside": self.beside.to_dict() if self.beside else None,
        }

    def fields(self) -> dict[str, Any]:
        """Plain values of the fields, for another process; `from_dict` reads them."""
        return super().to_dict()


def _checks(done: Regression) -> Iterator[Check]:
    for name, count in done.failed.items():
        if count:
            yield Check(
                name=f"requests/{name}",
                what=f"all requests to the {name} model are answered",
                found=f"{terminal.counted(count, 'request')} to the {name} model failed",
                verdict=FAIL,
                reason="; ".join(done.errors.get(name, ())) or "see the server's log",
            )
    for judged in done.verdict.judgements if done.verdict and not done.speed_not_judged else ():
        yield _of_speed(judged, done)
    if done.answers:
        found = "; ".join(done.answers.problems[:3])
        kept = "".join(f"; {one['goal']}: {one['candidate']:.6g}" for one in done.answers.goals if one["kept"])
        wanted = (
            "the answers keep the goals on accuracy"
            if done.answers.goals
            else "the answers are like the native model's"
        )
        open_ = "" if found else _accuracy_not_known(done)
        yield Check(
            name="answers",
            what=wanted,
            found=f"the answers differ: {found}" if found else done.answers.text + kept + open_,
            verdict=FAIL if found else UNSURE if open_ else PASS,
            reason=found and found + _of_drawn(done) or open_.removeprefix("; "),
        )
    for one in done.kept:
        if one.name != "accuracy":  # stands in the check of the answers
            words = {goal_rules.KEPT: PASS, goal_rules.MISSED: FAIL, goal_rules.UNDECIDED: UNSURE}
            yield Check(
                name=f"goal/{one.name}", what=one.goal, found=one.value, verdict=words[one.verdict], reason=one.reason
            )
    for change in done.compared.judgements if done.compared else ():
        outcome = _outcome(change.verdict, change.metric in done.must_decide, False)
        yield Check(
            name=f"baseline/{change.metric}",
            what=f"against the baseline: {sentences.wanted(change.metric, True)}",
            found=f"against the baseline {sentences.sentence(change)}{_not_asked(change, outcome)}",
            verdict=outcome,
            reason="" if outcome == PASS else change.reason,
        )


def _of_speed(one: verdicts.Judgement, done: Regression) -> Check:
    must = one.metric in done.must_decide
    outcome = _outcome(one.verdict, must, done.allow_worse)
    return Check(
        name=f"speed/{one.metric}",
        what=sentences.wanted(one.metric, must),
        found=sentences.sentence(one) + _not_asked(one, outcome),
        verdict=outcome,
        reason="" if outcome == PASS else one.reason,
    )


def _accuracy_not_known(done: Regression) -> str:
    """That a goal on accuracy was kept by the graph alone, "" where the engines ran: INT8 is what costs accuracy."""
    if not (done.speed_not_judged and done.answers and done.answers.goals and done.candidate.precision == "INT8"):
        return ""
    return "; no engine ran, so what INT8 costs is not in it: `tftrt verify` simulates that without a GPU"


def _not_asked(one: verdicts.Judgement, outcome: choices.RunVerdict) -> str:
    """That a check which passes has not been decided, and need not be; "" for others."""
    return " (open: --must_decide leaves it out)" if outcome == PASS and one.verdict == verdicts.UNSURE else ""


def _of_drawn(done: Regression) -> str:
    """What drawn values have to do with answers that differ, "" for the user's own."""
    values = done.workload["values"]
    return (
        f"; the values were {values}, and may be such as the model never sees: --data=FILE judges it on yours"
        if values.startswith(("random", "drawn"))
        else ""
    )


def _outcome(verdict: choices.Verdict, must: bool, allow_worse: bool) -> choices.RunVerdict:
    if verdict == verdicts.WORSE:
        return PASS if allow_worse else FAIL
    return UNSURE if verdict == verdicts.UNSURE and must and not allow_worse else PASS
