"""Facts that bound what any mend can give, or that look like faults and are none."""

from __future__ import annotations

from tftrt_tools.studies.diagnosis.case import Case, Said, milliseconds
from tftrt_tools.studies.diagnosis.finding import Remark

# Of a later call; and seconds.
_COLD, _COLD_SECONDS = 20, 0.5
_MEMORY_SHARE = 0.5


def look(case: Case) -> Said:
    """Remarks on the call."""
    engines = case.gpu("engine")
    if case.engines and not case.missed:
        yield Remark(
            "calling",
            case.name,
            f"engines are {milliseconds(engines)} of {milliseconds(case.seconds)}: no setting of an engine "
            "can give more than that",
        )
    yield from _memory(case)
    yield from _native(case)
    slowest = max(case.profile.model.calls, key=lambda call: call.first_seconds)
    if (
        case.call is slowest
        and case.call.first_seconds > max(_COLD * case.seconds, _COLD_SECONDS)
        and not case.call.first.build
    ):
        yield Remark(
            "cold",
            case.name,
            f"the first call takes {case.call.first_seconds:.2f} s, later ones {milliseconds(case.seconds)}: "
            "that is loading; a server needs warm-up requests (`tftrt publish` writes them)",
        )


def _memory(case: Case) -> Said:
    layers = [layer for engine in case.engine_profiles for layer in engine.layers]
    whole = sum(layer.seconds for layer in layers)
    for bound, means in (
        ("memory", "a narrower type helps only as far as it makes tensors smaller"),
        ("launch", "a narrower type gives nothing; larger batches or fewer layers do"),
    ):
        seconds = sum(layer.seconds for layer in layers if layer.bound == bound)
        if whole and seconds >= _MEMORY_SHARE * whole:
            yield Remark(
                "memory-bound",
                case.name,
                f"layers bound by {bound} take {seconds / whole:.0%} of the engines' time: {means}",
            )


def _native(case: Case) -> Said:
    """Why the original is hard to beat."""
    original = case.profile.original
    if not original or not case.original:
        return
    if original.xla_count:
        yield Remark(
            "native-fast",
            case.name,
            f"the original compiles {original.xla_count} functions by XLA: it fuses ops already",
        )
    tf32 = case.original.arithmetic.get("TF32", 0.0)
    if tf32 > 0.5 * sum(seconds for name, seconds in case.original.arithmetic.items() if name != "other"):
        yield Remark(
            "native-fast",
            case.name,
            "the original multiplies in TF32 already, on tensor cores: FP16 gives less than against float32",
        )
