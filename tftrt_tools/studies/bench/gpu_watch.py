"""How busy the GPUs are while something is measured, by NVML, ten times a second. Where there is no GPU, nothing is sampled."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.base.stack import gpus

_PERIOD_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample of one GPU. Fields are None where NVML does not tell them."""

    # Since the watch began.
    seconds: float
    # The GPU's index.
    gpu: int
    # Percent.
    utilization: int | None
    memory_mib: int | None
    # Of the multiprocessors.
    clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    # Reasons for a lowered clock.
    slowed: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use(records.Record):
    """One GPU during one measurement; fields as in Sample, None where NVML told nothing."""

    # The GPU's index and name.
    gpu: int
    name: str
    # How many samples were taken.
    samples: int
    mean_utilization: float | None
    max_utilization: int | None
    max_memory_mib: int | None
    mean_clock_mhz: float | None
    min_clock_mhz: int | None
    mean_power_w: float | None
    max_temperature_c: int | None
    slowed: tuple[str, ...]

    def text(self) -> str:
        """One line for people."""
        parts = [f"GPU {self.gpu} {self.name}:"]
        if self.mean_utilization is not None:
            parts.append(f"busy {self.mean_utilization:.0f} % (at most {self.max_utilization} %),")
        if self.max_memory_mib is not None:
            parts.append(f"{self.max_memory_mib} MiB,")
        if self.mean_clock_mhz is not None:
            parts.append(f"{self.mean_clock_mhz:.0f} MHz (at least {self.min_clock_mhz}),")
        if self.mean_power_w is not None:
            parts.append(f"{self.mean_power_w:.0f} W,")
        return " ".join(parts).rstrip(",:") + (f"; clock lowered: {', '.join(self.slowed)}" if self.slowed else "")


class Watch:
    """Samples until it is stopped; made by `watching`."""

    def __init__(self, nvml: ModuleType, handles: Sequence[object], names: Sequence[str]) -> None:
        self._nvml, self._handles, self._names = nvml, handles, names
        self._samples: list[Sample] = []
        self._start, self._stop = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu-watch", daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        """Seconds since it began; for `uses`."""
        return time.monotonic() - self._start

    def uses(self, since: float) -> list[Use]:
        """[Use] of the samples since `since` (a `now`), one for each GPU; GPUs without samples are left out."""
        taken = [one for one in list(self._samples) if one.seconds >= since]
        by_gpu = {gpu: [one for one in taken if one.gpu == gpu] for gpu in range(len(self._handles))}
        return [_use(gpu, self._names[gpu], mine) for gpu, mine in by_gpu.items() if mine]

    def stop(self) -> None:
        """End sampling."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_PERIOD_SECONDS):
            for gpu, handle in enumerate(self._handles):
                self._samples.append(self._one(gpu, handle))

    def _one(self, gpu: int, handle: object) -> Sample:
        nvml = self._nvml

        def told(ask: Callable[[], Any]) -> Any:
            try:
                return ask()
            except nvml.NVMLError:  # a MIG instance, a vGPU and old drivers tell less
                return None

        power = told(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        reasons = told(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        return Sample(
            seconds=self.now,
            gpu=gpu,
            utilization=told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            memory_mib=told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20),
            clock_mhz=told(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            power_w=None if power is None else power / 1000,
            temperature_c=told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            slowed=gpus.slowed(reasons),
        )


class _Nothing:
    """The watch of a machine without a GPU."""

    now = 0.0

    def uses(self, _since: float) -> list[Use]:
        return []


# What `watching` gives.
AnyWatch = Watch | _Nothing


@contextlib.contextmanager
def watching(wanted: bool = True) -> Iterator[AnyWatch]:
    """Watch all GPUs of this machine. Yields: something with `now` and `uses`. Args: wanted: False to watch nothing."""
    nvml = _started() if wanted else None
    if nvml is None:
        yield _Nothing()
        return
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        watch = Watch(nvml, handles, [gpus.text(nvml.nvmlDeviceGetName(handle)) for handle in handles])
        try:
            yield watch
        finally:
            watch.stop()
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _started() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver or no GPU: the benchmark works without
        return None
    return pynvml


def _use(gpu: int, name: str, samples: Sequence[Sample]) -> Use:
    def known(field: str) -> list[Any]:
        return [value for value in (getattr(one, field) for one in samples) if value is not None]

    def mean(field: str) -> float | None:
        values = known(field)
        return round(sum(values) / len(values), 1) if values else None

    def highest(field: str) -> Any:
        return max(known(field), default=None)

    slowed = dict.fromkeys(reason for one in samples for reason in one.slowed)
    return Use(
        gpu=gpu,
        name=name,
        samples=len(samples),
        mean_utilization=mean("utilization"),
        max_utilization=highest("utilization"),
        max_memory_mib=highest("memory_mib"),
        mean_clock_mhz=mean("clock_mhz"),
        min_clock_mhz=min(known("clock_mhz"), default=None),
        mean_power_w=mean("power_w"),
        max_temperature_c=highest("temperature_c"),
        slowed=tuple(slowed),
    )
