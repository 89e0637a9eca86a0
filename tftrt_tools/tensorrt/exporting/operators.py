"""The ops that TensorRT's ONNX parsers take, with the types that they take them in.

Read from docs/operators.md of github.com/onnx/onnx-tensorrt, the column "Supported" and the column "Supported Types":

  TensorRT 8.5   tag release/8.5-GA (3b008c4), which has an importer for HardSwish, Mod and OneHot too: the list names them since
                 89aa4ac and 6d0ab7b, of the same week
  TensorRT 10.1  tag release/10.1-GA (96e7811)

An op of the list may still be refused for its attributes: `parser` has the restrictions that are known here.
"""

from __future__ import annotations

from collections.abc import Mapping


def _by_op(groups: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """{op: types}. Args: groups: {types: ops}, words each."""
    return {op: frozenset(types.split()) for types, ops in groups.items() for op in ops.split()}


# {op: types that the list names}.
OPS_8_5 = _by_op(
    {
        "FP32 FP16": "Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh BatchNormalization Ceil Celu Cos Cosh CumSum Dropout Einsum Erf Exp Floor "
        "GRU GridSample ImageScaler InstanceNormalization LRN LSTM Log LogSoftmax LpNormalization MatMul "
        "MeanVarianceNormalization NonMaxSuppression NonZero Pow QuantizeLinear RNN RandomNormal RandomNormalLike RandomUniform "
        "RandomUniformLike Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare Resize ReverseSequence RoiAlign Scan Sin Sinh Softmax Sqrt Tan TopK Upsample",
        "FP32 FP16 INT8": "Clip Conv ConvTranspose Elu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool HardSigmoid HardSwish LeakyRelu LpPool "
        "MaxPool PRelu ParametricSoftplus Relu Round ScaledTanh Selu Sigmoid Softplus Softsign Tanh ThresholdedRelu",
        "FP32 FP16 INT32": "Abs Add DepthToSpace Div Equal Greater GreaterOrEqual IsNaN Less LessOrEqual Max Mean Min Mod Mul Neg Range Shrink "
        "SpaceToDepth Sub Sum",
        "FP32 FP16 INT8 INT32 BOOL": "Cast Concat Constant Gather GatherElements GatherND Identity Reshape Shape Size Slice Squeeze Transpose Trilu Unsqueeze",
        "FP32 FP16 INT32 BOOL": "Expand EyeLike Flatten If Loop OneHot Split Tile Where",
        "FP32 FP16 INT8 INT32": "AveragePool Pad Scatter ScatterElements ScatterND Sign",
        "BOOL": "And Not Or Xor",
        "FP32": "ConstantOfShape",
        "INT8": "DequantizeLinear",
    }
)

# As OPS_8_5.
OPS_10_1 = _by_op(
    {
        "FP32 FP16 BF16": "Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv ConvTranspose Cos Cosh CumSum "
        "Dropout Einsum Elu Erf Exp Floor GRU Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization HardSigmoid "
        "HardSwish Hardmax ImageScaler InstanceNormalization IsInf LRN LSTM LayerNormalization LeakyRelu Log LogSoftmax "
        "LpNormalization LpPool MatMul MaxPool MeanVarianceNormalization PRelu ParametricSoftplus Pow QuantizeLinear RNN "
        "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal Resize Round ScaledTanh Scan Selu Sigmoid Sin "
        "Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Upsample",
        "FP32 FP16 BF16 INT32 INT64": "Abs Add ArgMax ArgMin DepthToSpace Div Equal Greater GreaterOrEqual IsNaN Less LessOrEqual Max Min Mod Mul Neg Pad Range "
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu "
        "Scatter ScatterElements ScatterND Shrink Sign SpaceToDepth Sub Sum TopK",
        "FP32 FP16 BF16 INT32 INT64 BOOL": "Concat Constant ConstantOfShape Expand EyeLike Flatten Gather GatherElements GatherND Identity If Loop OneHot Reshape "
        "ReverseSequence Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where",
        "FP32 FP16": "DeformConv GridSample Mish NonMaxSuppression NonZero RoiAlign",
        "BOOL": "And Not Or Xor",
        "FP32 FP16 BF16 UINT8 INT32 INT64 BOOL": "Cast CastLike",
        "FP32 FP16 BF16 FP8 INT32 INT64": "Mean",
        "FP32 FP16 BF16 INT8 INT32 INT64": "Gelu",
        "FP8 INT4 INT8": "DequantizeLinear",
    }
)
