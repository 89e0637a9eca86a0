"""From a profile to a diagnosis."""

from __future__ import annotations

from collections.abc import Callable

from tftrt_tools.studies.diagnosis import finding
from tftrt_tools.studies.diagnosis.case import Case, Said, cases
from tftrt_tools.studies.diagnosis.causes import (
    ceilings,
    coverage,
    fallback,
    inputs,
    launches,
    machine,
    many_engines,
    overhead,
    precision,
    profile_range,
    reformat,
)
from tftrt_tools.studies.diagnosis.finding import Diagnosis, Finding, Looked, Remark
from tftrt_tools.studies.profiling.profile import Profile

# A finding that is worth less of its call is left out.
LEAST_SHARE = 0.05
_LOOKS: tuple[Callable[[Case], Said], ...] = (
    fallback.look,
    coverage.look,
    many_engines.look,
    profile_range.look,
    precision.look,
    reformat.look,
    overhead.look,
    launches.look,
    inputs.look,
    machine.look,
    ceilings.look,
)


def diagnose(profile: Profile, model: str, original: str, least_share: float = LEAST_SHARE) -> Diagnosis:
    """The findings about a converted model.

    Args: profile: of it. model, original: paths, for the commands; original may be "". least_share: findings that are worth less of their
      call, 0 to 1, are left out.
    """
    all_cases = cases(profile, model, original)
    calls = [_looked(case) for case in all_cases]
    # On a CPU an idle GPU is no finding, and nothing else is either.
    statements = [
        statement for case in all_cases for look in (_LOOKS if profile.on_gpu else ()) for statement in look(case)
    ]
    findings = [
        statement
        for statement in statements
        if isinstance(statement, Finding) and finding.matters(statement, calls, least_share)
    ]
    return Diagnosis(
        model=model,
        original=original,
        profiled=profile.created,
        gpu=(profile.machine.gpu or {}).get("name", ""),
        findings=finding.ranked(findings),
        remarks=tuple(dict.fromkeys(statement for statement in statements if isinstance(statement, Remark))),
        unknown=tuple(_unknown(profile, all_cases)),
        calls=tuple(calls),
    )


def _looked(case: Case) -> Looked:
    return Looked(
        call=case.name,
        rows=case.rows,
        seconds=case.seconds,
        original_seconds=case.original.latency.p50 if case.original else None,
        engine_seconds=case.gpu("engine"),
        gpu_seconds=case.call.gpu_seconds,
        unplaced_share=case.call.unplaced_share,
    )


def _unknown(profile: Profile, found: list[Case]) -> list[str]:
    """What this profile cannot tell."""
    remarks = []
    if not profile.on_gpu:
        remarks.append("the profile was made without a GPU: nothing here speaks of engines")
    if profile.original is None:
        remarks.append("the original was not profiled: how fast it is, and why, is not known")
    if not profile.signatures and not profile.of_a_plan:
        remarks.append(
            "the model has no manifest of a conversion: which ops stay outside of engines, and why, is not known"
        )
    if profile.on_gpu and any(case.engines and not case.engine_profiles for case in found):
        remarks.append("the inside of the engines was not profiled: layers, formats and what bounds them are not known")
    return remarks
