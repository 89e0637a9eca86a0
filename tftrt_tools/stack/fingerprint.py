"""Which machine measured something: figures of two machines must not be compared as if they were of one. No TensorFlow here."""

import dataclasses
import hashlib
import json
import os
import platform

from tftrt_tools import child, errors
from tftrt_tools.stack import installed

_SECONDS = 30
# How TensorRT's wheels have been called, the newest name first.
_TENSORRT = ("tensorrt", "nvidia-tensorrt")


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What a figure depends on and no flag says.

    cpu: model name; cores: that this process may use; quota_cores: the container's limit in CPUs, None without one;
    memory_gib: of the machine, or of the container where that has a limit, rounded, because a system's share of it differs from start to
    start; system, kernel, python: versions; gpus: names; driver: NVIDIA's,
    "" without; tensorflow, tensorrt: versions installed here, "" where there is none.
    """

    cpu: str
    cores: int
    quota_cores: float | None
    memory_gib: int
    system: str
    kernel: str
    python: str
    gpus: tuple
    driver: str
    tensorflow: str
    tensorrt: str

    @property
    def digest(self):
        """Sixteen hex digits of all fields: equal for machines of one kind with the same software."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def differences(self, other):
        """What another Fingerprint has different, a line each, such as "driver: 535.1, now 550.2"."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self))
        return [f"{name}: {_text(mine)}, now {_text(theirs)}" for name, mine, theirs in pairs if mine != theirs]

    def text(self):
        """One line for people."""
        cores = f"{self.cores} cores" + (f" (limited to {self.quota_cores:g})" if self.quota_cores else "")
        gpu = f"{_text(self.gpus)}, driver {self.driver}" if self.gpus else "no GPU"
        return f"{self.cpu}, {cores}, {self.memory_gib} GiB; {gpu}"

    def to_dict(self):
        return {**dataclasses.asdict(self), "gpus": list(self.gpus), "digest": self.digest}

    @classmethod
    def from_dict(cls, data):
        """Of `to_dict`. Raises: KeyError where a field is missing."""
        fields = {field.name: data[field.name] for field in dataclasses.fields(cls)}
        return cls(**{**fields, "gpus": tuple(fields["gpus"])})


def fingerprint():
    """The Fingerprint of this machine. Never raises: what cannot be read is "" or 0."""
    nvml = _nvml()
    tensorflow = installed.tensorflow()
    return Fingerprint(
        cpu_model(), len(os.sched_getaffinity(0)), _quota(), _memory_gib(), _system(), platform.release(), platform.python_version(),
        tuple(one["name"] for one in nvml.get("gpus", ())), nvml.get("driver", ""), (tensorflow.version or "") if tensorflow else "",
        next(filter(None, map(installed.version_of, _TENSORRT)), ""))


def cpu_model():
    """The processor's name, or its architecture where the system does not tell."""
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Processor") and value.strip():
            return " ".join(value.split())
    return platform.machine()


def _nvml():
    # NVML is native code, and a broken driver can take the process with it.
    try:
        return child.run("tftrt_tools.stack.gpus:query", None, timeout=_SECONDS).result
    except (errors.TftrtError, child.ChildBug):
        return {}


def _quota():
    """CPUs that the control group allows, or None."""
    for line in _lines("/sys/fs/cgroup/cpu.max"):
        quota, period = line.split()
        return None if quota == "max" else round(int(quota) / int(period), 2)
    quota = _number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    period = _number("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    return round(quota / period, 2) if quota and period and quota > 0 else None


def _memory_gib():
    total = next((int(line.split()[1]) << 10 for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")), 0)
    limit = _number("/sys/fs/cgroup/memory.max") or _number("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return round((min(total, limit) if limit and total else total) / (1 << 30))


def _number(path):
    try:
        return int(_lines(path)[0])
    except (IndexError, ValueError):
        return None


def _system():
    named = dict(line.split("=", 1) for line in _lines("/etc/os-release") if "=" in line)
    return named.get("PRETTY_NAME", platform.system()).strip('"')


def _lines(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _text(value):
    if isinstance(value, (tuple, list)):
        counted = {name: list(value).count(name) for name in value}
        return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counted.items()) or "none"
    return str(value) if value not in ("", None) else "none"
