"""What the recorder left of the calls of a model, as CallProfiles. No TensorFlow here."""

from __future__ import annotations

import itertools
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.statistics import averages
from tftrt_tools.fleet.beside import Ran
from tftrt_tools.models.execution.trace import CallTrace
from tftrt_tools.models.kinds.plan.document import ENGINE
from tftrt_tools.studies.bench.gpu_watch import Use
from tftrt_tools.studies.profiling import call_parts, cupti, overlap, scaling, traces
from tftrt_tools.studies.profiling.call_parts import Apart
from tftrt_tools.studies.profiling.call_profile import Callers, CallProfile, Latency, Part
from tftrt_tools.studies.profiling.call_records import GROUPS, Key
from tftrt_tools.studies.profiling.recording import RAN

# From this share on, a remark tells of time that cannot be placed.
UNPLACED = 0.05
# A factor of the host below this means that the trace says little about the host.
_SLOWED = 0.5
_NAMES = {
    ("input", "host"): "making the input tensors",
    ("input", "GPU"): "copies to the GPU",
    ("call", "host"): "Python and eager calls",
    ("graph", "host"): "executor: starting the graph, scheduling, waiting for threads",
    ("op", "host"): "ops outside engines, on the host",
    ("op", "GPU"): "ops outside engines, kernels",
    ("copy", "GPU"): "copies while the graph runs",
    ("output", "host"): "reading the answer",
    ("output", "GPU"): "copies back",
    ("rest", ""): "not placed",
}
# The names of a plan's parts where they differ.
_NAMES_OF_PLANS = {
    ("input", "host"): "starting the copies to the GPU",
    ("call", "host"): "Python around the plan",
    ("copy", "GPU"): "copies while the plan runs",
    ("output", "host"): "waiting, and copying the answer on the host",
}


def of(facts: Mapping[str, Any], folder: pathlib.Path, on_gpu: bool) -> CallProfile:
    """The profile of one recorded call.

    Args: facts: its entry in the recorder's facts. folder: where its traces are. on_gpu: whether it ran on a GPU.
    Raises: TftrtError where it was not timed or not traced.
    """
    rounds = [turn for turn in facts["untraced"] if turn]
    if not rounds:
        raise errors.TftrtError(
            f"no call of {facts['signature']} at {facts['shapes']} was timed", "the line above says why"
        )
    timed = _latency(rounds)
    if not facts.get("trace"):
        raise errors.TftrtError(
            f"no call of {facts['signature']} at {facts['shapes']} was traced", "the line above says why"
        )
    seen = traces.read(folder / facts["trace"])
    apart = call_parts.take_apart(seen.tracks, timed.p50)
    making = timed.stages[0] / sum(timed.stages)
    ran = Ran.from_dict(facts[RAN]) if facts.get(RAN) else None
    fitted = scaling.scaled(apart.stages, timed.p50, {"input": making, "rest": 1 - making})
    return CallProfile(
        **{
            name: facts[name]
            for name in ("signature", "dtypes", "input_bytes", "output_dtypes", "output_bytes", "first_seconds")
        },
        shapes=_shapes(facts["shapes"]),
        output_shapes=_shapes(facts["output_shapes"]),
        latency=timed,
        traced_seconds=apart.seconds,
        counted=apart.counted,
        traced=apart.traced,
        host_factors=dict(fitted.host),
        gpu_factors=dict(fitted.gpu),
        parts=_parts(apart.parts, fitted.parts, _of_a_plan(facts)),
        timeline=apart.timeline,
        memory=seen.memory,
        ops=apart.ops,
        engines=apart.engines,
        copies=apart.copies,
        arithmetic=dict(apart.arithmetic),
        callers=tuple(_callers(caller, folder) for caller in facts["callers"] if caller.get("seconds")),
        first=CallTrace.from_dict(facts["first"]),
        later=_named(CallTrace.from_dict(facts["second"]), apart),
        notes=(*([ran.note()] if ran else []), *_notes(facts, timed, apart, fitted, on_gpu)),
        ran=ran,
    )


def _of_a_plan(facts: Mapping[str, Any]) -> bool:
    return ENGINE in facts["first"]["engine"]


def _shapes(shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in shapes.items()}


