"""From the parts of a traced call to those of a measured one. A trace slows the host, not the kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tftrt_tools.studies.profiling.call_records import STAGES, Key, Stage

_REST = Key("rest", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled:
    """Parts that add up to the measured latency. parts: {what: seconds}; host, gpu: {stage: the factor of its parts}."""

    parts: Mapping[Key, float]
    host: Mapping[Stage, float]
    gpu: Mapping[Stage, float]


def scaled(traced: Mapping[Stage, Mapping[Key, float]], measured: float, shares: Mapping[Stage, float]) -> Scaled:
    """Fit the parts of a traced call to the latency of calls without a trace, each stage for itself.

    The GPU's parts stay as they are, the host's shrink by one factor so that all add up. If the measured stage is the longer one, nothing
    grows: the difference cannot be placed. If the GPU's parts alone are longer than the measured stage, the GPU was slower during the
    trace; then all its parts shrink by one factor.

    Args: traced: {stage: {what: seconds}}. measured: seconds of the whole call. shares: {stage: its share of the measured call, 0 to 1}.
    """
    parts: dict[Key, float] = {_REST: 0.0}
    host, gpu = dict[Stage, float](), dict[Stage, float]()
    for stage in STAGES:
        scaled_parts, left, host[stage], gpu[stage] = _stage(traced[stage], measured * shares[stage])
        for key, seconds in scaled_parts.items():
            parts[key] = parts.get(key, 0.0) + seconds
        parts[_REST] += left
    return Scaled(parts=parts, host=host, gpu=gpu)


def _stage(traced: Mapping[Key, float], measured: float) -> tuple[dict[Key, float], float, float, float]:
    """(parts, what cannot be placed beside them, the host's factor, the GPU's factor)."""
    gpu = sum(seconds for key, seconds in traced.items() if key.device == "GPU")
    host = sum(seconds for key, seconds in traced.items() if key.device != "GPU")
    left = measured - gpu
    if gpu and left <= 0:
        factor = measured / (gpu + host)
        return {key: seconds * factor for key, seconds in traced.items()}, 0.0, factor, factor
    factor = min(1.0, left / host) if host else 1.0
    parts = {key: seconds * (1.0 if key.device == "GPU" else factor) for key, seconds in traced.items()}
    return parts, max(0.0, left - host * factor), factor, 1.0
