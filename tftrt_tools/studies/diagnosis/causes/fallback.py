"""An engine op ran its native segment, or its engine was built inside the call."""

from __future__ import annotations

import operator

from tftrt_tools.studies.diagnosis.case import Case, Said, all_shapes, beside, listed, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding
from tftrt_tools.studies.profiling.call_profile import CallProfile

_ROWS = operator.attrgetter("rows")


def look(case: Case) -> Said:
    """One finding for all engine ops of the call."""
    if not case.missed:
        return
    names = case.fallbacks or tuple(case.call.later.build)
    what = "ran in TensorFlow, not in TensorRT" if case.fallbacks else "was built inside the call"
    worth, rule = _worth(case)
    yield Finding(
        cause="fallback",
        call=case.name,
        title=f"{_engines(names)} {what}: no saved engine takes this shape",
        worth=worth,
        basis="estimate" if worth is not None else "",
        rule=rule,
        evidence=(*case.call.later.reasons[:2], *([f"engines were built for {_built(case)}"] if _built(case) else [])),
        mend="build an engine for this shape too, or pad requests to a shape that has one",
        command=("build", case.model, f"--shapes={all_shapes(case)}", f"--output={beside(case, 'shapes')}"),
    )


def _engines(names: tuple[str, ...]) -> str:
    named = [name for name in names if name != "?"]
    return listed(named) if named else "an engine op"


def _built(case: Case) -> str:
    calls = case.signature.calls if case.signature else ()
    return "; ".join(", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in one.items()) for one in calls)


def _worth(case: Case) -> tuple[float | None, str]:
    """(seconds, how they were found): beside the nearest call in which engines ran."""
    good = [
        call
        for call in case.others
        if call.engines and any(run.gpu_seconds for run in call.engines) and not call.later.fallback
    ]
    if not good:
        return None, "no call of this profile ran its engines, so nothing tells how fast this one would be"
    expected, rule = _expected(case, good)
    return max(0.0, case.seconds - expected), rule


def _expected(case: Case, good: list[CallProfile]) -> tuple[float, str]:
    """The seconds of this call with an engine: on the line between the nearest smaller and larger call, else those of the nearest one."""
    below = max((call for call in good if call.rows <= case.rows), key=_ROWS, default=None)
    above = min((call for call in good if call.rows >= case.rows), key=_ROWS, default=None)
    if below and above and above.rows > below.rows:
        place = (case.rows - below.rows) / (above.rows - below.rows)
        seconds = below.latency.p50 + place * (above.latency.p50 - below.latency.p50)
        return seconds, (
            f"between batch {below.rows} ({milliseconds(below.latency.p50)}) and batch {above.rows} "
            f"({milliseconds(above.latency.p50)}), where engines ran, {milliseconds(seconds)} are expected"
        )
    nearest = above or below or good[0]
    return nearest.latency.p50, f"batch {nearest.rows}, where engines ran, takes {milliseconds(nearest.latency.p50)}"
