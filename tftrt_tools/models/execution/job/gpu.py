"""The GPU that TensorFlow sees in this process."""

from __future__ import annotations

import ctypes


def seen() -> dict[str, str] | None:
    """{"name", "compute_capability", "driver"} of the first GPU that TensorFlow sees, or None. driver: "" where NVML does not say."""
    import tensorflow as tf

    from tftrt_tools.base.stack import nvml_job

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        return None
    details = tf.config.experimental.get_device_details(devices[0])
    return {
        "name": details.get("device_name", "unknown"),
        "compute_capability": ".".join(map(str, details.get("compute_capability", ()))),
        "driver": nvml_job.query().driver or "",
    }


def identity() -> str:
    """The UUID of the GPU (or its MIG slice) that CUDA calls 0 in this process, as hexadecimal digits; "" where the driver does not say.

    It is asked of the driver itself: CUDA and nvidia-smi may number GPUs in different orders.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        uuid_of = driver.cuDeviceGetUuid_v2
    except (OSError, AttributeError):
        return ""
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or uuid_of(raw, device):
        return ""
    return bytes(raw).hex()
