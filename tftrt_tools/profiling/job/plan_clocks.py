"""The clocks, power and limits of the GPU that this process uses, by NVML, once or while something runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tftrt_tools.execution.job import gpu
from tftrt_tools.stack import gpus

_PERIOD_SECONDS = 0.02


class Nvml:
    """NVML's view of CUDA's device 0. Raises: pynvml.NVMLError."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handle = self._found()

    def _found(self) -> Any:
        wanted = gpu.identity()
        handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        for handle in handles:
            if wanted and wanted in gpus.text(self._nvml.nvmlDeviceGetUUID(handle)).replace("-", ""):
                return handle
        return handles[0]

    def limits(self) -> dict[str, Any]:
        """What does not change while something runs; None where NVML does not tell it."""
        nvml = self._nvml
        return {
            "name": self._asked(lambda: gpus.text(nvml.nvmlDeviceGetName(self._handle))),
            "driver": self._asked(lambda: gpus.text(nvml.nvmlSystemGetDriverVersion())),
            "compute_capability": self._asked(lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(self._handle))),
            "memory_bus_bits": self._asked(lambda: nvml.nvmlDeviceGetMemoryBusWidth(self._handle)),
            "cores": self._asked(lambda: nvml.nvmlDeviceGetNumGpuCores(self._handle)),
            "memory_bytes": self._asked(lambda: nvml.nvmlDeviceGetMemoryInfo(self._handle).total),
            "max_sm_mhz": self._asked(lambda: nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
            "max_memory_mhz": self._asked(lambda: nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
            "power_limit_w": self._asked(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1e3),
        }

    def now(self) -> dict[str, Any]:
        """The clocks in MHz, the power in W, the temperature in °C, and NVML's bits of reasons for a lowered clock."""
        nvml = self._nvml
        return {
            "sm_mhz": self._asked(lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": self._asked(lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
            "power_w": self._asked(lambda: nvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3),
            "temperature_c": self._asked(lambda: nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)),
            "reasons": self._asked(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)),
        }

    def _asked(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._nvml.NVMLError:
            return None

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[dict[str, Any]]]:
        """Sample `now` while the context runs. Yields: the samples so far."""
        samples: list[dict[str, Any]] = [self.now()]
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(_PERIOD_SECONDS):
                samples.append(self.now())

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            stop.set()
            thread.join()
