"""The GPUs and their driver, as `nvml_job` asks for them."""

import dataclasses

from tftrt_tools.base import records


@dataclasses.dataclass(frozen=True)
class Gpu(records.Record):
    """index: in the driver's order. memory_mib: in all. compute_capability: such as "9.0"."""

    index: int
    name: str
    memory_mib: int
    compute_capability: str


# Bits of NVML's reasons for a clock lower than requested; idleness does not count.
_SLOWED = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal, software",
    0x40: "thermal, hardware",
    0x80: "power brake",
}


def slowed(bits: int) -> tuple[str, ...]:
    """NVML's reasons for a lowered clock in words."""
    return tuple(text for bit, text in _SLOWED.items() if bits & bit)


def text(value: str | bytes) -> str:
    """What NVML answered as text: older releases of nvidia-ml-py return bytes."""
    return value.decode() if isinstance(value, bytes) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Driver(records.Record):
    """The driver's answer; only `error` if it does not answer."""

    # Version of the driver.
    driver: str | None = None
    # The newest CUDA that it runs, such as "12.2".
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    # Why it could not be asked.
    error: str = ""
