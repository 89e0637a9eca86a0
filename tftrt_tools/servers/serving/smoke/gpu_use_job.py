"""Questions about GPUs that run in a child process, because TensorFlow and NVML may end their process."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

_PERIOD_SECONDS = 0.1


def tensorflow(_request: object) -> dict[str, Any] | None:
    """The GPU that TensorFlow sees, as execution.job.gpu.seen."""
    from tftrt_tools.models.execution.job import gpu

    return gpu.seen()


def nvml(request: Mapping[str, Any]) -> dict[str, int]:
    """Ask NVML.

    Args: request: {"pid"} for the memory of a process, or {"seconds"} to watch how busy the GPUs are.
    Returns: {"memory": bytes on all GPUs} or {"busy": highest utilisation in percent}; {} without NVML or a GPU.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        if not devices:
            return {}
        if "pid" in request:
            held = [
                one.usedGpuMemory
                for device in devices
                for one in pynvml.nvmlDeviceGetComputeRunningProcesses(device)
                if one.pid == request["pid"]
            ]
            # None: the driver lists the process and does not say how much it holds.
            return {"memory": sum(one or 1 for one in held)}
        return {"busy": _highest(pynvml, devices, request["seconds"])}
    except Exception:  # the test works without NVML
        return {}


def _highest(nvml: Any, devices: Sequence[Any], seconds: float) -> int:
    end, highest = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        highest = max(highest, *(nvml.nvmlDeviceGetUtilizationRates(device).gpu for device in devices))
        time.sleep(_PERIOD_SECONDS)
    return highest
