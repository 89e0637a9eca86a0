"""Facts of this machine and this process on which a call's time depends, whatever runs the calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base.stack import fingerprint, gpu_state_job

_VARIABLES = ("TF_", "TFTRT_", "CUDA_", "NVIDIA_TF32_OVERRIDE", "OMP_")


def machine(
    versions: Mapping[str, str], *, tf32: bool, inter_op: int = 0, intra_op: int = 0, jit: str = ""
) -> dict[str, Any]:
    """The document of a profile.Machine, without the GPU that ran the model. Args: as its fields of these names."""
    return {
        "cpu": fingerprint.cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": dict(versions),
        "tf32": tf32,
        "inter_op": inter_op,
        "intra_op": intra_op,
        "jit": jit,
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
        "gpus": gpu_state_job.query(),
    }
