"""Asks NVML for the state of the GPUs that CUDA shows this process: clocks, limits, what slows them, who else is on them.

It is native code, as in `nvml_job`.
"""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Callable
from typing import Any

from tftrt_tools.base.stack import gpus


def query(_request: object = None) -> list[dict[str, Any]]:
    """A dict for each GPU that this process may use; what NVML does not tell is left out. [] without NVML.

    Keys: index, name, uuid, compute_capability, mig (whether it is divided), sm_mhz, most_sm_mhz, memory_mhz, most_memory_mhz,
    memory_bus_bits, power_w, power_limit_w, default_power_limit_w, temperature_c, utilization (percent), memory_mib, used_mib, slowed
    (reasons for a lowered clock, in words), pcie ("gen 5 x16"), processes (how many compute on it).
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver or no GPU
        return []
    try:
        return [_state(pynvml, index) for index in visible(pynvml)]
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible(nvml: types.ModuleType) -> list[int]:
    """The driver's numbers of the GPUs that CUDA_VISIBLE_DEVICES names, in its order; all of them without it.

    As CUDA reads it: an entry is a number or the beginning of a UUID, and the first that names no GPU ends the list. Numbers are CUDA's,
    which are the driver's where the GPUs are alike or CUDA_DEVICE_ORDER=PCI_BUS_ID. nvml: the module pynvml, initialised.
    """
    everyone, named = list(range(nvml.nvmlDeviceGetCount())), os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return everyone
    uuids = [gpus.text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))) for index in everyone]
    numbers: list[int] = []
    for entry in (part.strip() for part in named.split(",")):
        matches = (
            [int(entry)]
            if entry.isdigit()
            else [index for index in everyone if entry and uuids[index].startswith(entry)]
        )
        if len(matches) != 1 or matches[0] not in everyone:
            break
        numbers += matches
    return numbers


def _state(nvml: types.ModuleType, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    queries: dict[str, Callable[[], Any]] = {
        "name": lambda: gpus.text(nvml.nvmlDeviceGetName(handle)),
        "uuid": lambda: gpus.text(nvml.nvmlDeviceGetUUID(handle)),
        "compute_capability": lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "most_sm_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "most_memory_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "memory_bus_bits": lambda: nvml.nvmlDeviceGetMemoryBusWidth(handle),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "default_power_limit_w": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "memory_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        "used_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20,
        "slowed": lambda: list(gpus.slowed(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
        "pcie": lambda: (
            f"gen {nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)} x{nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)}"
        ),
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    state: dict[str, Any] = {"index": index}
    for name, ask in queries.items():
        with contextlib.suppress(nvml.NVMLError, AttributeError):  # a MIG slice, a vGPU and old drivers tell less
            state[name] = ask()
    return state
