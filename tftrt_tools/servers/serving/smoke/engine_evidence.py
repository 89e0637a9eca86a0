"""The evidence about the engines, and the rule that makes one answer of it.

The rule, for each call (a signature at a shape):
  1. Certain evidence wins. Certain for yes and certain for no is a contradiction, and is reported as one. 2. Else likely evidence
  decides, if all of it is for the same answer. 3. Else nobody can tell. What is weak never decides; it is shown.
All calls together: yes where every call says yes, as sure as the least sure of them; no where one says no and none yes; partly where some
say yes and others no. Calls of signatures without engine ops are left out where other signatures have some.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from tftrt_tools.base import records

# What one piece of evidence says about the engines.
Speaks = Literal["yes", "no", "nothing"]
YES: Literal["yes"] = "yes"
NO: Literal["no"] = "no"
NOTHING: Literal["nothing"] = "nothing"
# How sure it is.
Weight = Literal["certain", "likely", "weak"]
CERTAIN: Weight = "certain"
LIKELY: Weight = "likely"
WEAK: Weight = "weak"
# The answer to "did the engines run".
Answer = Literal["yes", "no", "partly", "contradiction", "cannot tell"]
PARTLY: Answer = "partly"
CONTRADICTION: Answer = "contradiction"
UNKNOWN: Answer = "cannot tell"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence(records.Record):
    """One piece of evidence."""

    # Where: "model", "server process", "GPU", "gate", "answer", "log", "native model" or "first request".
    source: str
    # The evidence in words.
    seen: str
    # What it says to "did the engines run".
    speaks: Speaks
    # How sure that is.
    weight: Weight = WEAK
    # Text of the call that it is about; "" for all.
    call: str = ""

    def __post_init__(self) -> None:
        assert self.speaks in (YES, NO, NOTHING) and self.weight in (CERTAIN, LIKELY, WEAK)


@dataclasses.dataclass(frozen=True)
class Judgement(records.Record):
    """answer: YES, NO, CONTRADICTION or UNKNOWN; certainty: CERTAIN, LIKELY or "" where nobody can tell; reason: the first of the evidence
    that decided."""

    answer: Answer
    certainty: Weight | Literal[""] = ""
    reason: str = ""

    def text(self) -> str:
        """The answer in words, such as "yes (certain)"."""
        return f"{self.answer} ({self.certainty})" if self.certainty else self.answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict(records.Record):
    """The judgement of all calls together."""

    # As in Judgement, or PARTLY.
    answer: Answer
    certainty: Weight | Literal[""]
    # The first of the evidence that decided.
    reason: str
    # {text of the call: Judgement}
    calls: dict[str, Judgement]
    # All evidence.
    evidence: tuple[Evidence, ...]
    # What would make the answer more certain, a line each.
    settle: tuple[str, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether the engines ran in every call, certainly or likely."""
        return self.answer == YES


def judge_call(evidence: Iterable[Evidence], call: str) -> Judgement:
    """The Judgement of one call. Args: evidence: Evidence of all calls; call: its text."""
    about = [item for item in evidence if item.call in ("", call)]
    for weight in (CERTAIN, LIKELY):
        yes, no = (
            [item.seen for item in about if item.weight == weight and item.speaks == speaks] for speaks in (YES, NO)
        )
        if yes and no:
            return (
                Judgement(CONTRADICTION, CERTAIN, f"{yes[0]}; but {no[0]}")
                if weight == CERTAIN
                else Judgement(UNKNOWN, "", "what is likely disagrees")
            )
        if yes or no:
            return Judgement(YES if yes else NO, weight, (yes or no)[0])
    return Judgement(UNKNOWN, "", "nothing that was seen decides it")


def judge(evidence: Collection[Evidence], calls: Mapping[str, bool | None], settle: Iterable[str] = ()) -> Verdict:
    """The Verdict.

    Args: evidence: [Evidence]; calls: {text of the call: whether its signature has engine ops, None where not known}; settle: lines,
      used if the answer is not certain.
    """
    judged = {call: judge_call(evidence, call) for call in calls}
    counted = [judged[call] for call, has in calls.items() if has is not False] or list(judged.values())
    answer = _together({item.answer for item in counted})
    deciding = [item for item in counted if item.answer == answer] or counted
    certainty: Weight | Literal[""] = "" if answer == UNKNOWN else CERTAIN
    if LIKELY in {item.certainty for item in (counted if answer == PARTLY else deciding)}:
        # For a no, one certain call is enough.
        certainty = CERTAIN if answer == NO and any(item.certainty == CERTAIN for item in deciding) else LIKELY
    first = next((item for item in deciding if item.certainty == certainty), deciding[0])
    reason = "they ran in some calls and not in others" if answer == PARTLY else first.reason
    settled = certainty == CERTAIN and answer != CONTRADICTION
    return Verdict(
        answer=answer,
        certainty=certainty,
        reason=reason,
        calls=judged,
        evidence=tuple(evidence),
        settle=() if settled else tuple(settle),
    )


def _together(answers: set[Answer]) -> Answer:
    if CONTRADICTION in answers:
        return CONTRADICTION
    if {YES, NO} <= answers:
        return PARTLY
    if NO in answers:
        return NO
    return YES if answers == {YES} else UNKNOWN
