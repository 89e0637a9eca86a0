"""Asks the driver's own management library (NVML) for the GPUs. It is native code, and a broken driver can take the process with it."""

import types

from tftrt_tools.base.stack import gpus
from tftrt_tools.base.stack.gpus import Driver, Gpu


def query(_request: None = None) -> Driver:
    """The driver and its GPUs, or why it cannot be asked."""
    try:
        import pynvml
    except ImportError:
        return Driver(error="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        try:
            cuda = pynvml.nvmlSystemGetCudaDriverVersion()
            return Driver(
                driver=gpus.text(pynvml.nvmlSystemGetDriverVersion()),
                cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
                gpus=tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())),
            )
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Driver(error=str(error))


def _gpu(nvml: types.ModuleType, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    capability = "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    return Gpu(index, gpus.text(nvml.nvmlDeviceGetName(handle)), memory, capability)
