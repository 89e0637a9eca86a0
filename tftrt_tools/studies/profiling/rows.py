"""The rows of a profile's tables, for pages and terminals."""

from __future__ import annotations

import dataclasses
import statistics

from tftrt_tools.base import terminal
from tftrt_tools.studies.profiling.call_profile import CallProfile, Part
from tftrt_tools.studies.profiling.call_records import GROUPS, Copy, EngineRun
from tftrt_tools.studies.profiling.profile import Machine, Profile, Side

# Above this share of its run without work, an engine waits for launches.
_LAUNCH_BOUND = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartRow:
    """A part of a call beside the same part of another one. Seconds; None where that call has no such part."""

    name: str
    device: str
    group: str
    seconds: float | None
    other: float | None


def parts(call: CallProfile, other: CallProfile | None = None) -> list[PartRow]:
    """The parts of two calls in the order of a call's way."""
    ours, theirs = _by_key(call), _by_key(other)
    if len(_engines(call)) == 1 and other and len(_engines(other)) == 1:
        # A lone engine is the same part in both, whatever its name.
        theirs = {
            (group, device, _engines(call)[0] if engine else ""): part
            for (group, device, engine), part in theirs.items()
        }
    both = {**theirs, **ours}
    order = sorted(both, key=lambda key: (GROUPS.index(both[key].group), key[1] == "GPU"))
    return [
        PartRow(
            name=both[key].name,
            device=both[key].device,
            group=both[key].group,
            seconds=ours[key].seconds if key in ours else None,
            other=theirs[key].seconds if key in theirs else None,
        )
        for key in order
    ]


def _engines(call: CallProfile) -> list[str]:
    return list(dict.fromkeys(part.engine for part in call.parts if part.engine))


def _by_key(call: CallProfile | None) -> dict[tuple[str, str, str], Part]:
    return {(part.group, part.device, part.engine): part for part in (call.parts if call else ())}


def matching(side: Side | None, call: CallProfile) -> CallProfile | None:
    """The call of a model with the same signature and shapes, if it was measured."""
    listed = side.calls if side else ()
    return next((one for one in listed if (one.signature, one.shapes) == (call.signature, call.shapes)), None)


def ms(seconds: float | None) -> str:
    """A cell, in milliseconds; blank for None."""
    return "" if seconds is None else f"{1e3 * seconds:.4f}"


def share(seconds: float | None, whole: float) -> str:
    """A cell: the share of the whole."""
    return "" if seconds is None or not whole else f"{100 * seconds / whole:.1f} %"


def size(count: float) -> str:
    """Bytes for people."""
    for unit, value in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= value:
            return f"{count / value:.3g} {unit}"
    return f"{count:.0f} B"


def speed(call: CallProfile, other: CallProfile) -> str:
    """How many times as fast `call` is as `other` of the same measurement: the median of the rounds' ratios, and the lowest and highest of
    them. In a round both took turns, so both saw the same machine."""
    ours, theirs = call.latency.rounds, other.latency.rounds
    if len(ours) != len(theirs):  # some rounds of one failed
        return f"{other.latency.p50 / call.latency.p50:.2f} times as fast"
    ratios = sorted(seconds / another for another, seconds in zip(ours, theirs, strict=True))
    return (
        f"{statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)"
    )


def gaps(run: EngineRun) -> str:
    """A cell: the idle time between an engine's kernels, and whether the host launches too slowly."""
    whole = run.gap_seconds + run.gpu_seconds
    bound = whole and run.gap_seconds > _LAUNCH_BOUND * whole
    return ms(run.gap_seconds) + (" (waits for launches)" if bound else "")


_ASKED_FOR = {"input": "for the input", "copy": "while the graph runs", "output": "for the answer"}
CALLERS = ("callers", "calls/s", "times one", "p50 ms", "p90 ms", "under way", "GPU busy", "kernels at once", "streams")


def asked_for(copy: Copy) -> str:
    """A cell: when a copy was asked for."""
    return _ASKED_FOR[copy.group]


def rate(copy: Copy) -> str:
    """A cell: GB/s; blank where it says nothing."""
    return f"{copy.bytes / copy.seconds / 1e9:.1f}" if copy.seconds and copy.bytes else ""


