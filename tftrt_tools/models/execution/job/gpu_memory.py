"""How much memory of the GPU was in use at most, by the driver's management library: TensorRT's own allocations included."""

from __future__ import annotations

import threading
from typing import Any

from tftrt_tools.base.stack import gpu_state_job

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
            self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(gpu_state_job.visible(pynvml)[0])
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
        result: int = self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used
        return result

    def _watch(self) -> None:
        try:
            while not self._stop.wait(_PERIOD_SECONDS):
                self.bytes = max(self.bytes or 0, self._used() - self._start)
            self.bytes = max(self.bytes or 0, self._used() - self._start)
        except self._nvml.NVMLError:  # the driver tells no more, so there is no figure
            self.bytes = None
