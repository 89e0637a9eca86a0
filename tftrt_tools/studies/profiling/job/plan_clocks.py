"""The clocks and limits of the GPU that this process uses, by NVML, once or while something runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tftrt_tools.base.stack import gpu_state_job
from tftrt_tools.models.execution.job import gpu

_PERIOD_SECONDS = 0.02


def state() -> dict[str, Any]:
    """What `gpu_state_job` tells of the GPU that CUDA calls 0 here; {} where NVML or the driver does not answer."""
    wanted = gpu.identity()
    return next((one for one in gpu_state_job.query() if wanted and wanted in one.get("uuid", "").replace("-", "")), {})


@contextlib.contextmanager
def watching() -> Iterator[list[float]]:
    """Sample the multiprocessors' clock while the context runs. Yields: the samples in MHz, so far."""
    samples: list[float] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(_PERIOD_SECONDS):
            clock = state().get("sm_mhz")
            if clock:
                samples.append(clock)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
