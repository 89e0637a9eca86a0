"""Values that change with the precision: weights beyond FP16, layers that are sensitive, types that TensorRT narrows."""

from tftrt_tools.base.logs.message import known

_FP32 = "keep its node in FP32: `tftrt convert --fp32_nodes=…`, then `tftrt verify`; `tftrt sensitivity` finds the nodes that hurt"
_VERIFY = "`tftrt verify` on the GPU tells whether it matters"

OVERFLOW = known(
    "weights_overflow_fp16",
    "precision",
    "error",
    "Detected finite FP32 values which would overflow in FP16",
    "Finite FP32 values which would overflow in FP16 detected",
    meaning="Weights are larger than FP16 can hold (65504), and were cut to its largest value: the answers may be wrong "
    "(a mask of 1e30 works).",
    mend=_FP32,
)
INFINITE = known(
    "weights_not_finite",
    "precision",
    "error",
    "Detected FP32 infinity values and converted them",
    "Detected NaN values and converted them",
    meaning="The model itself has infinite weights, or NaN.",
    mend="fix the model: its weights are spoiled",
)
SUBNORMAL = known(
    "weights_subnormal_fp16",
    "precision",
    "note",
    "Detected subnormal FP16 values",
    "Subnormal FP16 values detected",
    "Detected values less than smallest positive FP16 subnormal value",
    "Values less than smallest positive FP16 Subnormal value detected",
    meaning="Weights are so near to zero that FP16 rounds them coarsely, or to zero. Most networks do not mind.",
    mend=_VERIFY,
)
CONVERTED = known(
    "weights_changed",
    "precision",
    "note",
    "TensorRT encountered issues when converting weights between types and that could affect accuracy",
    "Weights [name={layer}] had the following issues when converted to FP16",
    meaning="TensorRT's heading for what happened to weights; the lines behind it say what.",
    subject="layer",
)
ADVICE = known(
    "weights_advice",
    "precision",
    "note",
    "If this is not the desired behavior, please modify the weights or retrain with regularization",
    "Check verbose logs for the list of affected weights",
    meaning="TensorRT's advice behind a warning about weights.",
)
CLIPPED = known(
    "weights_clipped_int8",
    "precision",
    "warning",
    "Detected values which are outside of int8_t range and clipped them",
    meaning="Quantized weights lie outside of INT8 and were cut.",
    mend="check the scales: `tftrt table`",
)
LAYERNORM = known(
    "layernorm_in_fp16",
    "precision",
    "error",
    "Running layernorm after self-attention in FP16 may cause overflow",
    "Running layernorm after self-attention with FP16 Reduce or Pow may cause overflow",
    "Detected layernorm nodes in FP16",
    meaning="A layer normalization computes in FP16, where its squares overflow: a known cause of wrong answers in Transformers.",
    mend=_FP32,
)
NO_FP16 = known(
    "gpu_without_fp16",
    "precision",
    "warning",
    "FP16 support requested on hardware without native FP16 support",
    "Half2 support requested on hardware without native FP16 support",
    "Int8 support requested on hardware without native Int8 support",
    meaning="This GPU has no units for that precision: it will not be faster.",
    mend="FP32 on this GPU",
)
MISSING_QDQ = known(
    "qdq_missing",
    "precision",
    "warning",
    "Set engine precision to FP16 due to missing QDQ OP",
    meaning="INT8 was asked for and this segment has no quantization nodes: it computes in FP16.",
)
SET_TO_INT8 = known(
    "set_to_int8",
    "precision",
    "warning",
    "Setting precision mode to INT8 and calibration to false",
    "[TF-TRT] Using explicit QDQ mode",
    meaning="The model has quantization nodes, so TF-TRT builds it in INT8, whatever was asked for.",
)
INT64 = known(
    "int64_narrowed",
    "precision",
    "note",
    "Your ONNX model has been generated with INT64 weights, while TensorRT does not natively support INT64",
    meaning="TensorRT computes with 32-bit integers. That is right as long as no value needs more.",
)
CLAMPED = known(
    "int64_cut",
    "precision",
    "warning",
    "One or more weights outside the range of INT32 was clamped",
    meaning='An integer of the model does not fit into 32 bits, and was cut. Often it only means "to the end", and all is well.',
    mend="compare the answers with the original's",
)
NARROW = known(
    "quantization_differs",
    "precision",
    "warning",
    "has narrow_range=true, but for TensorRT conversion, narrow_range=false is recommended",
    "for TensorRT conversion, round_mode=HALF_TO_EVEN is recommended",
    meaning="The model was quantized by another rule than TensorRT rounds by: small differences.",
    mend=_VERIFY,
)
NO_INT8_ALTERNATIVE = known(
    "no_int8_for_layer",
    "precision",
    "warning",
    "No non-int8 implementation of layer {layer}",
    "points to the node being incorrectly marked as an int8 node",
    meaning="A layer exists in INT8 alone, or must not be in it.",
    mend=_FP32,
)
NOT_TAKEN = known(
    "precision_not_taken",
    "precision",
    "note",
    "For layer {layer} a non-conforming implementation was chosen than was requested",
    meaning="TensorRT computes a layer in another precision than it was asked for, because that was faster.",
    subject="layer",
)
TF32 = known(
    "tf32_off",
    "precision",
    "note",
    "Environment variable NVIDIA_TF32_OVERRIDE=0 but ",
    meaning="TF32 is switched off by a variable.",
)
TYPE = known(
    "type_set_by_tensorrt",
    "precision",
    "note",
    "Tensor DataType is determined at build time for tensors not marked as input or output",
    meaning="TF-TRT sets a type that TensorRT chooses itself.",
)

# What happened to weights.
OF_WEIGHTS = (OVERFLOW, INFINITE, SUBNORMAL, CLIPPED)
ALL = (
    OVERFLOW,
    INFINITE,
    SUBNORMAL,
    CONVERTED,
    ADVICE,
    CLIPPED,
    LAYERNORM,
    NO_FP16,
    MISSING_QDQ,
    SET_TO_INT8,
    INT64,
    CLAMPED,
    NARROW,
    NO_INT8_ALTERNATIVE,
    NOT_TAKEN,
    TF32,
    TYPE,
)
