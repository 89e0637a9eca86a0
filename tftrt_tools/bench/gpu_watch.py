"""How busy the GPUs are while something is measured, by NVML, ten times a second. Where there is no GPU, nothing is sampled."""

import contextlib
import dataclasses
import threading
import time

_PERIOD_SECONDS = 0.1
# Bits of NVML's clocks event reasons that lower the clock below what was asked for; being idle is none.
_SLOWED = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal, software", 0x40: "thermal, hardware", 0x80: "power brake"}


@dataclasses.dataclass(frozen=True)
class Sample:
    """seconds: since the watch began. Fields are None where NVML does not tell: utilization in percent, memory in MiB, clock of the
    multiprocessors in MHz, power in W, temperature in degrees Celsius; slowed: reasons for a lowered clock."""

    seconds: float
    gpu: int
    utilization: int | None
    memory_mib: int | None
    clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    slowed: tuple


@dataclasses.dataclass(frozen=True)
class Use:
    """One GPU during one measurement; fields as in Sample, None where nothing was told."""

    gpu: int
    name: str
    samples: int
    mean_utilization: float | None
    max_utilization: int | None
    max_memory_mib: int | None
    mean_clock_mhz: float | None
    min_clock_mhz: int | None
    mean_power_w: float | None
    max_temperature_c: int | None
    slowed: tuple

    def to_dict(self):
        return {**dataclasses.asdict(self), "slowed": list(self.slowed)}

    def text(self):
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

    def __init__(self, nvml, handles, names):
        self._nvml, self._handles, self._names = nvml, handles, names
        self._samples, self._start, self._stop = [], time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu-watch", daemon=True)
        self._thread.start()

    @property
    def now(self):
        """Seconds since it began; for `uses`."""
        return time.monotonic() - self._start

    def uses(self, since):
        """[Use] of the samples from `since` (a `now`) on, a GPU each; GPUs of which there is none are left out."""
        taken = [one for one in list(self._samples) if one.seconds >= since]
        by_gpu = {gpu: [one for one in taken if one.gpu == gpu] for gpu in range(len(self._handles))}
        return [_use(gpu, self._names[gpu], mine) for gpu, mine in by_gpu.items() if mine]

    def stop(self):
        """End sampling."""
        self._stop.set()
        self._thread.join()

    def _sample(self):
        while not self._stop.wait(_PERIOD_SECONDS):
            for gpu, handle in enumerate(self._handles):
                self._samples.append(self._one(gpu, handle))

    def _one(self, gpu, handle):
        nvml = self._nvml

        def told(ask):
            try:
                return ask()
            except nvml.NVMLError:  # a MIG instance, a vGPU and old drivers tell less
                return None

        power = told(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        reasons = told(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        return Sample(self.now, gpu, told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                      told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20),
                      told(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                      None if power is None else power / 1000,
                      told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                      tuple(text for bit, text in _SLOWED.items() if reasons & bit))


class _Nothing:
    """The watch of a machine without a GPU."""

    now = 0.0

    def uses(self, _since):
        return []


@contextlib.contextmanager
def watching(wanted=True):
    """Watch all GPUs of this machine. Yields: something with `now` and `uses`. Args: wanted: False for none of this."""
    nvml = _started() if wanted else None
    if nvml is None:
        yield _Nothing()
        return
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        watch = Watch(nvml, handles, [_string(nvml.nvmlDeviceGetName(handle)) for handle in handles])
        try:
            yield watch
        finally:
            watch.stop()
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _started():
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no GPU: a witness, not a need
        return None
    return pynvml


def _use(gpu, name, samples):
    def known(field):
        return [value for value in (getattr(one, field) for one in samples) if value is not None]

    def mean(field):
        values = known(field)
        return round(sum(values) / len(values), 1) if values else None

    def highest(field):
        return max(known(field), default=None)

    slowed = dict.fromkeys(reason for one in samples for reason in one.slowed)
    return Use(gpu, name, len(samples), mean("utilization"), highest("utilization"), highest("memory_mib"), mean("clock_mhz"),
               min(known("clock_mhz"), default=None), mean("power_w"), highest("temperature_c"), tuple(slowed))


def _string(value):
    return value.decode() if isinstance(value, bytes) else value