def _latency(rounds: Sequence[Sequence[Sequence[float]]]) -> Latency:
    whole = [[sum(stages) for stages in turn] for turn in rounds]
    every = list(itertools.chain.from_iterable(whole))
    medians = [statistics.median(turn) for turn in whole]
    stages = [statistics.median(column) for column in zip(*itertools.chain.from_iterable(rounds), strict=True)]
    return Latency(
        p50=statistics.median(every),
        p90=averages.nearest_rank(every, 0.9),
        rounds=tuple(medians),
        calls=len(every),
        stages=(stages[0], stages[1], stages[2]),
    )


def _parts(traced: Mapping[Key, float], fitted: Mapping[Key, float], plan: bool) -> tuple[Part, ...]:
    """In the order of a call's way; parts without time are left out, but for the rest. Args: plan: whether it is the call of a plan."""

    def order(key: Key) -> tuple[int, bool]:
        return GROUPS.index(key.group), key.device == "GPU"

    return tuple(
        Part(
            name=_name(key, plan),
            group=key.group,
            device=key.device,
            engine=key.engine,
            seconds=fitted[key],
            traced_seconds=traced.get(key, 0.0),
        )
        for key in sorted(fitted, key=order)
        if fitted[key] or traced.get(key) or key.group == "rest"
    )


def _name(key: Key, plan: bool) -> str:
    if key.group == "engine":
        return f"{key.engine}, {'kernels' if key.device == 'GPU' else 'on the host'}"
    kind = key.group, key.device
    return _NAMES_OF_PLANS.get(kind, _NAMES[kind]) if plan else _NAMES[kind]


def _callers(facts: Mapping[str, Any], folder: pathlib.Path) -> Callers:
    seen = None
    if facts.get("trace"):
        try:
            seen = overlap.of(traces.read(folder / facts["trace"]).tracks)
        except (errors.TftrtError, OSError):
            seen = None
    times = facts["seconds"]
    return Callers(
        callers=facts["callers"],
        per_second=len(times) / facts["wall"],
        p50=statistics.median(times),
        p90=averages.nearest_rank(times, 0.9),
        overlap=seen,
        gpus=tuple(Use.from_dict(gpu) for gpu in facts.get("gpu", ())),
    )


def _named(seen: CallTrace, apart: Apart) -> CallTrace:
    """With the names of engines from the trace of the calls, where the log named none."""
    data = seen.to_dict()
    for kind, field in (("engine", "runs"), ("fallback", "fallbacks"), ("build", "builds")):
        settings = {
            engine.name: max(1, round(getattr(engine, field))) for engine in apart.engines if getattr(engine, field)
        }
        if set(data[kind]) == {"?"} and settings:
            data[kind] = settings
    return CallTrace.from_dict(data)


def _notes(
    facts: Mapping[str, Any], timed: Latency, apart: Apart, fitted: scaling.Scaled, on_gpu: bool
) -> Iterable[str]:
    """Lines that have to stand beside the figures."""
    messages = [*(facts.get("complaints") or ()), *(facts.get("trace_log") or ())]
    if on_gpu and not any(key.device == "GPU" and seconds for key, seconds in apart.parts.items()):
        yield cupti.why(messages)
    yield from (f"the profiler says: {complaint}" for complaint in facts.get("complaints") or ())
    slowest, lowest = min(fitted.gpu.values()), fitted.host["rest"]
    if slowest < 1:
        yield (
            f"the GPU's work alone took longer in the trace than the whole stage without it: its parts are scaled by {slowest:.2f}; the "
            "GPU's clock was lower in the trace, or something else used it"
        )
    if lowest < _SLOWED:
        yield (
            f"the trace made the host {1 / lowest:.1f} times as slow: shares of the host's parts are rough, and gaps between kernels "
            "are longer than without a trace"
        )
    share = fitted.parts[Key("rest", "")] / timed.p50
    if share > UNPLACED:
        yield f"{share:.0%} of the call cannot be placed"
    if facts.get("plain"):
        yield "the model refuses random values: it was called with zeros, or black pictures"
    yield from _engine_notes(apart)


def _engine_notes(apart: Apart) -> Iterable[str]:
    for engine in apart.engines:
        name = engine.name if engine.name != "?" else "an engine op"
        if engine.fallbacks:
            yield f"{name} has no engine for this shape: TensorFlow ran its native segment"
        if engine.builds:
            yield f"{name} was built inside the traced calls"
