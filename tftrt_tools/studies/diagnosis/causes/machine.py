"""The GPU runs below what it can: clocks, power, a slice, other processes; or the host is busy with others."""

from __future__ import annotations

from tftrt_tools.studies.diagnosis.case import Case, Said, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding, Remark

_LOW_CLOCK = 0.9


def look(case: Case) -> Said:
    """What the state of GPU and host says of this call."""
    yield from _clock(case)
    if case.call.ran and case.call.ran.others:
        yield Remark("gpu-state", case.name, case.call.ran.note())
    if case.call is not case.profile.model.calls[0]:
        return
    for gpu in case.profile.machine.gpus:
        if gpu.mig:
            yield Remark("gpu-state", "", f"GPU {gpu.index} is divided into MIG slices: the model gets a part of it")
        if gpu.processes:
            yield Finding(
                cause="gpu-state",
                title=f"others compute on GPU {gpu.index}, too: {gpu.processes} processes",
                evidence=(f"GPU {gpu.index} was {gpu.utilization} % busy before the measurement",),
                mend="stop them, or give the model a GPU of its own; processes share a GPU by slices of time",
            )
        if gpu.power_limit_w and gpu.default_power_limit_w and gpu.power_limit_w < gpu.default_power_limit_w:
            yield Remark(
                "gpu-state",
                "",
                f"the power limit of GPU {gpu.index} is {gpu.power_limit_w:.0f} W, by default it is "
                f"{gpu.default_power_limit_w:.0f} W",
            )
    machine = case.profile.machine
    if machine.cpus and machine.load > machine.cpus:
        yield Remark(
            "gpu-state",
            "",
            f"the host was busy before: load {machine.load:.1f} on {machine.cpus} cores, so the host's parts "
            "may be longer than they need to be",
        )


def _clock(case: Case) -> Said:
    """A lowered clock while the call ran."""
    uses = [use for callers in case.call.callers for use in callers.gpus if use.slowed]
    most = {gpu.index: gpu.most_sm_mhz for gpu in case.profile.machine.gpus}
    for use in uses:
        highest = most.get(use.gpu)
        if not highest or not use.mean_clock_mhz or use.mean_clock_mhz >= _LOW_CLOCK * highest:
            continue
        share = use.mean_clock_mhz / highest
        yield Finding(
            cause="gpu-state",
            call=case.name,
            title=f"GPU {use.gpu} ran at {use.mean_clock_mhz:.0f} of {highest} MHz",
            worth=case.call.gpu_seconds * (1 - share),
            basis="ceiling",
            rule=f"its work takes {milliseconds(case.call.gpu_seconds)}, and at the highest clock {share:.0%} of that",
            evidence=tuple(f"slowed by: {reason}" for reason in use.slowed),
            mend="look at cooling, the power limit and locked clocks (nvidia-smi -q -d PERFORMANCE)",
        )
        return
