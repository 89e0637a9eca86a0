"""The GPU that CUDA calls 0 in this process, asked of the driver: no runtime is loaded."""

from __future__ import annotations

import ctypes

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
_NAME_BYTES = 256


def seen() -> dict[str, str] | None:
    """{"name", "compute_capability", "driver"}, as `gpu.seen` gives it; None without a driver or a visible GPU."""
    from tftrt_tools.stack import nvml_job

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, count = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.cuDeviceGetName(name, _NAME_BYTES, device)
    parts = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        parts.append(str(value.value))
    return {"name": name.value.decode(), "compute_capability": ".".join(parts), "driver": nvml_job.query().get("driver", "")}
