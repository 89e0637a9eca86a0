"""The GPUs of this machine that work side by side (--on=local)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base.stack import probes

# What CUDA_VISIBLE_DEVICES is for each process that builds beside a conversion, with commas.
HELPERS = "TFTRT_BUILD_GPUS"


def alike() -> tuple[str, ...]:
    """The UUIDs of the GPUs that this process may use, as far as they are of the first one's kind: engines and times of the others are
    another matter. () where the driver names none."""
    return chosen(probes.gpu_states.run(None).result)


def chosen(states: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The same of gpu_state_job.query's answer."""
    kinds = [(one.get("name"), one.get("compute_capability"), one.get("memory_mib")) for one in states]
    return tuple(one["uuid"] for one, kind in zip(states, kinds, strict=True) if kind == kinds[0] and one.get("uuid"))


def variables(uuids: Sequence[str]) -> dict[str, str]:
    """Environment variables that leave these GPUs, in this order."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}
