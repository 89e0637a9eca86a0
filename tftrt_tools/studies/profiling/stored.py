"""Profiles that were measured before: in a model's passport, or in a file of their own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.savedmodel.passport import Stamped
from tftrt_tools.studies.profiling import profile
from tftrt_tools.studies.profiling.call_profile import CallProfile
from tftrt_tools.studies.profiling.call_records import STAGES
from tftrt_tools.studies.profiling.profile import Profile

# Of a call's time: so much more or less may its parts be together.
_ROUNDING = 0.01
# No time, count or size of a profile comes near it.
_TOO_LARGE = 1e24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """A profile that was measured before. said: where it comes from, and whether the model has changed since; a line each."""

    profile: Profile
    said: tuple[str, ...]
    stale: bool = False


def is_file(path: str) -> bool:
    """Whether a path names a profile's own file."""
    return path.endswith(".json") and not os.path.isdir(path)


def read(path: str) -> Stored | None:
    """The profile that `path` names: a JSON file, or a model that carries one; None for a model without one.

    Raises: TftrtError where it is damaged or no profile, UsageError where there is no such file.
    """
    if is_file(path):
        return Stored(profile=_file(path), said=(f"a profile from the file {path}",))
    source = opening.check_readable(path)
    try:
        document = opening.document(source, profile.FILE)
    except errors.TftrtError as error:
        raise errors.TftrtError(
            error.cause, f"measure it again: `tftrt profile {path}`; the model itself may be whole"
        ) from None
    if document is None:
        return None
    profile_read = _understood(document, f"the profile in {path}")
    stale = table.kind(source.path).digest(source.path) != profile_read.model.digest
    gpu = (profile_read.machine.gpu or {}).get("name", "a machine without a GPU")
    remarks = [f"the stored profile of {profile_read.created}, measured on {gpu}; nothing was measured now"]
    if stale:
        remarks.append(f"it is stale: the model has changed since; run `tftrt profile {path}` on a machine with a GPU")
    return Stored(profile=profile_read, said=tuple(remarks), stale=stale)


def keep(model: str, found: Profile) -> bool:
    """Put a profile into the model's passport. Returns: whether its kind has passports."""
    return opening.keep(opening.check_readable(model), profile.FILE, found.to_dict())


def _file(path: str) -> Profile:
    try:
        data = documents.parse(documents.read_text(path))
    except FileNotFoundError:
        raise errors.UsageError(
            f"no such file: {path}", "give a model, or a file that `tftrt profile --json=FILE` wrote"
        ) from None
    except ValueError as error:
        raise errors.TftrtError(
            f"{path} is damaged: {documents.reason(error)}", "write it again with `tftrt profile MODEL --json=FILE`"
        ) from None
    return _understood(data, path)


def _understood(data: object, what: str) -> Profile:
    if not isinstance(data, dict) or data.get("kind") != Profile.document:
        raise errors.UsageError(
            f"{what} is no profile", "give a model, or a file that `tftrt profile --json=FILE` wrote"
        )
    try:
        parsed = Profile.from_dict(data)
        damage = _damage(parsed)
    except documents.MISREAD as error:
        damage = documents.reason(error)
    if damage:
        tool, here = data.get("tool"), Stamped().tool
        other = (
            f", or read it with {tool}, which wrote it (this is {here})"
            if isinstance(tool, str) and tool != here
            else ""
        )
        raise errors.TftrtError(f"{what} is damaged: {damage}", f"measure it again: `tftrt profile MODEL`{other}")
    return parsed


def _damage(found: Profile) -> str:
    """What its figures cannot be, in words; "" for sound ones."""
    if not found.model.calls:
        return "it has no call"
    for place, figure in _figures(found, ""):
        if not abs(figure) < _TOO_LARGE:
            return f"{place.removeprefix('.')} is {figure:g}, which is no figure of a profile"
    for call in (*found.model.calls, *(found.original.calls if found.original else ())):
        times = [call.latency.p50, call.latency.p90, *call.latency.rounds, *(part.seconds for part in call.parts)]
        if call.latency.p50 <= 0 or min(times) < -_ROUNDING * call.latency.p50:
            return f"{call.text()} has a time that is none"
        if missing := next(_missing(call), ""):
            return f"{call.text()} has no {missing}"
        whole = sum(part.seconds for part in call.parts)
        if call.parts and abs(whole - call.latency.p50) > _ROUNDING * call.latency.p50:
            return f"the parts of {call.text()} are {1e3 * whole:.3f} ms, and the call {1e3 * call.latency.p50:.3f} ms"
    return ""


def _figures(value: object, place: str) -> Iterator[tuple[str, float]]:
    """(where it stands, number) of all numbers of a record."""
    if isinstance(value, (int, float)):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _figures(item, f"{place}.{key}")
    elif isinstance(value, (tuple, list)):
        for number, element in enumerate(value):
            yield from _figures(element, f"{place}[{number}]")
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _figures(getattr(value, field.name), f"{place}.{field.name}")


def _missing(call: CallProfile) -> Iterator[str]:
    """What a call has to have, and has not."""
    if not call.latency.rounds:
        yield "rounds"
    if call.rows < 1:
        yield "rows"
    yield from (f"factor of the stage {stage}" for stage in STAGES if stage not in call.host_factors)
    yield from (f"type of {name}" for name in call.shapes if name not in call.dtypes)
