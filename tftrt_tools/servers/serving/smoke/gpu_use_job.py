"""The child's side of `gpu_questions`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pynvml

_PERIOD_SECONDS = 0.1


def tensorflow(_request: None) -> dict[str, str] | None:
    """The GPU that TensorFlow sees, as execution.job.gpu.seen."""
    from tftrt_tools.models.execution.job import gpu

    return gpu.seen()


def memory(pid: int) -> int | None:
    """Bytes that a process holds on all GPUs. None without NVML or a GPU."""

    def held(devices: list[pynvml.c_nvmlDevice_t]) -> int:
        import pynvml

        sizes = [
            nvmlDeviceGetComputeRunningProcess.usedGpuMemory
            for device in devices
            for nvmlDeviceGetComputeRunningProcess in pynvml.nvmlDeviceGetComputeRunningProcesses(device)
            if nvmlDeviceGetComputeRunningProcess.pid == pid
        ]
        # None: the driver lists the process and does not say how much it holds.
        return sum(size or 1 for size in sizes)

    return _asked(held)


def busy(seconds: float) -> int | None:
    """The highest utilisation in percent, watched for `seconds`. None without NVML or a GPU."""

    def highest(devices: list[pynvml.c_nvmlDevice_t]) -> int:
        import pynvml

        end, utilization = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            utilization = max(utilization, *(pynvml.nvmlDeviceGetUtilizationRates(device).gpu for device in devices))
            time.sleep(_PERIOD_SECONDS)
        return utilization

    return _asked(highest)


def _asked(question: Callable[[list[pynvml.c_nvmlDevice_t]], int]) -> int | None:
    """What a function finds out about all GPUs; None where it finds nothing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return question(devices) if devices else None
    except Exception:  # the test works without NVML
        return None
