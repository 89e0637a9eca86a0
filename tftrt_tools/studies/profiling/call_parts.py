"""Takes traced calls apart: every instant of a call belongs to exactly one part, so that the parts add up to the call.

First counts what the GPU does at that instant; where it is idle, what the host does. Of several things at once, the first in this order
takes the instant:

    on the GPU    kernels and copies of engines, kernels of ops outside, copies from and to the host
    on the host   an engine op, another op, making the input tensors, reading the answer, the executor, the graph runtime, Python

An instant of a call in which nothing of this was seen is "not placed".
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from tftrt_tools.models.execution import kernels, spans
from tftrt_tools.models.execution.spans import Span
from tftrt_tools.models.savedmodel.engine_op import PASSIVE_OPS
from tftrt_tools.studies.profiling import traces
from tftrt_tools.studies.profiling.call_records import STAGES, Copy, EngineRun, Group, Key, OpTime, Stage, Stretch
from tftrt_tools.studies.profiling.seen import Owner, Seen, meets
from tftrt_tools.studies.profiling.traces import Event, Track

# Stretches of a timeline that are shorter than this share of the call are joined to those around.
_FINE = 1 / 1500


@dataclasses.dataclass(frozen=True, kw_only=True)
class Apart:
    """Traced calls, taken apart; means of a call. Seconds as traced."""

    # The number of calls in the trace, and of those that count: the typical half.
    traced: int
    counted: int
    # Mean of those that count.
    seconds: float
    # {stage: {what: seconds}}; they add up to `seconds`.
    stages: Mapping[Stage, Mapping[Key, float]]
    # The stretches of the most typical call, in order.
    timeline: tuple[Stretch, ...]
    ops: tuple[OpTime, ...]
    engines: tuple[EngineRun, ...]
    copies: tuple[Copy, ...]
    # {arithmetic: seconds of kernels}, of engines and ops together.
    arithmetic: Mapping[str, float]
    # Whether the trace has a track of a GPU.
    gpu: bool

    @property
    def parts(self) -> dict[Key, float]:
        """{what: seconds} of all stages together."""
        seconds_of: dict[Key, float] = collections.defaultdict(float)
        for stage in self.stages.values():
            for key, seconds in stage.items():
                seconds_of[key] += seconds
        return dict(seconds_of)


def partition(windows: Sequence[Span], layers: Iterable[Iterable[Span]]) -> tuple[list[list[Span]], list[Span]]:
    """Share out the instants of `windows` (a union): each belongs to the first layer that covers it.

    Returns: (the instants of each layer, those of no layer), as unions; together they are the windows.
    """
    covered: list[Span] = []
    owned = []
    for layer in layers:
        instants = spans.outside(spans.inside(spans.union(layer), windows), covered)
        owned.append(instants)
        covered = spans.union([*covered, *instants])
    return owned, spans.outside(windows, covered)


def take_apart(tracks: Sequence[Track], measured: float = 0.0) -> Apart:
    """The marked calls of a trace, made one after the other.

    Args: measured: seconds of a call without a trace. Raises: ValueError where the trace has no call.
    """
    seen = Seen(tracks)
    if not seen.calls:
        raise ValueError("the trace holds no call")
    chosen = _typical(seen.calls, measured)
    count = len(chosen)
    stages: dict[Stage, dict[Key, float]] = {stage: collections.defaultdict(float) for stage in STAGES}
    shared = [_shared(seen, call) for call in chosen]
    for share in shared:
        for stage, parts in share.items():
            for key, instants in parts.items():
                stages[stage][key] += spans.length(instants) / count
    windows = spans.union(call.span for call in chosen)
    kernels_seen = [event for event, _ in seen.on_gpu if not traces.copy(event.name) and _within(event, windows)]
    return Apart(
        traced=len(seen.calls),
        counted=count,
        seconds=sum(call.seconds for call in chosen) / count,
        stages=stages,
        timeline=tuple(_timeline(chosen[0], shared[0])),
        ops=tuple(_ops(seen, windows, count)),
        engines=tuple(_engines(seen, windows, count)),
        copies=tuple(_copies(seen, windows, count)),
        arithmetic=_arithmetic(kernels_seen, count),
        gpu=any(track.gpu for track in tracks),
    )


def _typical(calls: Sequence[Event], measured: float) -> list[Event]:
    """The half of the calls whose time is nearest to the median: a call in which a thread was late says nothing about the others. Where the
    median is below the measured time, which a trace should only lengthen, those nearest to that."""
    ordered = sorted(calls, key=lambda call: call.seconds)
    middle = max(ordered[len(ordered) // 2].seconds, measured)
    return sorted(calls, key=lambda call: abs(call.seconds - middle))[: max(1, (len(calls) + 1) // 2)]


def _shared(seen: Seen, call: Event) -> dict[Stage, dict[Key, list[Span]]]:
    """{stage: {what: its instants}} of one call; together they are the call."""
    layers = seen.layers(call)
    making = spans.inside(
        spans.union(event.span for event in seen.marks[traces.INPUT] if meets(event, call)), [call.span]
    )
    spans_of: dict[Stage, dict[Key, list[Span]]] = {}
    for stage, windows in zip(STAGES, (making, spans.outside([call.span], making)), strict=True):
        owned, rest = partition(windows, layers.values())
        spans_of[stage] = {key: instants for key, instants in zip(layers, owned, strict=True) if instants}
        spans_of[stage][Key("rest", "")] = rest
    return spans_of


def _timeline(call: Event, shared: Mapping[Stage, Mapping[Key, Sequence[Span]]]) -> Iterable[Stretch]:
    """The stretches of a call in order, from its begin on. What is too short to be seen goes to the stretch before it."""
    every = sorted(
        ((span, key) for parts in shared.values() for key, instants in parts.items() for span in instants),
        key=lambda pair: pair[0],
    )
    fine = _FINE * call.seconds
    joined: list[tuple[float, float, Key]] = []
    for (start, end), key in every:
        if joined and (joined[-1][2] == key or end - start < fine):
            joined[-1] = (joined[-1][0], end, joined[-1][2])
        else:
            joined.append((start, end, key))
    return [
        Stretch(group=key.group, device=key.device, engine=key.engine, start=start - call.start, end=end - call.start)
        for start, end, key in joined
    ]


def _within(event: Event, windows: Sequence[Span]) -> bool:
    """Whether the event begins in one of the windows."""
    return any(low <= event.start < high for low, high in windows)


@dataclasses.dataclass
class _Sums:
    """Totals of an op over all calls; times in seconds."""

    runs: int = 0
    host_seconds: float = 0.0
    gpu_seconds: float = 0.0
    kernels: int = 0


def _ops(seen: Seen, windows: Sequence[Span], count: int) -> list[OpTime]:
    sums_of: dict[Owner, _Sums] = collections.defaultdict(_Sums)
    for event, owner in seen.ops:
        if _within(event, windows):
            sums = sums_of[owner]
            sums.runs += 1
            sums.host_seconds += event.seconds
    for event, launched in seen.on_gpu:
        if launched and not launched.engine and _within(event, windows):
            sums = sums_of[launched]
            sums.gpu_seconds += event.seconds
            sums.kernels += 1
    rows = [
        OpTime(
            name=owner.name,
            type=owner.type,
            runs=sums.runs / count,
            host_seconds=sums.host_seconds / count,
            gpu_seconds=sums.gpu_seconds / count,
            kernels=sums.kernels / count,
        )
        for owner, sums in sums_of.items()
        if sums.kernels or owner.type not in PASSIVE_OPS
    ]
    return sorted(rows, key=lambda op_time: -max(op_time.gpu_seconds, op_time.host_seconds))


def _engines(seen: Seen, windows: Sequence[Span], count: int) -> list[EngineRun]:
    names = dict.fromkeys([owner.name for event, owner in seen.engine_ops if _within(event, windows)])
    names |= dict.fromkeys(
        owner.name for event, owner in seen.on_gpu if owner and owner.engine and _within(event, windows)
    )
    return [_engine(seen, name, windows, count) for name in names]


def _engine(seen: Seen, name: str, windows: Sequence[Span], count: int) -> EngineRun:
    def times(kind: str) -> float:
        return sum(engine == name and _within(event, windows) for event, engine in seen.engine_events[kind]) / count

    host = [event.span for event, owner in seen.engine_ops if owner.name == name and _within(event, windows)]
    gpu = [
        event
        for event, owner in seen.on_gpu
        if owner and owner.engine and owner.name == name and _within(event, windows)
    ]
    gaps = 0.0
    for window in windows:
        busy = spans.union(event.span for event in gpu if _within(event, [window]))
        gaps += busy[-1][1] - busy[0][0] - spans.length(busy) if busy else 0.0
    only = [event for event in gpu if not traces.copy(event.name)]
    return EngineRun(
        name=name,
        runs=times("engine"),
        host_seconds=spans.length(spans.union(host)) / count,
        gpu_seconds=spans.length(spans.union(event.span for event in gpu)) / count,
        kernels=len(only) / count,
        gap_seconds=gaps / count,
        arithmetic=_arithmetic(only, count),
        fallbacks=times("fallback"),
        builds=times("build"),
    )


@dataclasses.dataclass
class _CopySums:
    """Copies of one kind: their number, bytes and seconds in a mean call."""

    copies: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0


def _copies(seen: Seen, windows: Sequence[Span], count: int) -> list[Copy]:
    sums_of: dict[tuple[str, Group], _CopySums] = collections.defaultdict(_CopySums)
    for event, owner in seen.on_gpu:
        kind = traces.copy(event.name)
        if kind and not (owner and owner.engine) and _within(event, windows):
            sums = sums_of[kind, seen.stage(event)]
            sums.copies += 1 / count
            sums.bytes += event.bytes / count
            sums.seconds += event.seconds / count
    return [
        Copy(kind=kind, group=group, copies=sums.copies, bytes=sums.bytes, seconds=sums.seconds)
        for (kind, group), sums in sums_of.items()
    ]


def _arithmetic(events: Iterable[Event], count: int) -> dict[str, float]:
    found: dict[str, float] = collections.defaultdict(float)
    for event in events:
        found[kernels.arithmetic(event.name)] += event.seconds / count
    return {name: found[name] for name in kernels.ARITHMETICS if name in found}
