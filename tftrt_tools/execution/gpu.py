"""The GPU that TensorFlow sees in this process."""


def seen():
    """{"name", "compute_capability", "driver"} of the first GPU that TensorFlow sees, or None. driver: "" where NVML does not say."""
    import tensorflow as tf

    from tftrt_tools.stack import gpus

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        return None
    details = tf.config.experimental.get_device_details(devices[0])
    return {"name": details.get("device_name", "unknown"),
            "compute_capability": ".".join(map(str, details.get("compute_capability", ()))),
            "driver": gpus.query().get("driver", "")}
