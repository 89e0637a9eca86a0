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
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from tftrt_tools import records
from tftrt_tools.execution import kernels, spans, timeline, trace
from tftrt_tools.execution.spans import Span
from tftrt_tools.profiling import traces
from tftrt_tools.profiling.traces import Event, Track
from tftrt_tools.savedmodel.engine_op import ENGINE_OP, PASSIVE_OPS

Device = Literal["GPU", "host", ""]
# The groups of parts, in the order of a call's way; "rest" is what cannot be placed.
Group = Literal["input", "call", "graph", "engine", "op", "copy", "output", "rest"]
GROUPS: tuple[Group, ...] = ("input", "call", "graph", "engine", "op", "copy", "output", "rest")
_EXECUTOR = ("ExecutorState::", "ExecutorDoneCallback", "ExecutorPropagateOutputs", "PartitionedCallOp", "RunFunction")
_RUNTIME = ("FunctionRun", "KernelAndDeviceFunc::Run")
# The engine op's own event; the one with its name may be missing.
_COMPUTE = "TRTEngineOp::ComputeAsync"
# Stretches of a timeline that are shorter than this share of the call are joined to those around.
_FINE = 1 / 1500
# The stages of a call that are scaled apart: making the tensors, and all that follows.
Stage = Literal["input", "rest"]
STAGES: tuple[Stage, ...] = ("input", "rest")


@dataclasses.dataclass(frozen=True)
class Key:
    """What a part is of. engine: the engine op's name, "" for other parts."""

    group: Group
    device: Device
    engine: str = ""


@dataclasses.dataclass(frozen=True)
class Owner:
    """The op that launched something. type: such as "Conv2D"."""

    name: str
    type: str

    @classmethod
    def of(cls, name: str, kind: str) -> Owner:
        """From an op's event. An engine op goes by the name of its engine, without the scopes of calling functions."""
        return cls(name.rsplit("/", 1)[-1] if kind == ENGINE_OP else name, kind)

    @property
    def engine(self) -> bool:
        """Whether it runs an engine."""
        return self.type == ENGINE_OP


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stretch(records.Record):
    """What took a stretch of a call. As in Key; start, end: seconds from the call's begin."""

    group: Group
    device: Device
    engine: str = ""
    start: float
    end: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpTime(records.Record):
    """An op outside of engines; means of a call."""

    name: str
    # Such as "Conv2D".
    type: str
    # How often it ran.
    runs: float
    # On the host: computing, or launching its kernels; in the trace, which slows it.
    host_seconds: float
    # Its kernels, and how many.
    gpu_seconds: float
    kernels: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineRun(records.Record):
    """An engine op in a call; means of a call."""

    # Of the engine op.
    name: str
    # How often its engine ran.
    runs: float
    # The engine op on the host, in the trace, which slows it.
    host_seconds: float
    # Its kernels and copies, and how many.
    gpu_seconds: float
    kernels: float
    # From the first kernel's begin to the last one's end, the GPU was without work so long: the host launches too slowly, or it waits.
    gap_seconds: float
    # Kernels by their arithmetic, as execution.kernels names it: {arithmetic: seconds}.
    arithmetic: dict[str, float] = dataclasses.field(default_factory=dict)
    # How often TensorFlow ran its native segment instead, and how often an engine was built in the call.
    fallbacks: float = 0.0
    builds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copy(records.Record):
    """Copies of a kind; means of a call."""

    # Such as "host to GPU".
    kind: str
    # The stage of the call that asked for them: "input", "copy" (while the graph ran) or "output".
    group: Group
    copies: float
    bytes: float
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Apart:
    """Traced calls, taken apart; means of a call. Seconds as traced."""

    # How many calls the trace holds, and how many of them count: the typical half.
    traced: int
    counted: int
    # Mean of those that count.
    seconds: float
    # {stage: {what: seconds}}; they add up to `seconds`.
    stages: Mapping[Stage, Mapping[Key, float]]
    # What takes each instant of the most typical call, in order.
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
        found: dict[Key, float] = collections.defaultdict(float)
        for stage in self.stages.values():
            for key, seconds in stage.items():
                found[key] += seconds
        return dict(found)


