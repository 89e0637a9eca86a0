"""Memory that was not there: TensorFlow's allocator, TensorRT's, the system's."""

from tftrt_tools.base.logs.message import known

_LESS = "let the GPU hold less: fewer models or versions, smaller batches, fewer shapes at a time, --max_workspace_size_bytes"
_WORKSPACE = "a larger --max_workspace_size_bytes (trtexec: --memPoolSize=workspace:…), if the GPU has the memory"

OOM_TENSOR = known(
    "tensor_without_memory",
    "memory",
    "error",
    "OOM when allocating tensor with shape{shape} and type",
    "OOM when allocating tensor of shape {shape}",
    "OOM when allocating temporary tensor with shape",
    "OOM when allocating tensor",
    meaning="TensorFlow had no memory for a tensor, and the request or the load failed.",
    mend=_LESS,
)
OOM_SOFT = known(
    "allocator_short_soft",
    "speed",
    "note",
    "Allocator ({allocator}) ran out of memory trying to allocate {size} with freed_by_count={number}. The caller indicates that this is "
    "not a failure",
    "The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory",
    "The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory",
    meaning="TensorFlow or TensorRT asked for memory to be faster, did not get it, and went on without.",
    mend=_LESS,
)
OOM_ALLOCATOR = known(
    "allocator_short",
    "memory",
    "error",
    "Allocator ({allocator}) ran out of memory trying to allocate {size}",
    meaning="TensorFlow's share of the GPU's memory is used up.",
    mend=_LESS + "; TF_GPU_ALLOCATOR=cuda_malloc_async against fragmentation",
)
OOM_DRIVER = known(
    "gpu_without_memory",
    "memory",
    "error",
    "failed to allocate {size} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cuMemAllocAsync failed to allocate",
    meaning="The driver has no GPU memory left: this process and the others on the GPU hold it.",
    mend=_LESS + "; `nvidia-smi` shows who holds it",
)
OOM_TENSORRT = known(
    "tensorrt_without_memory",
    "memory",
    "error",
    "Cuda Runtime (out of memory)",
    "Cuda Error in {place}: 2 (out of memory)",
    "Error Code 2: OutOfMemory ({why})",
    "OutOfMemory Error in {place}",
    "Requested amount of GPU memory ({number} bytes) could not be allocated",
    "GPU memory allocation failed during initialization of layer",
    meaning="TensorRT had no GPU memory for what it did.",
    mend=_LESS,
)
OOM_TACTIC = known(
    "layer_without_memory",
    "memory",
    "warning",
    "Out of memory error while finding fastest tactic for {layer}",
    "GPU memory allocation error during getBestTactic: {layer}",
    "GPU error during getBestTactic: {layer}",
    "Get cuda error during getBestTactic: {layer}",
    meaning="TensorRT had no memory to try the kernels of a layer. If none is left for that layer, the build fails.",
    mend="build while nothing else holds the GPU's memory",
    subject="layer",
)
SKIPPED = known(
    "tactics_skipped",
    "speed",
    "warning",
    "kipping tactic {number} due to insufficient memory on requested size of {size} detected for tactic {hex}",
    "kipping tactic {number} due to insuficient memory on requested size of {size} detected for tactic {hex}",
    meaning="TensorRT did not try kernels that want more memory than they may have. The engine is right, and may be slower.",
    mend=_WORKSPACE,
)
REQUEST = known(
    "tactic_over_memory",
    "speed",
    "warning",
    "Tactic Device request: {number}MB Available: {available}MB. Device memory is insufficient to use tactic",
    meaning="A kernel wants more GPU memory than is free, so it is not tried. The engine is right, and may be slower.",
    mend="build while nothing else holds the GPU's memory",
)
SOME_SKIPPED = known(
    "workspace_short",
    "speed",
    "warning",
    "Some tactics do not have sufficient workspace memory to run",
    meaning="Some kernels were not tried, because the workspace is too small for them. The engine is right, and may be slower.",
    mend=_WORKSPACE,
)
TACTIC_FAILED = known(
    "tactics_failed",
    "speed",
    "warning",
    "kipping tactic {hex} due to exception {why}",
    "Skipping tactic due to integer overflow while computing strides",
    "Integer overflow while computing strides",
    meaning="A kernel failed when it was tried; TensorRT takes another.",
    mend="nothing, if the engine was built; an illegal memory access here spoils the whole process: build again",
)
KILLED = known(
    "system_without_memory",
    "memory",
    "error",
    "Out of memory: Killed process {number} ({process})",
    "oom-kill:constraint={constraint},",
    "Memory cgroup out of memory: Killed process {number} ({process})",
    "std::bad_alloc",
    meaning="The machine or the container had no main memory left, and the process ended.",
    mend="a higher limit for the container, or fewer models",
)

ALL = (
    OOM_TENSOR,
    OOM_SOFT,
    OOM_ALLOCATOR,
    OOM_DRIVER,
    OOM_TENSORRT,
    OOM_TACTIC,
    SKIPPED,
    REQUEST,
    SOME_SKIPPED,
    TACTIC_FAILED,
    KILLED,
)
