"""What a comparison found. Text, JSON, JUnit and pages are made from these."""

import dataclasses

from tftrt_tools import errors
from tftrt_tools.regression import goals as goal_rules
from tftrt_tools.regression import verdict as verdicts

PASS, FAIL, UNSURE, ENDED = "pass", "fail", "cannot tell", "ended early"
# How a direction is worded, with the verb of a sentence: "is 1.58 times as …" from these ratios on, else "takes 3.6% …".
_WORDS = {"faster": (("is", "fast"), ("takes", "less time")), "slower": (("takes", "long"), ("takes", "more time")),
          "higher": (("is", "high"), ("is", "higher")), "lower": (("is", "low"), ("is", "lower"))}
_TIMES_FROM, _TIMES_FROM_RATE = 1.2, 2.0


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that has to hold. name: short and stable, such as "speed/p50" or "goal/p99_ms_at_most"; what: in words; found: in words;
    verdict: PASS, FAIL or UNSURE; reason: in words, "" where it passed."""

    name: str
    what: str
    found: str
    verdict: str
    reason: str = ""

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class PerRound:
    """Figures of each round, in order: medians and rates, in seconds and answers a second, tuples of floats."""

    native_p50: tuple = ()
    candidate_p50: tuple = ()
    native_rate: tuple = ()
    candidate_rate: tuple = ()

    def to_dict(self):
        return {name: [round(value, 9) for value in values] for name, values in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, data):
        return cls(**{name: tuple(values) for name, values in data.items()})


@dataclasses.dataclass(frozen=True)
class Regression:
    """A finished comparison, or what there is of one.

    native, candidate: models.Model. server: {"address", "backend", "reason"}. workload: what was sent; two runs are comparable only where
    it is the same. settings: how it was measured. fingerprint: fingerprint.Fingerprint, of this machine. verdict: verdict.Verdict, or None
    where no round was whole. rounds: PerRound; requests: of each model, in a round. failed: {model: requests that were not answered};
    errors: {model: texts of the first of them}. answers: answers.Judged or None. engines: smoke's evidence.Verdict or None. kept:
    (goals.Kept, …). must_decide: metrics whose "cannot tell" is the run's. compared: baseline.Compared or None. allow_worse: a slower
    candidate is no failure. ended: "" for a whole run, else why it ended early. seconds: wall time. notes: lines.
    """

    stamp: dict
    native: object
    candidate: object
    server: dict
    workload: dict
    settings: dict
    fingerprint: object
    verdict: object
    rounds: PerRound
    requests: int
    failed: dict
    errors: dict
    answers: object = None
    engines: object = None
    kept: tuple = ()
    must_decide: tuple = ("p50",)
    compared: object = None
    allow_worse: bool = False
    ended: str = ""
    seconds: float = 0.0
    notes: tuple = ()

    @property
    def complete(self):
        return not self.ended

    @property
    def checks(self):
        """(Check, …): everything that decides the outcome."""
        return tuple(_checks(self))

    @property
    def outcome(self):
        """PASS, FAIL, UNSURE, or ENDED for a run that did not come to its end."""
        if self.ended:
            return ENDED
        found = {one.verdict for one in self.checks}
        return FAIL if FAIL in found else UNSURE if UNSURE in found else PASS

    @property
    def rounds_help(self):
        """Whether the outcome is open, and more rounds could settle it."""
        opened = [one.name for one in self.checks if one.verdict == UNSURE]
        return self.outcome == UNSURE and any(name.startswith(("speed/", "baseline/")) or name in goal_rules.MEASURED for name in opened)

    @property
    def exit_code(self):
        return {PASS: errors.EXIT_DONE, FAIL: errors.EXIT_CHECK, UNSURE: errors.EXIT_UNSURE, ENDED: errors.EXIT_FAILED}[self.outcome]

    @property
    def headline(self):
        """One line: the outcome and its first reason."""
        if self.ended:
            return f"{ENDED}: {self.ended}; no verdict"
        wrong = [one for one in self.checks if one.verdict == self.outcome != PASS]
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            return f"{self.outcome}: {wrong[0].what}: {wrong[0].found}{more}"
        one = self.verdict.of("p50") if self.verdict else None
        if one and one.verdict == verdicts.UNSURE:
            return f"{PASS}: whether it is slower or faster was not to be decided here, and cannot be told: {speed_text(one)}"
        return f"{PASS}: the candidate {' '.join(_worded(one))}" if one else PASS

    def to_dict(self):
        return {"kind": "regression", "schema_version": 1, **self.stamp, "complete": self.complete, "ended": self.ended,
                "outcome": self.outcome, "headline": self.headline, "exit_code": self.exit_code,
                "native": self.native.to_dict(), "candidate": self.candidate.to_dict(), "server": self.server, "workload": self.workload,
                "settings": self.settings, "machine": self.fingerprint.to_dict(),
                "verdict": self.verdict.to_dict() if self.verdict else None, "rounds": self.rounds.to_dict(),
                "requests_per_round": self.requests, "failed": self.failed, "errors": self.errors,
                "answers": self.answers.to_dict() if self.answers else None,
                "engines": self.engines.to_dict() if self.engines else None, "goals": [one.to_dict() for one in self.kept],
                "baseline": self.compared.to_dict() if self.compared else None, "checks": [one.to_dict() for one in self.checks],
                "seconds": round(self.seconds, 2), "notes": list(self.notes)}


def _checks(done):
    for name, count in done.failed.items():
        if count:
            yield Check(f"requests/{name}", f"all requests to the {name} model are answered", f"{count} were not", FAIL,
                        "; ".join(done.errors.get(name, ())) or "see the server's log")
    for one in done.verdict.judgements if done.verdict else ():
        yield _of_speed(one, done)
    if done.answers:
        found = "; ".join(done.answers.problems[:3])
        kept = "".join(f"; {one['goal']}: {one['candidate']:.6g}" for one in done.answers.goals if one["kept"])
        wanted = "the answers keep the goals on accuracy" if done.answers.goals else "the answers are like the native model's"
        yield Check("answers", wanted, found or done.answers.text + kept,
                    FAIL if found else PASS, found)
    for one in done.kept:
        if one.name != "accuracy":  # in the check of the answers
            words = {goal_rules.KEPT: PASS, goal_rules.MISSED: FAIL, goal_rules.UNDECIDED: UNSURE}
            yield Check(f"goal/{one.name}", one.goal, one.value, words[one.verdict], one.reason)
    for one in done.compared.judgements if done.compared else ():
        outcome = _outcome(one.verdict, one.metric in done.must_decide, False)
        yield Check(f"baseline/{one.metric}", f"{one.metric} is not worse than the baseline's", speed_text(one), outcome,
                    "" if outcome == PASS else one.reason)


def _of_speed(one, done):
    must = one.metric in done.must_decide
    outcome = _outcome(one.verdict, must, done.allow_worse)
    wanted = "is not worse" if must else "is not shown to be worse"
    return Check(f"speed/{one.metric}", f"{one.metric} {wanted}", speed_text(one), outcome, "" if outcome == PASS else one.reason)


def _outcome(verdict, must, allow_worse):
    if verdict == verdicts.WORSE:
        return PASS if allow_worse else FAIL
    return UNSURE if verdict == verdicts.UNSURE and must and not allow_worse else PASS


def speed_text(one):
    """Of a time "1.58 times as fast (1.46 to 1.74)" or "3.6% less time (-5.6% to -1.4%)": "37 % faster" can be read in two ways. Of a rate
    "41.5% higher (+36.0% to +47.5%)" or "2.41 times as high (2.30 to 2.52)". Of either "the same: -0.2% (-0.9% to +0.5%)"."""
    return _worded(one)[1]


def _worded(one):
    """(verb, text of `speed_text`)."""
    if one.ratio is None:
        return "is", f"not known: {one.reason}"
    change, low, high = (100 * (value - 1) for value in (one.ratio, one.low, one.high))
    interval = f"({low:+.1f}% to {high:+.1f}%)"
    if not one.direction:
        return "is", f"the same: {change:+.1f}% {interval}" if one.verdict == verdicts.SAME else f"{change:+.1f}% {interval}"
    far, near = _WORDS[one.direction]
    least = _TIMES_FROM_RATE if one.higher_is_better else _TIMES_FROM
    if 1 / least < one.ratio < least:
        return near[0], f"{abs(change):.1f}% {near[1]} {interval}"
    inverse = one.direction in ("faster", "lower")
    values = (1 / one.ratio, 1 / one.high, 1 / one.low) if inverse else (one.ratio, one.low, one.high)
    return far[0], "{:.2f} times as {} ({:.2f} to {:.2f})".format(values[0], far[1], *values[1:])