def partition(windows: Sequence[Span], layers: Iterable[Iterable[Span]]) -> tuple[list[list[Span]], list[Span]]:
    """Share out the instants of `windows` (a union): each belongs to the first layer that covers it.

    Returns: (the instants of each layer, those of no layer), as unions; together they are the windows.
    """
    covered: list[Span] = []
    found = []
    for layer in layers:
        mine = spans.outside(spans.inside(spans.union(layer), windows), covered)
        found.append(mine)
        covered = spans.union([*covered, *mine])
    return found, spans.outside(windows, covered)


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
    shared = [seen.shared(call) for call in chosen]
    for one in shared:
        for stage, parts in one.items():
            for key, mine in parts.items():
                stages[stage][key] += spans.length(mine) / count
    windows = spans.union(call.span for call in chosen)
    kernels_seen = [event for event, _ in seen.on_gpu if not traces.copy(event.name) and _within(event, windows)]
    return Apart(
        traced=len(seen.calls), counted=count, seconds=sum(call.seconds for call in chosen) / count, stages=stages,
        timeline=tuple(_timeline(chosen[0], shared[0])), ops=tuple(_ops(seen, windows, count)),
        engines=tuple(_engines(seen, windows, count)), copies=tuple(_copies(seen, windows, count)),
        arithmetic=_arithmetic(kernels_seen, count), gpu=any(track.gpu for track in tracks))


