"""How much memory of the GPU was in use at most, by the driver's management library: TensorRT's own allocations included."""

from __future__ import annotations

import os
import threading
from typing import Any

_PERIOD_SECONDS = 0.02


class PeakMemory:
    """Watches the first visible GPU while its block runs. It sees the whole device, so other processes there count too.

    bytes: the most that was in use above what was in use at the start; None where NVML is not there.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle: Any = None

    def __enter__(self) -> PeakMemory:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, _handle(pynvml)
            self._start, self.bytes = self._used(), 0
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        except Exception:  # without NVML there is no figure, and the work goes on
            self.bytes = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread:
            self._stop.set()
            self._thread.join()
            self._nvml.nvmlShutdown()

    def _used(self) -> int:
        return self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used

    def _watch(self) -> None:
        while True:
            last = self._stop.wait(_PERIOD_SECONDS)
            self.bytes = max(self.bytes or 0, self._used() - self._start)
            if last:
                return


def _handle(nvml: Any) -> Any:
    """The device that CUDA calls 0: CUDA_VISIBLE_DEVICES may name another one than the driver's first, by number or UUID."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(first))
    return nvml.nvmlDeviceGetHandleByUUID(first) if first.startswith("GPU-") else nvml.nvmlDeviceGetHandleByIndex(0)
