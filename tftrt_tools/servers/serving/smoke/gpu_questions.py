"""What is asked about GPUs in child processes, because TensorFlow and NVML may end their process."""

from collections.abc import Callable

from tftrt_tools.base.process import jobs


@jobs.job
def tensorflow() -> Callable[[None], dict[str, str] | None]:
    """The GPU that TensorFlow sees, as execution.job.gpu.seen."""
    from tftrt_tools.servers.serving.smoke import gpu_use_job

    return gpu_use_job.tensorflow


@jobs.job
def memory() -> Callable[[int], int | None]:
    """Bytes that a process, given by its id, holds on all GPUs. None without NVML or a GPU."""
    from tftrt_tools.servers.serving.smoke import gpu_use_job

    return gpu_use_job.memory


@jobs.job
def busy() -> Callable[[float], int | None]:
    """The highest utilisation of the GPUs in percent, watched for some seconds. None without NVML or a GPU."""
    from tftrt_tools.servers.serving.smoke import gpu_use_job

    return gpu_use_job.busy