def callers(call: CallProfile) -> list[tuple[str, ...]]:
    """The rows of several callers, under CALLERS."""
    alone = next((caller.per_second for caller in call.callers if caller.callers == 1), None)
    table = list[tuple[str, ...]]()
    for load in call.callers:
        seen = load.overlap
        together = (
            (f"{seen.calls_under_way:.1f}", f"{seen.gpu_busy:.0%}", f"{seen.kernels_at_once:.0%}", str(seen.streams))
            if seen
            else ("", "", "", "")
        )
        table.append(
            (
                str(load.callers),
                f"{load.per_second:.1f}",
                f"{load.per_second / alone:.2f}" if alone else "",
                ms(load.p50),
                ms(load.p90),
                *together,
            )
        )
    return table


def basis(call: CallProfile) -> str:
    """What the parts of a call rest on, in a sentence or two."""
    first = "starting the copies in" if call.of_a_plan else "making the tensors"
    factors = f"{call.host_factors['input']:.2f} ({first}) and {call.host_factors['rest']:.2f} (all else)"
    busy = f"GPU busy {share(call.gpu_seconds, call.latency.p50)} of the call, idle {ms(call.idle_seconds)} ms. "
    busy = busy if call.gpu_seconds else ""
    gpu = f"The GPU's times are those of {call.counted} traced calls; the" if call.gpu_seconds else "The"
    return (
        f"{busy}{gpu} host's are those of a trace, which takes {1e3 * call.traced_seconds:.3f} ms a call, times {factors}, so that all "
        "add up to the measured latency."
    )


def machine(found: Machine) -> list[tuple[str, str]]:
    """(label, text) of the facts of the machine."""
    told = [("GPU", ", ".join(found.gpu.values()) if found.gpu else "none")]
    for gpu in found.gpus:
        clocks = f"SM {gpu.sm_mhz} of {gpu.most_sm_mhz} MHz, memory {gpu.memory_mhz} of {gpu.most_memory_mhz} MHz"
        power = f"power limit {gpu.power_limit_w:.0f} W" if gpu.power_limit_w else ""
        slowed = f"clock lowered: {', '.join(gpu.slowed)}" if gpu.slowed else ""
        others = f"{gpu.processes} other processes" if gpu.processes else ""
        told.append(
            (
                f"GPU {gpu.index} before",
                "; ".join(
                    filter(
                        None,
                        (
                            clocks,
                            power,
                            gpu.pcie and f"PCIe {gpu.pcie}",
                            slowed,
                            others,
                            "divided (MIG)" if gpu.mig else "",
                        ),
                    )
                ),
            )
        )
    told.append(("host", f"{found.cpu or 'unknown processor'}, {found.cpus} CPUs, load {found.load:.1f} before"))
    told.append(("versions", ", ".join(f"{name} {version}" for name, version in found.versions.items() if version)))
    told.append(("TF32", "allowed for float32" if found.tf32 else "not allowed"))
    if found.environment:
        told.append(("environment", ", ".join(f"{name}={value}" for name, value in found.environment.items())))
    return told


def headline(profile: Profile) -> list[str]:
    """Lines on what was measured, and where."""
    machine = profile.machine
    gpu = machine.gpu
    versions = ", ".join(
        f"{name} {machine.versions[key]}"
        for name, key in (("TensorFlow", "tensorflow"), ("TensorRT", "tensorrt"))
        if machine.versions.get(key)
    )
    where = f"{gpu['name']}, driver {gpu.get('driver') or 'unknown'}" if gpu else f"no GPU; {machine.cpu}"
    lines = [f"{profile.model.model} on {where}; {versions}; {machine.cpus} CPUs"]
    covered = [
        f"{signature.name}: {signature.compute_ops[0]} of {signature.compute_ops[1]} ops in "
        + terminal.counted(len(signature.engines), "engine")
        for signature in profile.signatures
        if signature.converted
    ]
    if profile.of_a_plan:
        covered = ["a TensorRT plan, without TensorFlow"]
    if covered:
        precision = profile.settings.get("precision_mode")
        lines.append("; ".join(covered) + (f"; asked for {precision}" if precision else ""))
        if not gpu and any(signature.engines for signature in profile.signatures):
            lines.append("no engine ran: without a GPU engine ops run as TensorFlow ops")
    return lines
