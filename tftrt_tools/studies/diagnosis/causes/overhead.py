"""The host costs more than the work: few rows in a call, Python and the executor, one caller at a time."""

from __future__ import annotations

import operator

from tftrt_tools.base import terminal
from tftrt_tools.studies.diagnosis.case import Case, Said, milliseconds
from tftrt_tools.studies.diagnosis.finding import Basis, Finding
from tftrt_tools.studies.profiling.call_profile import CallProfile

_IDLE = 0.5
_FEW_ROWS = 8
_SHARE = 0.4
_MORE = 1.25


def look(case: Case) -> Said:
    """Findings about the host's share, in a call whose engines ran."""
    if case.missed:
        return
    alone = len(case.engines) < 2
    host = (
        case.host("call", "output")
        + (case.host("graph", "engine") if alone else 0.0)
        + min(case.host("input"), _least_input(case))
    )
    idle = case.call.idle_seconds
    if idle >= _IDLE * case.seconds and case.rows < _FEW_ROWS:
        yield _small_batch(case, host, idle)
    elif host >= _SHARE * case.seconds:
        yield _calling(case, host)
    yield from _one_caller(case)


def _least_input(case: Case) -> float:
    """Making the input of the smallest call: what it costs whatever the size."""

    def made(call: CallProfile) -> float:
        return sum(part.seconds for part in call.parts if part.device == "host" and part.group == "input")

    return min(map(made, (case.call, *case.others)))


def _small_batch(case: Case, host: float, idle: float) -> Finding:
    """What the rows of this call cost less in a larger one, if such a call was profiled; else what the host takes whatever the rows."""
    basis: Basis = "ceiling"
    worth, rule = (
        host,
        f"a call costs the host {milliseconds(host)} whatever its rows; in a larger batch the rows share it",
    )
    larger = max(case.others, key=operator.attrgetter("rows"), default=None)
    if larger and larger.rows > case.rows and larger.latency.p50 / larger.rows < case.seconds / case.rows:
        row = larger.latency.p50 / larger.rows
        worth, basis = case.seconds - case.rows * row, "estimate"
        rule = f"a row takes {milliseconds(case.seconds / case.rows)} here, and {milliseconds(row)} in a call with batch {larger.rows}"
    return Finding(
        cause="small-batch",
        call=case.name,
        worth=worth,
        basis=basis,
        title=f"the GPU waits: the call has {terminal.counted(case.rows, 'row')}",
        rule=rule,
        evidence=(f"the GPU is idle for {milliseconds(idle)} of {milliseconds(case.seconds)}", *_gaps(case)),
        mend="send more rows in a call, or let the server put requests together: `tftrt bench --tune_batching` finds its parameters",
    )


def _gaps(case: Case) -> list[str]:
    return [
        f"between its {run.kernels:.0f} kernels the engine waits {milliseconds(run.gap_seconds)} in the trace: they are launched more "
        "slowly than they run"
        for run in case.call.engines
        if run.gap_seconds > run.gpu_seconds
    ]


def _calling(case: Case, host: float) -> Finding:
    return Finding(
        cause="calling",
        call=case.name,
        title="the host takes longer around the engines than they take",
        worth=host,
        basis="ceiling",
        rule=f"{milliseconds(host)} of {milliseconds(case.seconds)} are the host's, whatever the rows, and the GPU is idle meanwhile",
        evidence=(
            f"Python and eager calls {milliseconds(case.host('call'))}, the executor {milliseconds(case.host('graph'))}, launching "
            f"engines {milliseconds(case.host('engine'))}, reading the answer {milliseconds(case.host('output'))}",
            *_gaps(case),
        ),
        mend="several callers hide it"
        if case.profile.of_a_plan
        else "several callers hide it; TensorFlow Serving calls without Python",
    )


def _one_caller(case: Case) -> Said:
    by_count = {caller.callers: caller for caller in case.call.callers if caller.per_second}
    alone = by_count.get(1)
    best = max(by_count.values(), key=lambda callers: callers.per_second, default=None)
    if alone is None or best is None or best.per_second < _MORE * alone.per_second:
        return
    yield Finding(
        cause="one-caller",
        call=case.name,
        title=f"one caller gets {alone.per_second:.0f} answers a second, {best.callers} get {best.per_second:.0f}",
        worth=1 / alone.per_second - 1 / best.per_second,
        basis="estimate",
        rule=f"an answer costs {milliseconds(1 / alone.per_second)} with one caller and {milliseconds(1 / best.per_second)} with "
        f"{best.callers}; each call by itself gets no faster",
        evidence=(f"p50 of a call: {milliseconds(alone.p50)} with one, {milliseconds(best.p50)} with {best.callers}",),
        mend="keep several requests under way",
    )
