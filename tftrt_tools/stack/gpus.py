"""The GPUs and their driver, as the driver's own management library (NVML) lists them. Called in a child process."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpu:
    """index: in the driver's order. memory_mib: in all. compute_capability: such as "9.0"."""

    index: int
    name: str
    memory_mib: int
    compute_capability: str


def query(_request=None):
    """{"driver": version, "cuda": newest CUDA version that it runs, "gpus": [Gpu as a dict, …]} or {"error": why}."""
    try:
        import pynvml
    except ImportError:
        return {"error": "nvidia-ml-py is not installed"}
    try:
        pynvml.nvmlInit()
        try:
            cuda = pynvml.nvmlSystemGetCudaDriverVersion()
            found = {"driver": _string(pynvml.nvmlSystemGetDriverVersion()), "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}
            return found | {"gpus": [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]}
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return {"error": str(error)}


def _gpu(nvml, index):
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    capability = "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    return dataclasses.asdict(Gpu(index, _string(nvml.nvmlDeviceGetName(handle)), memory, capability))


def _string(value):
    # Older releases of nvidia-ml-py return bytes.
    return value.decode() if isinstance(value, bytes) else value
