"""From the parts of a traced call to those of a measured one. A trace slows the host, not the kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tftrt_tools.profiling.call_parts import Key

_REST = Key("rest", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled:
    """Parts that add up to the measured latency. parts: {what: seconds}; the factors: of the host's and the GPU's parts."""

    parts: Mapping[Key, float]
    host_factor: float
    gpu_factor: float


def scaled(traced: Mapping[Key, float], measured: float) -> Scaled:
    """Fit the parts of a traced call to the latency of calls without a trace.

    The GPU's parts stay as they are, the host's shrink by one factor so that all add up. If the measured call is the longer one, nothing
    grows: the difference cannot be placed. If the GPU's parts alone are longer than the measured call, the GPU was slower during the
    trace; then all parts shrink by one factor.

    Args: traced: {what: seconds}; measured: seconds, above 0.
    """
    gpu = sum(seconds for key, seconds in traced.items() if key.device == "GPU")
    host = sum(seconds for key, seconds in traced.items() if key.device != "GPU")
    left = measured - gpu
    if left <= 0:
        factor = measured / (gpu + host)
        return Scaled(parts={key: seconds * factor for key, seconds in traced.items()}, host_factor=factor, gpu_factor=factor)
    factor = min(1.0, left / host) if host else 1.0
    parts = {key: seconds * (1.0 if key.device == "GPU" else factor) for key, seconds in traced.items()}
    parts[_REST] = max(0.0, parts.get(_REST, 0.0) + left - host * factor)
    return Scaled(parts=parts, host_factor=factor, gpu_factor=1.0)
