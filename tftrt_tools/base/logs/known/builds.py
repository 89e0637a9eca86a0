"""Engines that were not built, and why: TF-TRT 2.14.1, TensorRT 7 to 10, trtexec."""

from tftrt_tools.base.logs.message import known

_KEEP_NATIVE = "leave that node to TensorFlow: `tftrt convert --keep_native_nodes=…`"

CREATION_FAILED = known(
    "engine_not_built",
    "build",
    "error",
    "Engine creation for {engine} failed. The native segment will be used instead. Reason: {reason}",
    meaning="An engine could not be built. Every request to it is computed by TensorFlow from then on; TF-TRT does not try again.",
    mend="fix what the reason and TensorRT's errors before it name; `tftrt convert --shapes=…` builds beforehand and names the node",
    subject="engine",
)
NO_SEGMENT = known(
    "segment_not_read",
    "build",
    "error",
    "Getting segment graph for {engine} failed. Reason: {reason}",
    meaning="An engine could not be built, because its segment is not in the model.",
    mend="convert the model again",
    subject="engine",
)
ABORTED = known(
    "build_forbidden",
    "build",
    "error",
    "Engine creation aborted by TF_TRT_ABORT_CUDA_ENGINE_BUILD variable",
    meaning="TF_TRT_ABORT_CUDA_ENGINE_BUILD is set: it makes every build fail, to test what happens then.",
    mend="unset that variable",
)
NOT_CONVERTED = known(
    "node_refused",
    "build",
    "error",
    "failed to add TRT layer, at: {node}",
    meaning="TensorRT refuses a layer that TF-TRT made of this node, so the whole engine is not built.",
    mend=_KEEP_NATIVE,
    subject="node",
)
NO_IMPLEMENTATION = known(
    "no_kernel_for_layer",
    "build",
    "error",
    "Could not find any implementation for node {layer} due to insufficient workspace",
    "Could not find any implementation for node {layer}.)",
    "Could not find any implementation for node {layer}",
    "could not find any implementation for node {layer}, try increasing the workspace",
    meaning="TensorRT has no kernel for this layer within the workspace and the precision that it was given.",
    mend="a larger --max_workspace_size_bytes (trtexec: --memPoolSize=workspace:…), while nothing else holds the GPU's memory; else "
    "--fp32_nodes or --keep_native_nodes for that node",
    subject="layer",
)
NO_OUTPUT = known(
    "network_without_output",
    "build",
    "error",
    "Network must have at least one output",
    meaning="The network is empty: the parser stopped before its end, and said why before this line.",
    mend="fix the parser's error",
)
NO_PROFILE = known(
    "no_profile",
    "build",
    "error",
    "Network has dynamic or shape inputs, but no optimization profile has been defined",
    meaning="Sizes are unknown, and nothing says for which ones the engine is built.",
    mend="name the shapes: `tftrt convert --shapes=…`; trtexec: --minShapes, --optShapes, --maxShapes",
)
BAD_PROFILE = known(
    "profile_refused",
    "build",
    "error",
    "Failed to add optimization profile {profile}. This usually happens when profile is invalid.",
    "Specified optimization profiles must satisfy MIN<=OPT<=MAX.",
    "Profile kOPT values are not self-consistent. {why}",
    meaning="A profile contradicts itself or the network: a size is larger than its maximum, or two inputs that must agree do not.",
    mend="declare shapes that the model can take together",
)
GROUPED = known(
    "grouped_convolution",
    "build",
    "error",
    "kernel weights has count {number} but {other} was expected",
    meaning="A grouped convolution: TF-TRT knows of one group only, and the engine is not built, or the process ends.",
    mend="`tftrt convert` writes such convolutions in another way; convert the model with it",
)
CHANNELS = known(
    "channels_not_fixed",
    "build",
    "error",
    "Channel dimension must be static, at {node}",
    "Channel dimension must be static",
    meaning="TF-TRT converts a convolution only if its number of channels is fixed.",
    mend=_KEEP_NATIVE,
    subject="node",
)
NO_INPUTS = known(
    "segment_without_inputs",
    "build",
    "warning",
    "Segment has no inputs (possible constfold failure)",
    meaning="All inputs of a segment are constants, so there is nothing to build.",
    mend="nothing: it is computed once, by TensorFlow",
)
INPUTS_DIFFER = known(
    "engine_inputs_differ",
    "build",
    "error",
    "Incorrect number of engine inputs",
    meaning="TensorRT removed an input that nothing in the segment uses, and TF-TRT still feeds it.",
    mend=_KEEP_NATIVE,
)
NETWORK_INVALID = known(
    "network_invalid",
    "build",
    "error",
    "Network validation failed",
    "Failed to create TensorRT network object",
    "Builder failed while analyzing shapes",
    meaning="TensorRT refuses the network; the error before this line says what is wrong in it.",
    mend="fix what that error names",
)
OTHER_DEVICE = known(
    "builder_on_other_gpu",
    "build",
    "error",
    "Builder was created on device different than current device",
    meaning="The process switched to another GPU between the start and the end of a build.",
    mend="let the process see one GPU: CUDA_VISIBLE_DEVICES",
)
PLUGINS = known(
    "plugins_missing",
    "build",
    "warning",
    "Failed to initialize TensorRT plugins, and conversion may fail later",
    "Can not find any TensorRT plugins in registry",
    meaning="TensorRT's plugin library is missing. Ops such as CombinedNonMaxSuppression need it.",
    mend="`tftrt doctor` says which library is missing and what fixes it",
)
TRTEXEC_FAILED = known(
    "trtexec_failed",
    "build",
    "error",
    "&&&& FAILED TensorRT.{program}",
    "Engine set up failed",
    "Engine could not be created from network",
    "Failed to create engine from model",
    meaning="trtexec did not come to its end; the first error above says why.",
    mend="fix the first error",
)
DESERIALIZE_NOTHING = known(
    "no_engine_to_load",
    "build",
    "error",
    "Engine is empty. Nothing to deserialize!",
    "Engine deserialization failed",
    meaning="TensorRT could not read an engine; the line before says why: another version, another GPU, or no engine at all.",
    mend="build it again with this TensorRT on this GPU: `tftrt build`",
)
TIMING_OFF = known(
    "timing_cache_off",
    "speed",
    "note",
    "Timing cache disabled. Turning it on will improve builder speed",
    meaning="Every kernel is measured anew in each build.",
)
TIMING_OTHER = known(
    "timing_cache_refused",
    "speed",
    "note",
    "The incoming ITimingCache is built from a different TensorRT version",
    "The UUID in incoming ITimingCache is different from current device",
    "Could not read timing cache from: {path}",
    meaning="The kept timings of kernels are of another TensorRT or GPU, or are not there: this build measures anew.",
    mend="nothing: the next build is faster",
)

ALL = (
    CREATION_FAILED,
    NO_SEGMENT,
    ABORTED,
    NOT_CONVERTED,
    NO_IMPLEMENTATION,
    NO_OUTPUT,
    NO_PROFILE,
    BAD_PROFILE,
    GROUPED,
    CHANNELS,
    NO_INPUTS,
    INPUTS_DIFFER,
    NETWORK_INVALID,
    OTHER_DEVICE,
    PLUGINS,
    TRTEXEC_FAILED,
    DESERIALIZE_NOTHING,
    TIMING_OFF,
    TIMING_OTHER,
)
