"""TF-TRT computed a segment in TensorFlow instead of its engine (kernels/trt_engine_op.cc). These warnings stop after five a process and
place; the lines of `engine_lines`, which TF_CPP_VMODULE=trt_engine_op=1 brings, do not."""

from tftrt_tools.base.logs.known import builds
from tftrt_tools.base.logs.message import known

NO_ENGINE_FITS = known(
    "no_engine_fits",
    "fallback",
    "warning",
    "Engine retrieval for input shapes: {shapes} failed. Running native segment for {engine}",
    meaning="No engine was there for the shapes of this request, so TensorFlow computed it: right, and slow.",
    mend="declare the shapes that are served: `tftrt convert --shapes=…` or `tftrt build --shapes=…`; `tftrt verify` shows which have "
    "engines",
    subject="engine",
)
WRONG_SHAPES = known(
    "shapes_contradict_engine",
    "fallback",
    "warning",
    "Running native segment for{engine} due to failure in verifying input shapes: {why}",
    meaning="The shapes of this request contradict what the engine op was converted for: another rank, another fixed size, or batches "
    "that differ from input to input.",
    mend="send inputs of the signature's shapes; where the model's own shapes vary, convert it with --use_dynamic_shape",
    subject="engine",
)
NOT_BUILT = known(
    "no_engine_and_no_build",
    "fallback",
    "warning",
    "Found no engine in cache matching input shapes. Not building a new engine because allow_build_at_runtime=False. The native segment "
    "will be used instead.",
    meaning="No engine was there for the shapes of this request, and the model forbids to build one while it serves.",
    mend="`tftrt build --shapes=…` with the shapes that are served builds its engines beforehand",
)
NOT_EXECUTED = known(
    "engine_not_executed",
    "fallback",
    "error",
    "Failed to execute engine: {why} Retrying with native segment for {engine}",
    "Failed to execute engine, retrying with native segment for {engine}",
    "Retrying with native segment for {engine}",
    meaning="There was an engine, it could not be run, and TensorFlow computed the request. The reason stands in the message.",
    mend="often the GPU's memory: serve fewer models at a time; else a shape outside of the engine's profiles: `tftrt build --shapes=…`",
    subject="engine",
)
NOT_ENQUEUED = known(
    "engine_not_enqueued",
    "fallback",
    "error",
    "Failed to enqueue batch for TRT engine: {engine}",
    "Failed to enqueue batch for TRT engine",
    meaning="TensorRT refused to start an engine; its own error stands before this line.",
    mend="fix what TensorRT's error names; mostly the GPU's memory, or a shape outside of the profiles",
    subject="engine",
)
IMPLICIT_BATCH = known(
    "implicit_batch_gone",
    "fallback",
    "error",
    "Failed to execute engine: {why}Implicit batch is not supported with TensorRT >=10 Retrying with native segment for {engine}",
    "Implicit batch is not supported with TensorRT >=10",
    meaning="The model was converted with an implicit batch, which ended with TensorRT 10, so TensorFlow computes what is in its engines.",
    mend="convert the original model again with --use_dynamic_shape or --shapes",
    subject="engine",
)
DISALLOWED = known(
    "fallback_refused",
    "fallback",
    "error",
    "User disallowed engine native segment execution",
    meaning="A request needed TensorFlow's own computation, and TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION=0 forbids it, so it failed.",
    mend="the warning before it says why no engine ran; that variable was set to find just this",
)
NO_NATIVE_SEGMENT = known(
    "native_segment_missing",
    "fallback",
    "error",
    "Native segment execution is enabled but  native segment is not found in the graph.",
    "Native segment execution is enabled, but native segment is not found in the graph.",
    "Native segment is required for profile generation,  but is not found in the graph.",
    "Calibration requires native segment, but is not found in the graph.",
    meaning="A request needed TensorFlow's own computation, and the model was saved without it (TF-TRT's remove_native_segments).",
    mend="convert again without that feature, or with engines for each shape that is served",
)
OUTSIDE_OF_PROFILE = known(
    "profile_does_not_fit",
    "fallback",
    "warning",
    "Binding dimension does not fit selected profile",
    meaning="The request's shape lies outside of the engine's profile, so TensorFlow computed it.",
    mend="`tftrt build --shapes=…` with that shape",
)
NO_CONTEXT = known(
    "no_context_for_profile",
    "fallback",
    "error",
    "Requested engine context with index {number}, but only {contexts} contexts are present.",
    meaning="A saved engine has fewer profiles than the model asks for: its file is of another conversion.",
    mend="`tftrt build` builds the engines of this model anew",
)

# TF-TRT's explanations of a run in TensorFlow.
REASONS = (WRONG_SHAPES, NOT_BUILT, NOT_EXECUTED, IMPLICIT_BATCH, NO_ENGINE_FITS, builds.CREATION_FAILED)
ALL = (
    NO_ENGINE_FITS,
    WRONG_SHAPES,
    NOT_BUILT,
    NOT_EXECUTED,
    NOT_ENQUEUED,
    IMPLICIT_BATCH,
    DISALLOWED,
    NO_NATIVE_SEGMENT,
    OUTSIDE_OF_PROFILE,
    NO_CONTEXT,
)
