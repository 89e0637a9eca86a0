"""What a trace of calls holds, sorted: marks, ops, engine ops, what runs on the GPU and which op launched it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from tftrt_tools.models.execution import spans, timeline, trace
from tftrt_tools.models.execution.spans import Span
from tftrt_tools.models.savedmodel.engine_op import ENGINE_OP
from tftrt_tools.studies.profiling import traces
from tftrt_tools.studies.profiling.call_records import Group, Key
from tftrt_tools.studies.profiling.traces import Event, Track

_EXECUTOR = ("ExecutorState::", "ExecutorDoneCallback", "ExecutorPropagateOutputs", "PartitionedCallOp", "RunFunction")
_RUNTIME = ("FunctionRun", "KernelAndDeviceFunc::Run")
# The engine op's own event; the one with its name may be missing.
_COMPUTE = "TRTEngineOp::ComputeAsync"


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
        """Whether it runs an engine, or a plan."""
        return self.type in (ENGINE_OP, traces.PLAN_OP)


class Seen:
    """What a trace holds, sorted by kind."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self._ops_of_launches = {
            event.launch: event.op
            for track in tracks
            if track.gpu
            for event in track.events
            if event.launch is not None and event.op
        }
        host = [track for track in tracks if not track.gpu]
        self.marks: dict[str, list[Event]] = {
            name: [] for name in (traces.CALL, traces.INPUT, traces.RUN, traces.OUTPUT)
        }
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
        self._stages = {
            group: spans.union(event.span for event in self.marks[name])
            for group, name in (("input", traces.INPUT), ("output", traces.OUTPUT))
        }
        # (event, its owner) of everything on the GPU.
        self.on_gpu: list[tuple[Event, Owner | None]] = [
            (event, self._owner(event)) for track in tracks if track.gpu for event in track.events
        ]

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
                    if owner.type == traces.PLAN_OP:
                        self.engine_events["engine"].append((event, owner.name))
                elif owner.type not in timeline.AROUND:
                    self.ops.append((event, owner))
                    around.append((event, owner))
            if event.launch is not None:
                self._launched[event.launch] = (event, around[-1][1] if around else None)

    def _engine_of(self, events: Iterable[Event], around: Event) -> str:
        """The name of the engine op that `around` is the work of, by what it launched; "?" where that does not tell it."""
        for event in itertools.takewhile(lambda candidate: candidate.start < around.end, events):
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
        instant = launch[0].start if launch else event.start
        for group, instants in self._stages.items():
            if any(low <= instant <= high for low, high in instants):
                return "input" if group == "input" else "output"
        return "copy"

    def key(self, event: Event, owner: Owner | None) -> Key:
        """The part that something on the GPU belongs to."""
        if owner and owner.engine:
            return Key("engine", "GPU", owner.name)
        return Key(self.stage(event), "GPU") if traces.copy(event.name) else Key("op", "GPU")

    def layers(self, call: Event) -> dict[Key, list[Span]]:
        """{what: when}, what takes an instant first comes first."""
        layers: dict[Key, list[Span]] = {}
        for event, owner in self.on_gpu:
            if meets(event, call):
                layers.setdefault(self.key(event, owner), []).append(event.span)
        # Kernels before copies, which may run beside them.
        layers = dict(
            sorted(layers.items(), key=lambda item: ("engine", "op", "input", "copy", "output").index(item[0].group))
        )
        marked = {name: [event.span for event in events if meets(event, call)] for name, events in self.marks.items()}
        run = spans.union(marked[traces.RUN])
        for event, owner in self.engine_ops:
            if begins(event, call):
                layers.setdefault(Key("engine", "host", owner.name), []).append(event.span)
        layers[Key("op", "host")] = spans.inside(
            spans.union(event.span for event, _ in self.ops if begins(event, call)), run
        )
        layers[Key("input", "host")] = marked[traces.INPUT]
        layers[Key("output", "host")] = marked[traces.OUTPUT]
        layers[Key("graph", "host")] = [event.span for event in (*self.executor, *self.runtime) if begins(event, call)]
        layers[Key("call", "host")] = run
        return layers


def meets(event: Event, call: Event) -> bool:
    """Whether an event has an instant in common with a call."""
    return event.start < call.end and event.end > call.start


def begins(event: Event, call: Event) -> bool:
    """Whether a call began an event: one of an earlier call, whose thread was left waiting, may end much later."""
    return call.start <= event.start < call.end
