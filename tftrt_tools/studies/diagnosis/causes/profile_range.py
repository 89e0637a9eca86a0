"""One profile serves a range of shapes, and TensorRT chose its kernels for the largest of them."""

from __future__ import annotations

import math

from tftrt_tools.studies.diagnosis.case import Case, Said, all_shapes, beside, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding
from tftrt_tools.studies.profiling.engine_profile import EngineProfile

# From so many times fewer values on, other kernels are likely to be faster.
_FAR = 4
_EMPTY_KERNEL = 2e-6


def look(case: Case) -> Said:
    """One finding, for a call far below the shape that the kernels were chosen for."""
    strategies = {engine.profile_strategy for engine in case.signature.engines} if case.signature else set()
    if case.missed or "Range" not in strategies or not case.signature or not case.signature.calls:
        return
    tuned = max(math.prod(math.prod(shape) for shape in call.values()) for call in case.signature.calls)
    elements = math.prod(math.prod(shape) for shape in case.call.shapes.values())
    if tuned < _FAR * elements:
        return
    seconds = case.gpu("engine")
    profiles = case.engine_profiles
    allowed = sum(least(profile) for profile in profiles)
    worth, rule = (
        max(0.0, seconds - allowed),
        (
            f"its engines take {milliseconds(seconds)} here; the GPU's peaks and the launch of its "
            f"kernels allow {milliseconds(allowed)}"
        ),
    )
    if not profiles:
        worth, rule = (
            seconds,
            f"its engines take {milliseconds(seconds)} here, and no profile of their layers says how fast they could be",
        )
    yield Finding(
        cause="range",
        call=case.name,
        title=f"the profile's kernels were chosen for {tuned / elements:.0f} times as many values",
        worth=worth,
        basis="ceiling",
        rule=rule,
        evidence=("the profile strategy is Range, which optimises for the largest shape",),
        mend="a profile for this shape: list the shapes that you serve, or give opt=",
        command=(
            "build",
            case.model,
            f"--shapes={all_shapes(case)}",
            "--dynamic_shape_profile_strategy=Optimal",
            f"--output={beside(case, 'optimal')}",
        ),
    )


def least(engine: EngineProfile) -> float:
    """Seconds below which its layers cannot come: each its roof, or the launch of its kernels; a layer that only renames launches none."""
    return sum(
        min(layer.seconds, max((layer.roof_share or 0.0) * layer.seconds, _EMPTY_KERNEL * max(1, len(layer.kernels))))
        for layer in engine.layers
    )
