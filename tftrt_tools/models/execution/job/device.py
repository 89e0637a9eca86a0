"""The GPU that CUDA calls 0 in this process, asked of the driver: no runtime is loaded."""

from __future__ import annotations

import ctypes

_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CU_DEVICE_ATTRIBUTE_…
_NAME_BYTES = 256


def seen() -> dict[str, str] | None:
    """{"name", "compute_capability", "driver"}, as `gpu.seen` gives it; None without a driver or a visible GPU."""
    from tftrt_tools.base.stack import nvml_job

    first = _first()
    if first is None:
        return None
    driver, device = first
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.cuDeviceGetName(name, _NAME_BYTES, device)
    parts = [str(_attribute(driver, device, attribute)) for attribute in (_MAJOR, _MINOR)]
    return {"name": name.value.decode(), "compute_capability": ".".join(parts), "driver": nvml_job.query().driver or ""}


def multiprocessors() -> int:
    """The number of the GPU's multiprocessors; 0 where the driver does not say."""
    found = _first()
    return _attribute(*found, _MULTIPROCESSORS) if found else 0


def _first() -> tuple[ctypes.CDLL, ctypes.c_int] | None:
    """(the driver, device 0)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, count = ctypes.c_int(), ctypes.c_int()
    if (
        driver.cuInit(0)
        or driver.cuDeviceGetCount(ctypes.byref(count))
        or not count.value
        or driver.cuDeviceGet(ctypes.byref(device), 0)
    ):
        return None
    return driver, device


def _attribute(driver: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
