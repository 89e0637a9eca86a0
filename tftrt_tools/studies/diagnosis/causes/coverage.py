"""TensorFlow computes a part of the call outside of engines."""

from __future__ import annotations

import collections

from tftrt_tools.studies.diagnosis.case import Case, Said, listed, milliseconds
from tftrt_tools.studies.diagnosis.causes import many_engines
from tftrt_tools.studies.diagnosis.finding import Finding
from tftrt_tools.tftrt.conversion.pass_log import LeftOut

# Types of ops that move or convert values; `reformat` speaks of them.
MOVING = frozenset(
    {"Transpose", "Cast", "Identity", "Reshape", "ExpandDims", "Squeeze", "Pack", "ConcatV2", "Snapshot"}
)


def look(case: Case) -> Said:
    """One finding: the op types that cost most."""
    seconds = case.gpu("op") + case.host("op")
    if case.missed or not seconds or not case.engines or many_engines.kept(case):
        return
    types: dict[str, float] = collections.defaultdict(float)
    for op in case.call.ops:
        types[op.type] += max(op.gpu_seconds, op.host_seconds * case.call.host_factors["rest"])
    costly = sorted(types, key=lambda name: -types[name])
    share = f"; {case.signature.coverage:.0%} of the ops are in engines" if case.signature else ""
    yield Finding(
        cause="coverage",
        call=case.name,
        title=f"TensorFlow computes {milliseconds(seconds)} outside of engines{share}",
        worth=seconds,
        basis="ceiling",
        rule=f"ops outside of engines take {milliseconds(seconds)} of {milliseconds(case.seconds)}",
        evidence=tuple(
            [
                f"most of it: {listed(f'{name} {milliseconds(types[name])}' for name in costly)}",
                *(f"{reason.op}: {reason.reason}" for reason in _reasons(case, costly[:3])),
            ]
        ),
        mend="see why these ops stay out, and what would take them in",
        command=("inspect", case.source or case.model, "--use_dynamic_shape", "--all"),
    )


def _reasons(case: Case, types: list[str]) -> list[LeftOut]:
    left = case.signature.left_out if case.signature else ()
    first = {one.op: one for one in left}
    return [first[name] for name in types if name in first]
