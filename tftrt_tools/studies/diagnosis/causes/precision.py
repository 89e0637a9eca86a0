"""FP16 or INT8 was asked for, and kernels compute in a wider type."""

from __future__ import annotations

from collections.abc import Sequence

from tftrt_tools.studies.diagnosis.case import Case, Said, converted_again, listed, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding

_WIDER = {"FP16": ("FP32", "TF32"), "INT8": ("FP32", "TF32", "FP16", "BF16")}
# A kernel of half the width takes half the time where it is bound by memory, or where its arithmetic is twice as fast.
_GAIN = 0.5
_LEAST_SHARE = 0.25
# docs/dev/measured/calls.md: products of 2048 x 2048, and ResNet-50.
_SEEN = "on an H100 TensorRT 8.5's INT8 kernels saved 18 and 27 % of the FP16 kernels' time; few of them are written for this GPU"


def look(case: Case) -> Said:
    """One finding, if a good part of the multiplying kernels' time is in a wider type."""
    requested = str(case.profile.settings.get("precision_mode", ""))
    if case.missed or requested not in _WIDER or not case.engines:
        return
    told: dict[str, float] = {}
    for run in case.call.engines:
        for name, seconds in run.arithmetic.items():
            told[name] = told.get(name, 0.0) + seconds
    wider = sum(told.get(name, 0.0) for name in _WIDER[requested])
    multiplying = sum(seconds for name, seconds in told.items() if name != "other")
    if not multiplying or wider < _LEAST_SHARE * multiplying:
        return
    flags = _high(case)
    yield Finding(
        cause="precision",
        call=case.name,
        worth=wider * _GAIN,
        basis="ceiling",
        title=f"{requested} was asked for, and {wider / multiplying:.0%} of the kernels' time that tells is wider",
        rule=f"kernels wider than {requested} take {milliseconds(wider)}; half as wide they take half of it at best",
        evidence=(
            "kernels by arithmetic: "
            + listed((f"{name} {milliseconds(seconds)}" for name, seconds in told.items()), 6),
            *_layers(case, _WIDER[requested]),
            *_seen(case, requested),
            *(f"the conversion keeps nodes wide: {name} is {value}" for name, value in flags.items()),
        ),
        mend="convert without these flags"
        if flags
        else "`tftrt build --layer_precisions` says layer by layer what has no range; where TensorRT found the wider kernel as fast, "
        "nothing is lost",
        command=converted_again(case, requested.lower(), *(f"--{name}=" for name in flags)) if flags else (),
    )


def _layers(case: Case, wider: Sequence[str]) -> list[str]:
    """The layers that multiply in a wider type, the slowest first; [] where the inside of the engines was not profiled."""
    inside = [layer for engine in case.engine_profiles for layer in engine.layers]
    layers = sorted(
        (layer for layer in inside if layer.role == "product" and layer.precision in wider),
        key=lambda layer: -layer.seconds,
    )
    return (
        [f"layers: {listed(f'{layer.short} in {layer.precision}, {milliseconds(layer.seconds)}' for layer in layers)}"]
        if layers
        else []
    )


def _seen(case: Case, asked: str) -> tuple[str, ...]:
    machine = case.profile.machine
    hopper = (machine.gpu or {}).get("compute_capability") == "9.0"
    return (_SEEN,) if asked == "INT8" and hopper and machine.versions.get("tensorrt", "").startswith("8.") else ()


def _high(case: Case) -> dict[str, object]:
    names = ("high_precision_nodes", "fp32_nodes")
    return {name: case.profile.settings[name] for name in names if case.profile.settings.get(name)}
