"""The GPU, CUDA, and processes that ended."""

from tftrt_tools.base.logs.message import known

_DOCTOR = "`tftrt doctor` says what is missing and what fixes it"

CRASHED = known(
    "process_ended",
    "device",
    "error",
    "Segmentation fault",
    "Fatal Python error: {why}",
    "*** Received signal {number}",
    "*** SIGSEGV",
    "*** SIGABRT",
    "terminate called after throwing an instance of {kind}",
    "Aborted (core dumped)",
    meaning="The process ended by itself. With engines: most often they were built by another TensorRT or on another GPU, which TF-TRT "
    "does not check.",
    mend="`tftrt inspect` on the model says what its engines were built for; `tftrt build` builds them here",
)
CHECK = known(
    "check_failed",
    "device",
    "error",
    "Check failed: {what}",
    meaning="A check in the library's own code failed, and that ended the process.",
    mend="the file and line before it say which part; the request or the model that came last is often the cause",
)
ILLEGAL = known(
    "gpu_fault",
    "device",
    "error",
    "an illegal memory access was encountered",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "misaligned address",
    "CUDA_ERROR_LAUNCH_FAILED",
    "unspecified launch failure",
    "an illegal instruction was encountered",
    meaning="A kernel broke. Nothing works on the GPU in this process after that, so the errors behind this one say nothing.",
    mend="start the process anew; if it comes again, `tftrt build` the engine anew, or leave its node to TensorFlow",
)
CUDA_ERROR = known(
    "cuda_error",
    "device",
    "error",
    "Error Code 1: Cuda Runtime ({why})",
    "Error Code 1: Cuda Driver ({why})",
    "Cuda failure: {why}",
    meaning="CUDA refused a call of TensorRT.",
    mend=_DOCTOR,
)
CUDNN_ERROR = known(
    "library_error",
    "device",
    "error",
    "Error Code 1: Cudnn ({why})",
    "Error Code 1: Cublas ({why})",
    "Error Code 1: CuTensor ({why})",
    "Could not initialize cudnn, please check cudnn installation",
    "Could not create cudnn handle: {why}",
    "failed to create cublas handle: {why}",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
    meaning="cuDNN or cuBLAS failed: mostly they have no GPU memory left to start, or are of another release than needed.",
    mend="let the GPU hold less (TF_FORCE_GPU_ALLOW_GROWTH=true); " + _DOCTOR,
)
NO_CUDA = known(
    "cuda_not_started",
    "device",
    "error",
    "CUDA initialization failure with error: {number}",
    "failed call to cuInit: {why}",
    "no CUDA-capable device is detected",
    "Cannot find any available devices (GPUs)!",
    "Failed to acquire CUDA device information",
    meaning="The process reaches no GPU: no driver, none that it may see, or a container without one.",
    mend=_DOCTOR,
)
NO_GPU = known(
    "no_gpu",
    "device",
    "warning",
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE",
    "Could not find cuda drivers on your machine, GPU will not be used",
    "Cannot dlopen some GPU libraries",
    "Cannot dlopen all CUDA libraries",
    "could not select device driver",
    meaning="TensorFlow runs without a GPU here, so no engine runs.",
    mend=_DOCTOR,
)
CONVERTED_WITHOUT = known(
    "converted_without_gpu",
    "device",
    "note",
    "Could not find any TF GPUs",
    meaning="A model was converted on a machine without a GPU. That is right; its engines are built on the GPU that serves it.",
)
MEMORY_UNKNOWN = known(
    "gpu_memory_unknown",
    "device",
    "note",
    "Unable to determine GPU memory usage",
    "Unable to determine CPU memory usage",
    "Unable to determine available memory",
    meaning="TensorRT cannot read how much memory is used.",
)
ALL = (CRASHED, CHECK, ILLEGAL, CUDA_ERROR, CUDNN_ERROR, NO_CUDA, NO_GPU, CONVERTED_WITHOUT, MEMORY_UNKNOWN)
