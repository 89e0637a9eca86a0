"""A result as JUnit XML: a test case for each check. A failed check is a failure; an undecided check, and a run that ended early, is an
error."""

from __future__ import annotations

from tftrt_tools.base import junit
from tftrt_tools.studies.regression import comparison


def text(done: comparison.Regression) -> str:
    """The document of a comparison.Regression, as text."""
    cases = [_case(one) for one in done.checks]
    if done.ended:
        cases.append(
            junit.Case(
                name="complete",
                verdict="error",
                message=done.ended,
                kind=comparison.ENDED,
                details="there is no verdict",
            )
        )
    properties = {
        "native": done.native.title,
        "candidate": done.candidate.title,
        "machine": done.fingerprint.text(),
        "outcome": done.outcome,
        "tool": done.stamp["tool"],
    }
    return junit.text("regress", done.candidate.title, cases, done.stamp["created"], done.seconds, properties)


def _case(one: comparison.Check) -> junit.Case:
    verdict = one.verdict
    return junit.Case(
        name=one.name,
        verdict="pass" if verdict == comparison.PASS else "failure" if verdict == comparison.FAIL else "error",
        message=one.text,
        kind=verdict,
        details=one.reason,
    )
