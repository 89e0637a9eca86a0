"""INT8: calibration that failed or has not ended, and tensors without a range."""

from tftrt_tools.base.logs.message import known

_RANGES = "`tftrt calibrate` makes a table for all tensors; `tftrt table` shows and edits it"

FAILED = known(
    "calibration_failed",
    "calibration",
    "error",
    "Calibration failed: {reason}",
    "Building FP32 calibration engine failed",
    "Calibration failure occurred with no scaling factors detected",
    "Init calibration params failed",
    meaning="TensorRT's calibration ended without a table, so there is no INT8 engine.",
    mend="fix what the reason and TensorRT's errors before it name; `tftrt calibrate` needs no GPU and no TensorRT",
)
NOT_FED = known(
    "calibration_not_fed",
    "calibration",
    "error",
    "Failed to feed calibration data",
    meaning="Calibration had ended, mostly by an error, when the next batch came.",
    mend="the error before it says why",
)
NOT_KEPT = known(
    "calibration_not_kept",
    "calibration",
    "error",
    "Warning calibration error for {engine}",
    "Calibration table is empty",
    meaning="No table was kept for this engine. Its op stays in calibration for ever: TensorFlow computes every request.",
    mend="calibrate again, and `tftrt inspect` that each INT8 engine has its table",
    subject="engine",
)
NO_RANGE = known(
    "tensor_without_range",
    "calibration",
    "warning",
    "Missing scale and zero-point for tensor {tensor}, expect fall back to non-int8 implementation for any layer consuming or producing "
    "given tensor",
    "Missing scale and zero-point for tensor {tensor}, expect fall back",
    "Missing dynamic range for tensor {tensor}, expect fall back",
    meaning="This tensor has no range, so the layers around it are not in INT8. TF-TRT hides this line; "
    "TF_TRT_EXPERIMENTAL_FEATURES=disable_logger_filtering shows it.",
    mend=_RANGES,
    subject="tensor",
)
REJECTED = known(
    "layer_not_int8",
    "calibration",
    "note",
    "Rejecting some int8 implementation of layer {layer} due to missing int8 scales for tensor {tensor} at ",
    meaning="TensorRT did not consider INT8 for a layer, because a tensor beside it has no range.",
    mend=_RANGES,
    subject="layer",
)
RANGE = known(
    "range_taken",
    "calibration",
    "note",
    "INT8 Inference Tensor scales and zero-points: {tensor} scale and zero-point",
    meaning="The range that TensorRT takes for a tensor.",
    subject="tensor",
)
RANGE_NOT_FOUND = known(
    "range_not_given",
    "calibration",
    "note",
    "Quantization range was not found for {tensor}. {why}",
    meaning="TF-TRT has no range for a tensor. That is right where TensorRT fuses it away.",
    subject="tensor",
)
NO_CALIBRATOR = known(
    "no_calibrator",
    "calibration",
    "warning",
    "Calibrator is not being used. Users must provide dynamic range for all tensors that are not Int32 or Bool",
    "Int8 mode specified but no calibrator specified",
    meaning="INT8 without calibration: only tensors that have a range are in INT8.",
    mend="give ranges: --calibration_table or --calibration_data; a quantization-aware model brings its own",
)
NOT_USED = known(
    "calibrator_not_used",
    "calibration",
    "note",
    "Calibrator won't be used in explicit precision mode",
    meaning="The network has Q/DQ nodes, whose scales count; a table is not used.",
)
OTHER_TABLE = known(
    "table_of_other_calibrator",
    "calibration",
    "error",
    "Calibration table does not match calibrator algorithm type",
    "Calibration table does not match",
    "Could not parse the following line from the calibration cache",
    meaning="The calibration table is of another TensorRT or calibrator, or damaged.",
    mend="make it again: `tftrt calibrate`",
)
CACHED = known(
    "table_reused",
    "calibration",
    "note",
    "Generated calibration scales using calibration cache",
    "Reading Calibration Cache for calibrator: {calibrator}",
    meaning="The scales come from a kept table, not from data of this run.",
    mend="delete the table if the model has changed since",
)
NOT_IN_EXPLICIT = known(
    "calibration_refused",
    "calibration",
    "error",
    "Explicit batch mode does not support calibration",
    "Explicit precision mode with calibration or FP32/FP16 mode is not supported",
    "Calibration with FP32 or FP16 is not supported",
    "Calibration with FP32 or FP16 is not implemented",
    meaning="This mode of TF-TRT takes no calibration.",
    mend="`tftrt convert --precision=INT8` sets what goes together",
)
BATCH_SKIPPED = known(
    "calibration_batch_skipped",
    "calibration",
    "warning",
    "skipping calibration for this input",
    meaning="A batch of calibration had another size than the first one, and was not used.",
    mend="give all batches one size",
)
PROFILE = known(
    "calibration_without_profile",
    "calibration",
    "warning",
    "Calibration Profile is not defined. Calibrating with Profile 0",
    "Calibration profile is not valid",
    "Failed to add calibration optimization profile {profile}",
    meaning="Calibration runs at the first profile's shape, not at one of its own.",
)
NEEDS_FLAG = known(
    "int8_not_enabled",
    "calibration",
    "error",
    "INT8 mode needs to be enabled for networks with QuantizeLayer/DequantizeLayer layers",
    "Int8 precision has been set for a layer or layer output, but int8 is not configured in the builder",
    meaning="The network has Q/DQ nodes, and the build is not told to use INT8.",
    mend="--precision=INT8; trtexec: --int8",
)

ALL = (
    FAILED,
    NOT_FED,
    NOT_KEPT,
    NO_RANGE,
    REJECTED,
    RANGE,
    RANGE_NOT_FOUND,
    NO_CALIBRATOR,
    NOT_USED,
    OTHER_TABLE,
    CACHED,
    NOT_IN_EXPLICIT,
    BATCH_SKIPPED,
    PROFILE,
    NEEDS_FLAG,
)
