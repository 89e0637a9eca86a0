"""Time goes into moving values: formats, transposes and casts, inside of engines and at their borders."""

from __future__ import annotations

from tftrt_tools.studies.diagnosis.case import Case, Said, listed, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding
from tftrt_tools.studies.profiling import layers

_BORDER = frozenset({"Transpose", "Cast"})
_LEAST_SHARE = 0.1


def look(case: Case) -> Said:
    """One finding, if they take a good part of the GPU's time."""
    if case.missed:
        return
    moved = [layer for engine in case.engine_profiles for layer in engine.layers if layer.role in layers.MOVES]
    inside = sum(layer.seconds for layer in moved)
    border = [op for op in case.call.ops if op.type in _BORDER]
    outside = sum(op.gpu_seconds for op in border)
    if inside + outside < _LEAST_SHARE * max(case.call.gpu_seconds, 1e-9):
        return
    slowest = sorted(moved, key=lambda layer: -layer.seconds)
    yield Finding(
        cause="reformat",
        call=case.name,
        title=f"{milliseconds(inside + outside)} of GPU time only move or convert values",
        worth=inside + outside,
        basis="ceiling",
        rule=f"reformats, transposes and shuffles inside of engines take {milliseconds(inside)}, transposes and casts outside "
        f"{milliseconds(outside)}",
        evidence=tuple(
            filter(
                None,
                [
                    "layers: " + listed(f"{layer.short} {milliseconds(layer.seconds)}" for layer in slowest)
                    if slowest
                    else "",
                    "ops: " + listed(f"{op.name} {milliseconds(op.gpu_seconds)}" for op in border) if border else "",
                ],
            )
        ),
        mend="many come from ops that stay in TensorFlow and from outputs in other types; `tftrt profile` shows between which layers they "
        "are",
    )
