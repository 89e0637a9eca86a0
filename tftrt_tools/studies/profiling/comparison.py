"""Two profiles side by side: FP16 against INT8, two drivers, two shapes."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator

from tftrt_tools.base import records
from tftrt_tools.studies.profiling import engines_compare, rows
from tftrt_tools.studies.profiling.call_profile import CallProfile, Latency
from tftrt_tools.studies.profiling.profile import Profile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared(records.Record):
    """A part of a call in both profiles; seconds, None where a call has no such part."""

    name: str
    device: str
    one: float | None
    other: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallPair(records.Record):
    """A call of each profile."""

    # "serving_default(image 1x8x8x1)".
    one: str
    other: str
    one_latency: Latency
    other_latency: Latency
    # "1.93 times as fast", the other against the first.
    speed: str
    parts: tuple[Compared, ...]


# How fast a model is says little where it answers something else.
NO_ANSWERS = "a profile holds no answers: `tftrt verify` says whether the two models answer alike"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileComparison(records.Record):
    """Two profiles, the first one's calls and engines with the nearest of the other."""

    # Model, and what it was measured on.
    one: str
    other: str
    calls: tuple[CallPair, ...]
    engines: tuple[engines_compare.Comparison, ...]
    # Remarks that readers of the figures need, a line each.
    notes: tuple[str, ...] = ()

    document: typing.ClassVar[str] = "profile_comparison"


def compare(one: Profile, other: Profile) -> ProfileComparison:
    """Compare two profiles."""
    pairs, notes = list(_pairs(one, other)), list[str]()
    if not pairs:
        notes.append("the two profiles have no signature in common, so no calls are compared")
    for title, calls, place in (("first", one.model.calls, 0), ("second", other.model.calls, 1)):
        alone = [call.text() for call in calls if not any(pair[place] is call for pair in pairs)]
        if pairs and alone:
            notes.append(f"calls of the {title} profile alone, which are not compared: {', '.join(alone)}")
    if any(ours.shapes.keys() != its.shapes.keys() for ours, its in pairs):
        notes.append(
            "some calls have other inputs in the second profile: the two are hardly the same model, and then no figure says which "
            "is faster"
        )
    if any(ours.shapes != its.shapes for ours, its in pairs):
        notes.append("some calls have other shapes in the second profile; they are compared in the order of the shapes")
    if pairs:
        notes.append(NO_ANSWERS)
    engines = engines_compare.pairs(one.engines, other.engines)
    if one.machine.gpu != other.machine.gpu:
        notes.append("the two were measured on other GPUs or drivers: " + " and ".join(map(_where, (one, other))))
    if one.machine.versions != other.machine.versions:
        notes.append(
            "the two were measured with other versions: "
            + " and ".join(
                ", ".join(f"{name} {version}" for name, version in each.machine.versions.items())
                for each in (one, other)
            )
        )
    if not (one.engines and other.engines):
        notes.append(
            "no layers are compared: "
            + ("neither profile" if not (one.engines or other.engines) else "one of the profiles")
            + " holds what is inside of the engines"
        )
    elif not engines:
        notes.append("no layers are compared: no engine of the one has nodes of the other's")
    return ProfileComparison(
        one=f"{one.model.model} on {_where(one)}",
        other=f"{other.model.model} on {_where(other)}",
        calls=tuple(_pair(*pair) for pair in pairs),
        engines=tuple(engines_compare.compare(ours, its) for ours, its in engines),
        notes=tuple(notes),
    )


def _where(profile: Profile) -> str:
    gpu = profile.machine.gpu
    return f"{gpu['name']} (driver {gpu.get('driver') or 'unknown'})" if gpu else "a machine without a GPU"


def _pairs(one: Profile, other: Profile) -> Iterator[tuple[CallProfile, CallProfile]]:
    """Calls of equal shapes; of a signature that has none, those that stand in the same place. A plan's only signature has no name of its
    own: it is compared with another model's only one."""
    names, its_names = (dict.fromkeys(call.signature for call in each.model.calls) for each in (one, other))
    nameless = (one.of_a_plan or other.of_a_plan) and len(names) == len(its_names) == 1
    for signature in names:
        own = [call for call in one.model.calls if call.signature == signature]
        its = [call for call in other.model.calls if nameless or call.signature == signature]
        equal = [
            (call, match) for call in own if (match := next((each for each in its if each.shapes == call.shapes), None))
        ]
        yield from equal or zip(own, its, strict=False)


def _pair(one: CallProfile, other: CallProfile) -> CallPair:
    speed = f"{one.latency.p50 / other.latency.p50:.2f} times as fast"
    return CallPair(
        one=one.text(),
        other=other.text(),
        one_latency=one.latency,
        other_latency=other.latency,
        speed=speed,
        parts=tuple(
            Compared(name=part.name, device=part.device, one=part.seconds, other=part.other)
            for part in rows.parts(one, other)
        ),
    )
