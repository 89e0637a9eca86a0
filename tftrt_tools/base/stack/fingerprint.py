"""Identifies the measuring machine: figures of two machines must not be compared as if they were of one. No TensorFlow here."""

import dataclasses
import hashlib
import json
import os
import platform
import typing

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import child
from tftrt_tools.base.stack import installed, probes
from tftrt_tools.base.stack.gpus import Driver

_SECONDS = 30
# How TensorRT's wheels have been called, the newest name first.
_TENSORRT = ("tensorrt", "nvidia-tensorrt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fingerprint(records.Record):
    """The facts that figures depend on besides the flags."""

    # Model name of the processor.
    cpu: str
    # Cores that this process may use.
    cores: int
    # The container's limit in CPUs; None without one.
    quota_cores: float | None
    # Memory of the machine, or of the container if it has a limit. Rounded, because the system's own share differs from start to start.
    memory_gib: int
    # Name and version of the operating system.
    system: str
    # Version of the kernel.
    kernel: str
    # Version of Python.
    python: str
    # Names of the GPUs.
    gpus: tuple[str, ...]
    # Version of NVIDIA's driver, "" without one.
    driver: str
    # Versions installed here, "" where there is none.
    tensorflow: str
    tensorrt: str
    written_too: typing.ClassVar[tuple[str, ...]] = ("digest",)

    @property
    def digest(self) -> str:
        """Sixteen hex digits of all fields: equal for machines of one kind with the same software."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other: "Fingerprint") -> list[str]:
        """The differences to another Fingerprint, a line each, such as "driver: 535.1, now 550.2"."""
        pairs = (
            (field.name, getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self)
        )
        return [f"{name}: {_text(ours)}, now {_text(theirs)}" for name, ours, theirs in pairs if ours != theirs]

    def text(self) -> str:
        """One line for people."""
        cores = f"{self.cores} cores" + (f" (limited to {self.quota_cores:g})" if self.quota_cores else "")
        gpu = f"{_text(self.gpus)}, driver {self.driver}" if self.gpus else "no GPU"
        return f"{self.cpu}, {cores}, {self.memory_gib} GiB; {gpu}"


def fingerprint() -> Fingerprint:
    """The Fingerprint of this machine. Never raises: a fact that cannot be read is "" or 0."""
    driver = _driver()
    tensorflow = installed.tensorflow()
    return Fingerprint(
        cpu=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        quota_cores=_quota(),
        memory_gib=_memory_gib(),
        system=_system(),
        kernel=platform.release(),
        python=platform.python_version(),
        gpus=tuple(gpu.name for gpu in driver.gpus),
        driver=driver.driver or "",
        tensorflow=(tensorflow.version or "") if tensorflow else "",
        tensorrt=next(filter(None, map(installed.version_of, _TENSORRT)), ""),
    )


def gpu_here() -> bool:
    """Whether this machine has a GPU that NVML names, and CUDA_VISIBLE_DEVICES does not hide all of them."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and bool(_driver().gpus)


def cpu_model() -> str:
    """The processor's name, or its architecture if the system does not tell it."""
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Processor") and value.strip():
            return " ".join(value.split())
    return platform.machine()


def _driver() -> Driver:
    try:
        return probes.driver.run(None, timeout=_SECONDS).result
    except (errors.TftrtError, child.ChildBug):
        return Driver()


def _quota() -> float | None:
    """CPUs that the control group allows, or None."""
    for line in _lines("/sys/fs/cgroup/cpu.max"):
        quota, period = line.split()
        return None if quota == "max" else round(int(quota) / int(period), 2)
    allowed = _number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    span = _number("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    return round(allowed / span, 2) if allowed and span and allowed > 0 else None


def _memory_gib() -> int:
    total = next((int(line.split()[1]) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")), 0)
    limit = _number("/sys/fs/cgroup/memory.max") or _number("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return round((min(total, limit) if limit and total else total) / (1 << 30))


def _number(path: str) -> int | None:
    try:
        return int(_lines(path)[0])
    except (IndexError, ValueError):
        return None


def _system() -> str:
    named = dict(line.split("=", 1) for line in _lines("/etc/os-release") if "=" in line)
    return named.get("PRETTY_NAME", platform.system()).strip('"')


def _lines(path: str) -> list[str]:
    try:
        with open(path, errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _text(value: object) -> str:
    if isinstance(value, (tuple, list)):
        counted = {name: list(value).count(name) for name in value}
        return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counted.items()) or "none"
    return str(value) if value not in ("", None) else "none"
