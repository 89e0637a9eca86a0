"""The GPUs of this machine that work side by side (--on=local)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tftrt_tools.base.stack import probes
from tftrt_tools.base.stack.gpus import Driver

# What CUDA_VISIBLE_DEVICES is for each process that builds beside a conversion, with commas.
HELPERS = "TFTRT_BUILD_GPUS"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def variables() -> dict[str, str]:
    """As `alike`, of this process and this machine."""
    return alike(os.environ, Driver() if _VISIBLE in os.environ else probes.driver.run(None).result)


def alike(env: Mapping[str, str], driver: Driver) -> dict[str, str]:
    """Environment variables that leave the GPUs of the first one's kind: engines and times of the others are another matter. Those that
    the user names stay. Returns: {} where there are none."""
    if _VISIBLE in env:
        return {_VISIBLE: env[_VISIBLE]}
    same = [str(one.index) for one in driver.gpus if one.name == driver.gpus[0].name]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", _VISIBLE: ",".join(same)} if same else {}


def names(found: Mapping[str, str]) -> list[str]:
    """The GPUs of `variables`, as CUDA_VISIBLE_DEVICES names each."""
    return [one for one in found.get(_VISIBLE, "").split(",") if one not in ("", "-1")]
