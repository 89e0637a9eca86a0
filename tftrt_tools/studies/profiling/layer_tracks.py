"""The layers of engines in the timeline of a call. An engine launches the same kernels in the same order in every call, so where a call has
as many as the engine's own profile, they belong to the same layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tftrt_tools.models.execution import spans
from tftrt_tools.studies.profiling import engine_rows, traces
from tftrt_tools.studies.profiling.engine_profile import EngineProfile
from tftrt_tools.studies.profiling.seen import Seen
from tftrt_tools.studies.profiling.traces import Event, Track


def of(tracks: Sequence[Track], engines: Sequence[EngineProfile]) -> tuple[Track, ...]:
    """A track for each engine whose layers can be told. Args: tracks: of marked calls. engines: profiles of the model's engines."""
    seen = Seen(tracks)
    windows = spans.union(call.span for call in seen.calls)
    events_of: dict[str, list[Event]] = {}
    for name in dict.fromkeys(owner.name for _, owner in seen.on_gpu if owner and owner.engine):
        own = sorted(
            (event for event, owner in seen.on_gpu if owner and owner.engine and owner.name == name),
            key=lambda event: event.start,
        )
        for low, high in windows:
            events_of.setdefault(name, []).extend(
                _layers([event for event in own if low <= event.start < high], name, engines)
            )
    return tuple(Track(f"layers of {name}", True, tuple(events)) for name, events in events_of.items() if events)


def _layers(events: Sequence[Event], name: str, engines: Iterable[EngineProfile]) -> list[Event]:
    """The layers of one run, from its kernels; [] where no profile has as many."""
    kernels = [event for event in events if not traces.copy(event.name)]
    for engine in engines:
        owners = [layer.short for layer in engine.layers for _ in layer.kernels]
        for launched in (events, kernels):
            if engine.engine == name and owners and len(owners) == len(launched):
                return list(_joined(owners, launched))
    return []


def _joined(owners: Sequence[str], launched: Sequence[Event]) -> Iterable[Event]:
    """One event for neighbouring kernels of one layer."""
    begun = 0
    for place in range(1, len(owners) + 1):
        if place == len(owners) or owners[place] != owners[begun]:
            yield Event(name=engine_rows.short(owners[begun]), start=launched[begun].start, end=launched[place - 1].end)
            begun = place