def _typical(calls: Sequence[Event], measured: float) -> list[Event]:
    """The half of the calls whose time is nearest to the median: a call in which a thread was late says nothing about the others. Where the
    median is below the measured time, which a trace should only lengthen, those nearest to that."""
    ordered = sorted(calls, key=lambda call: call.seconds)
    middle = max(ordered[len(ordered) // 2].seconds, measured)
    return sorted(calls, key=lambda call: abs(call.seconds - middle))[:max(1, (len(calls) + 1) // 2)]


class Seen:
    """What a trace holds, sorted by kind."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self._ops_of_launches = {event.launch: event.op for track in tracks if track.gpu for event in track.events
                                 if event.launch is not None and event.op}
        host = [track for track in tracks if not track.gpu]
        self.marks: dict[str, list[Event]] = {name: [] for name in (traces.CALL, traces.INPUT, traces.RUN, traces.OUTPUT)}
        # (event, its owner) of ops outside of engines, and of engine ops.
        self.ops: list[tuple[Event, Owner]] = []
        self.engine_ops: list[tuple[Event, Owner]] = []
        # Kinds of trace.EVENTS: {kind: [(event, engine op's name)]}.
        self.engine_events: dict[str, list[tuple[Event, str]]] = collections.defaultdict(list)
        self.executor: list[Event] = []
        self.runtime: list[Event] = []
        self._launched: dict[int, tuple[Event, Owner | None]] = {}
        for track in host:
            self._walk(track)
        self.calls = self.marks[traces.CALL]
        self._stages = {group: spans.union(event.span for event in self.marks[name])
                        for group, name in (("input", traces.INPUT), ("output", traces.OUTPUT))}
        # (event, its owner) of everything on the GPU.
        self.on_gpu: list[tuple[Event, Owner | None]] = [
            (event, self._owner(event)) for track in tracks if track.gpu for event in track.events]

    def _walk(self, track: Track) -> None:
        """Sort the events of a thread. An op's event contains what it does, its launches among them."""
        around: list[tuple[Event, Owner]] = []
        for place, event in enumerate(track.events):
            while around and around[-1][0].end <= event.start:
                around.pop()
            if event.name in self.marks:
                self.marks[event.name].append(event)
            elif event.name in trace.EVENTS:
                inside = next((owner.name for _, owner in reversed(around) if owner.engine), "?")
                self.engine_events[trace.EVENTS[event.name]].append((event, inside))
            elif event.name.startswith(_EXECUTOR):
                self.executor.append(event)
            elif event.name in _RUNTIME:
                self.runtime.append(event)
            elif event.name == _COMPUTE:
                if not any(owner.engine for _, owner in around):
                    owner = Owner(self._engine_of(track.events[place:], event), ENGINE_OP)
                    self.engine_ops.append((event, owner))
                    around.append((event, owner))
            elif named := traces.op(event.name):
                owner = Owner.of(*named)
                if owner.engine:
                    self.engine_ops.append((event, owner))
                    around.append((event, owner))
                elif owner.type not in timeline.AROUND:
                    self.ops.append((event, owner))
                    around.append((event, owner))
            if event.launch is not None:
                self._launched[event.launch] = (event, around[-1][1] if around else None)

    def _engine_of(self, events: Iterable[Event], around: Event) -> str:
        """The name of the engine op that `around` is the work of, by what it launched; "?" where that does not tell it."""
        for event in itertools.takewhile(lambda one: one.start < around.end, events):
            named = traces.op(self._ops_of_launches.get(event.launch, "")) if event.launch is not None else None
            if named and named[1] == ENGINE_OP:
                return Owner.of(*named).name
        return "?"

    def _owner(self, event: Event) -> Owner | None:
        """What launched something on the GPU: by its launch on the host, else by the profiler's own remark."""
        launch = self._launched.get(event.launch) if event.launch is not None else None
        if launch and launch[1]:
            return launch[1]
        named = traces.op(event.op) if event.op else None
        return Owner.of(*named) if named and named[1] not in timeline.AROUND - {ENGINE_OP} else None

    def stage(self, event: Event) -> Group:
        """Of a copy: the stage of the call in which it was asked for."""
        launch = self._launched.get(event.launch) if event.launch is not None else None
        asked = launch[0].start if launch else event.start
        for group, found in self._stages.items():
            if any(low <= asked <= high for low, high in found):
                return "input" if group == "input" else "output"
        return "copy"

    def key(self, event: Event, owner: Owner | None) -> Key:
        """The part that something on the GPU belongs to."""
        if owner and owner.engine:
            return Key("engine", "GPU", owner.name)
        return Key(self.stage(event), "GPU") if traces.copy(event.name) else Key("op", "GPU")

    def shared(self, call: Event) -> dict[Stage, dict[Key, list[Span]]]:
        """{stage: {what: its instants}} of one call; together they are the call."""
        layers = self._layers(call)
        making = spans.inside(spans.union(event.span for event in self.marks[traces.INPUT] if _meets(event, call)), [call.span])
        found: dict[Stage, dict[Key, list[Span]]] = {}
        for stage, windows in zip(STAGES, (making, spans.outside([call.span], making)), strict=True):
            mine, rest = partition(windows, layers.values())
            found[stage] = {key: instants for key, instants in zip(layers, mine, strict=True) if instants}
            found[stage][Key("rest", "")] = rest
        return found

    def _layers(self, call: Event) -> dict[Key, list[Span]]:
        """{what: when}, what takes an instant first comes first."""
        layers: dict[Key, list[Span]] = {}
        for event, owner in self.on_gpu:
            if _meets(event, call):
                layers.setdefault(self.key(event, owner), []).append(event.span)
        # Kernels before copies, which may run beside them.
        layers = dict(sorted(layers.items(), key=lambda item: ("engine", "op", "input", "copy", "output").index(item[0].group)))
        mine = {name: [event.span for event in found if _meets(event, call)] for name, found in self.marks.items()}
        run = spans.union(mine[traces.RUN])
        for event, owner in self.engine_ops:
            if _meets(event, call):
                layers.setdefault(Key("engine", "host", owner.name), []).append(event.span)
        layers[Key("op", "host")] = spans.inside(spans.union(event.span for event, _ in self.ops if _meets(event, call)), run)
        layers[Key("input", "host")] = mine[traces.INPUT]
        layers[Key("output", "host")] = mine[traces.OUTPUT]
        layers[Key("graph", "host")] = [event.span for event in (*self.executor, *self.runtime) if _meets(event, call)]
        layers[Key("call", "host")] = run
        return layers


def _timeline(call: Event, shared: Mapping[Stage, Mapping[Key, Sequence[Span]]]) -> Iterable[Stretch]:
    """The stretches of a call in order, from its begin on. What is too short to be seen goes to the stretch before it."""
    every = sorted(((span, key) for parts in shared.values() for key, found in parts.items() for span in found), key=lambda one: one[0])
    fine = _FINE * call.seconds
    joined: list[tuple[float, float, Key]] = []
    for (start, end), key in every:
        if joined and (joined[-1][2] == key or end - start < fine):
            joined[-1] = (joined[-1][0], end, joined[-1][2])
        else:
            joined.append((start, end, key))
    return [Stretch(group=key.group, device=key.device, engine=key.engine, start=start - call.start, end=end - call.start)
            for start, end, key in joined]


def _meets(event: Event, call: Event) -> bool:
    return event.start < call.end and event.end > call.start


def _within(event: Event, windows: Sequence[Span]) -> bool:
    """Whether it begins in one of the windows."""
    return any(low <= event.start < high for low, high in windows)


def _ops(seen: Seen, windows: Sequence[Span], count: int) -> list[OpTime]:
    found: dict[Owner, list[float]] = {}
    for event, owner in seen.ops:
        if _within(event, windows):
            one = found.setdefault(owner, [0.0] * 4)
            one[0] += 1
            one[1] += event.seconds
    for event, launched in seen.on_gpu:
        if launched and not launched.engine and _within(event, windows):
            one = found.setdefault(launched, [0.0] * 4)
            one[2] += event.seconds
            one[3] += 1
    rows = [OpTime(name=owner.name, type=owner.type, runs=one[0] / count, host_seconds=one[1] / count, gpu_seconds=one[2] / count,
                   kernels=one[3] / count) for owner, one in found.items() if one[3] or owner.type not in PASSIVE_OPS]
    return sorted(rows, key=lambda one: -max(one.gpu_seconds, one.host_seconds))


def _engines(seen: Seen, windows: Sequence[Span], count: int) -> list[EngineRun]:
    names = dict.fromkeys([owner.name for event, owner in seen.engine_ops if _within(event, windows)])
    names |= dict.fromkeys(owner.name for event, owner in seen.on_gpu if owner and owner.engine and _within(event, windows))
    return [_engine(seen, name, windows, count) for name in names]


def _engine(seen: Seen, name: str, windows: Sequence[Span], count: int) -> EngineRun:
    def times(kind: str) -> float:
        return sum(engine == name and _within(event, windows) for event, engine in seen.engine_events[kind]) / count

    host = [event.span for event, owner in seen.engine_ops if owner.name == name and _within(event, windows)]
    gpu = [event for event, owner in seen.on_gpu if owner and owner.engine and owner.name == name and _within(event, windows)]
    gaps = 0.0
    for window in windows:
        busy = spans.union(event.span for event in gpu if _within(event, [window]))
        gaps += busy[-1][1] - busy[0][0] - spans.length(busy) if busy else 0.0
    only = [event for event in gpu if not traces.copy(event.name)]
    return EngineRun(name=name, runs=times("engine"), host_seconds=spans.length(spans.union(host)) / count,
                     gpu_seconds=spans.length(spans.union(event.span for event in gpu)) / count, kernels=len(only) / count,
                     gap_seconds=gaps / count, arithmetic=_arithmetic(only, count), fallbacks=times("fallback"), builds=times("build"))


def _copies(seen: Seen, windows: Sequence[Span], count: int) -> list[Copy]:
    found: dict[tuple[str, Group], list[float]] = {}
    for event, owner in seen.on_gpu:
        kind = traces.copy(event.name)
        if kind and not (owner and owner.engine) and _within(event, windows):
            one = found.setdefault((kind, seen.stage(event)), [0.0] * 3)
            for place, value in enumerate((1, event.bytes, event.seconds)):
                one[place] += value / count
    return [Copy(kind=kind, group=group, copies=one[0], bytes=one[1], seconds=one[2]) for (kind, group), one in found.items()]


def _arithmetic(events: Iterable[Event], count: int) -> dict[str, float]:
    found: dict[str, float] = collections.defaultdict(float)
    for event in events:
        found[kernels.arithmetic(event.name)] += event.seconds / count
    return {name: found[name] for name in kernels.ARITHMETICS if name in found}
