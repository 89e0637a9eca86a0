"""What costs time, or makes a measurement worth less."""

from tftrt_tools.base.logs.message import known

DYNAMIC = known(
    "many_dynamic_sizes",
    "speed",
    "note",
    "Myelin graph with multiple dynamic values may have poor performance if they differ",
    meaning="Sizes that are unknown when the engine is built may make a fused part slower.",
    mend="one profile for each shape: --shapes with several",
)
LAZY = known(
    "no_lazy_loading",
    "speed",
    "note",
    "CUDA lazy loading is not enabled",
    meaning="CUDA loads all kernels at the start: more memory, a slower start.",
    mend="CUDA_MODULE_LOADING=LAZY in the environment",
)
FUSION = known(
    "fusion_off",
    "speed",
    "warning",
    "Convolution + generic activation fusion is disable due to incompatible driver or nvrtc",
    meaning="TensorRT does not fuse some activations into convolutions, because driver and libnvrtc do not fit.",
    mend="`tftrt doctor`",
)
UNSTABLE = known(
    "times_unstable",
    "speed",
    "warning",
    "GPU compute time is unstable, with coefficient of variance = {number}%",
    meaning="trtexec's times vary: something else uses the GPU, or its clock changes.",
    mend="an idle GPU, longer --duration, fixed clocks",
)
ENQUEUE = known(
    "bound_by_launches",
    "speed",
    "warning",
    "Throughput may be bound by Enqueue Time rather than GPU Compute and the GPU may be under-utilized",
    "Throughput may be bound by host-to-device transfers",
    "Throughput may be bound by device-to-host transfers",
    meaning="trtexec waited for launches or copies, not for the GPU: its throughput is not the engine's.",
    mend="trtexec: --useCudaGraph, --noDataTransfers",
)
STREAMS = known(
    "times_of_several_streams",
    "speed",
    "note",
    "Multiple inference streams are used. Latencies may not be accurate",
    "profiles detected but not set",
    "auxiliary streams, so the",
    "CUDA graph capture failed",
    "If not already in use, locking GPU clock frequency",
    "Add --useCudaGraph",
    meaning="A remark of trtexec on its own measurement.",
)
SLOW = known(
    "slow_allocation",
    "speed",
    "note",
    "Allocation of {number} exceeds {percent}% of free system memory",
    meaning="TensorFlow took much memory or time for one step.",
)

PREVIEW = known(
    "preview_feature_off",
    "speed",
    "note",
    "Using PreviewFeature::kFASTER_DYNAMIC_SHAPES_0805 can help improve performance",
    meaning="TensorRT 8.5 could build dynamic shapes in a newer way, which TF-TRT does not ask for.",
)

ALL = (PREVIEW, DYNAMIC, LAZY, FUSION, UNSTABLE, ENQUEUE, STREAMS, SLOW)
