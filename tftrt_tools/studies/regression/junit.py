"""A result as JUnit XML: a test case for each check. A failed check is a failure; an undecided check, and a run that ended early, is an
error. Of several batch sizes each name begins with its own."""

from __future__ import annotations

import dataclasses

from tftrt_tools.base import junit
from tftrt_tools.studies.regression import comparison
from tftrt_tools.studies.regression.several import Regressions


def text(done: comparison.Regression | Regressions) -> str:
    """The document of a result, as text."""
    if isinstance(done, Regressions):
        return _of_several(done)
    properties = _properties(done)
    return junit.text("regress", done.candidate.title, _cases(done), done.stamp["created"], done.seconds, properties)


def _of_several(done: Regressions) -> str:
    cases, first = list[junit.Case](), next(one.regression for one in done.parts if one.regression)
    for one in done.parts:
        found = _cases(one.regression) if one.regression else [_not_complete(one.cause)]
        cases += [dataclasses.replace(case, name=f"batch_size={one.batch_size}/{case.name}") for case in found]
    properties = _properties(first) | {"outcome": done.outcome}
    return junit.text("regress", first.candidate.title, cases, done.stamp["created"], done.seconds, properties)


def _cases(done: comparison.Regression) -> list[junit.Case]:
    return [*(_case(one) for one in done.checks), *([_not_complete(done.ended)] if done.ended else [])]


def _not_complete(why: str) -> junit.Case:
    return junit.Case(
        name="complete", verdict="error", message=why, kind=comparison.ENDED, details="there is no verdict"
    )


def _properties(done: comparison.Regression) -> dict[str, str]:
    return {
        "native": done.native.title,
        "candidate": done.candidate.title,
        "machine": done.fingerprint.text(),
        "outcome": done.outcome,
        "tool": done.stamp["tool"],
    }


def _case(one: comparison.Check) -> junit.Case:
    verdict = one.verdict
    return junit.Case(
        name=one.name,
        verdict="pass" if verdict == comparison.PASS else "failure" if verdict == comparison.FAIL else "error",
        message=one.text,
        kind=verdict,
        details=one.reason,
    )
