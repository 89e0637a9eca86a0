"""What a client of a running server pays beside the model's own work, from the parts of a request that `tftrt bench --breakdown` told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tftrt_tools.studies.bench import breakdown
from tftrt_tools.studies.diagnosis.case import milliseconds
from tftrt_tools.studies.diagnosis.finding import Cause, Finding

_WIRE = (breakdown.ENCODING, breakdown.EMPTY_CALL, breakdown.MESSAGES, breakdown.READING, breakdown.REST)
_LEAST_SHARE = 0.25


def look(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about served requests. Args: document: of `tftrt bench --breakdown --json`."""
    subject = document["subject"]
    for taken in document["breakdowns"]:
        parts = {part["name"]: part["ms"] / 1e3 for part in taken["parts"]}
        whole = taken["total_ms"] / 1e3
        call = f"a request to {subject['address']}, {subject['request_bytes'] / 1e3:.3g} kB"
        for cause, names, title, mend in _KINDS:
            seconds = sum(parts.get(name, 0.0) for name in names)
            if seconds >= _LEAST_SHARE * whole:
                yield Finding(
                    cause=cause,
                    call=call,
                    worth=seconds,
                    basis="ceiling",
                    title=title,
                    mend=mend,
                    evidence=_evidence(parts, names),
                    rule=f"{milliseconds(seconds)} of {milliseconds(whole)} that a client waits",
                )


def _evidence(parts: Mapping[str, float], names: Collection[str]) -> tuple[str, ...]:
    mine = sorted(((seconds, name) for name, seconds in parts.items() if name in names and seconds), reverse=True)
    return tuple(f"{name}: {milliseconds(seconds)}" for seconds, name in mine)


# (cause, parts of a request, title, mend).
_KINDS: tuple[tuple[Cause, Collection[str], str, str], ...] = (
    (
        "wire",
        _WIRE,
        "the way to the server and back costs more than a good part of the answer",
        "send fewer bytes (`tftrt wrap`: pixels or files in place of floats, fewer outputs), more rows a request, "
        "or keep several under way",
    ),
    (
        "queue",
        (breakdown.QUEUE,),
        "requests wait for a batch",
        "`tftrt bench --tune_batching` finds the batching parameters that keep your SLO at the highest rate",
    ),
    (
        "decoding",
        (breakdown.DECODING,),
        "decoding and resizing take a good part of the time in the graph",
        "send pictures of the model's size, or decoded pixels (the signature `uint8` of `tftrt wrap`), where the network allows it",
    ),
)
