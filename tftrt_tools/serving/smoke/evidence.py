"""What was seen of the engines, and the rule that makes one answer of it.

The rule, for each call (a signature at a shape):
  1. What is certain wins. Certain for yes and certain for no is a contradiction, and said so.
  2. Else what is likely, where all of it speaks for the same answer.
  3. Else nobody can tell. What is weak never decides; it is shown.
All calls together: yes where every call says yes, as sure as the least sure of them; no where one says no and none yes; partly where some
say yes and others no. Calls of signatures without engine ops are left out where other signatures have some.
"""

import dataclasses

YES, NO, NOTHING = "yes", "no", "nothing"
CERTAIN, LIKELY, WEAK = "certain", "likely", "weak"
PARTLY, CONTRADICTION, UNKNOWN = "partly", "contradiction", "cannot tell"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One thing that was seen.

    source: where: "model", "server process", "GPU", "gate", "answer", "log", "native model", "first request"; seen: in words; speaks: YES,
    NO or NOTHING, for "did the engines run"; weight: CERTAIN, LIKELY or WEAK; call: text of the call that it speaks of, "" for all.
    """

    source: str
    seen: str
    speaks: str
    weight: str = WEAK
    call: str = ""

    def __post_init__(self):
        assert self.speaks in (YES, NO, NOTHING) and self.weight in (CERTAIN, LIKELY, WEAK)

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """answer: YES, NO, CONTRADICTION or UNKNOWN; certainty: CERTAIN, LIKELY or "" where nobody can tell; reason: the first of the evidence
    that decided."""

    answer: str
    certainty: str = ""
    reason: str = ""

    def text(self):
        """Such as "yes (certain)"."""
        return f"{self.answer} ({self.certainty})" if self.certainty else self.answer

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """answer: as in Judgement, or PARTLY; calls: {text of the call: Judgement}; evidence: all of it; settle: what would make it surer, a
    line each."""

    answer: str
    certainty: str
    reason: str
    calls: dict
    evidence: tuple
    settle: tuple = ()

    @property
    def ran(self):
        """Whether the engines ran in every call, certainly or likely."""
        return self.answer == YES

    def to_dict(self):
        return {"answer": self.answer, "certainty": self.certainty, "reason": self.reason,
                "calls": {call: one.to_dict() for call, one in self.calls.items()},
                "evidence": [one.to_dict() for one in self.evidence], "settle": list(self.settle)}


def judge_call(evidence, call):
    """The Judgement of one call. Args: evidence: Evidence of all calls; call: its text."""
    about = [one for one in evidence if one.call in ("", call) and one.speaks != NOTHING]
    for weight in (CERTAIN, LIKELY):
        found = [one for one in about if one.weight == weight]
        answers = {one.speaks for one in found}
        if len(answers) == 1:
            return Judgement(found[0].speaks, weight, found[0].seen)
        if len(answers) == 2 and weight == CERTAIN:
            both = [next(one.seen for one in found if one.speaks == speaks) for speaks in (YES, NO)]
            return Judgement(CONTRADICTION, CERTAIN, f"{both[0]}; but {both[1]}")
        if answers:
            return Judgement(UNKNOWN, "", "what is likely disagrees")
    return Judgement(UNKNOWN, "", "nothing that was seen decides it")


def judge(evidence, calls, settle=()):
    """The Verdict.

    Args: evidence: [Evidence]; calls: {text of the call: whether its signature has engine ops, None where not known}; settle: lines, used
      where the answer is not certain.
    """
    judged = {call: judge_call(evidence, call) for call in calls}
    counted = [judged[call] for call, has in calls.items() if has is not False] or list(judged.values())
    answer = _together({one.answer for one in counted})
    deciding = [one for one in counted if one.answer == answer] or counted
    certainty = "" if answer == UNKNOWN else CERTAIN
    if LIKELY in {one.certainty for one in (counted if answer == PARTLY else deciding)}:
        # For a no, one call that is certain is enough.
        certainty = CERTAIN if answer == NO and any(one.certainty == CERTAIN for one in deciding) else LIKELY
    first = next((one for one in deciding if one.certainty == certainty), deciding[0])
    reason = "they ran in some calls and not in others" if answer == PARTLY else first.reason
    settled = certainty == CERTAIN and answer != CONTRADICTION
    return Verdict(answer, certainty, reason, judged, tuple(evidence), () if settled else tuple(settle))


def _together(answers):
    if CONTRADICTION in answers:
        return CONTRADICTION
    if {YES, NO} <= answers:
        return PARTLY
    if NO in answers:
        return NO
    return YES if answers == {YES} else UNKNOWN
