"""Which TensorRT layers TF-TRT's converters make of one TensorFlow op, in which order. Needs no GPU.

Read from TensorFlow's tf2tensorrt/convert (convert_nodes.cc, ops/*.cc) of 2.8 to 2.11, which 2.14.1 follows, and compared with the
tables of 2.14.1 with TensorRT 8.5.3 (tests/rooms/tftrt/test_tensor_names.py). Only what decides number, order and kind of layers is here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from tftrt_tools.tftrt.calibration.job.network import Dims, Network, Tensor, UnknownLayersError, Value, Weights

# TensorRT's limit on dimensions (nvinfer1::Dims::MAX_DIMS).
_MAX_DIMS = 8
# The inputs of a node: `convert` makes sure that all of them, and all of their dims, are known.
Inputs = Sequence[Value]
# The layers of one op (tf.Operation). Returns: its outputs.
Rule = Callable[[Network, tf.Operation, Inputs], Sequence[Value]]


def convert(network: Network, op: tf.Operation, inputs: Sequence[Value | None]) -> Sequence[Value]:
    """Add the layers of `op`.

    Args: op: tf.Operation; inputs: its Tensors and Weights, None for an output that its converter does not make.
    Returns: outputs, Tensors or Weights.
    """
    before = len(network.tensors)
    try:
        shaped = [value for value in inputs if value is not None and value.dims is not None]
        if len(shaped) < len(inputs):
            raise UnknownLayersError
        return _RULES.get(op.type, _unknown)(network, op, shaped)
    except UnknownLayersError:
        del network.tensors[before:]
        network.layers = None
        return [network.add_output(output) for output in op.outputs]


def _unknown(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    raise UnknownLayersError


def _static(dims: Dims) -> bool:
    return all(size >= 0 for size in dims)


def _axis(network: Network, axis: int, rank: int) -> int:
    """TensorFlow's axis as TensorRT's; rank: TensorRT's."""
    whole = rank + network.implicit
    return (axis + whole if axis < 0 else axis) - network.implicit


def _constant(op: tf.Operation, index: int) -> npt.NDArray[Any]:
    value = tf.get_static_value(op.inputs[index])
    if value is None:
        raise UnknownLayersError
    result: npt.NDArray[Any] = value
    return result


def _one(kind: str) -> Rule:
    def rule(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
        return [network.result(kind, op.outputs[0])]

    return rule


def _identity(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    return list(inputs)


def _const(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    output = op.outputs[0]
    return [Weights(tuple(output.shape), output.dtype.name, output.name)]


def _channels_first(op: tf.Operation) -> bool:
    return op.get_attr("data_format") in (b"NCHW", b"NCDHW")


def _in_channels_first(kind: str) -> Rule:
    """Layers that need the channels first, with transpositions around them if the op has them last."""

    def rule(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
        if _channels_first(op):
            return [network.result(kind, op.outputs[0])]
        rank = len(inputs[0].dims) + network.implicit
        network.transpose(inputs[0], [0, rank - 1, *range(1, rank - 1)])
        inner = network.add(
            kind, _moved(network.dims(op.outputs[0]), network.implicit), inputs[0].dtype, op.outputs[0].name
        )
        return [network.transpose(inner, [0, *range(2, rank), 1])]

    return rule


def _moved(dims: Dims, implicit: bool) -> Dims:
    """Channels-last dims as channels-first."""
    head = () if implicit else dims[:1]
    return (*head, dims[-1], *dims[len(head) : -1])


def _deconvolution(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    if not _channels_first(op):
        raise UnknownLayersError
    output = network.dims(op.outputs[0])
    sizes = inputs[2].dims[-2:]
    strides, kernel = op.get_attr("strides")[2:], inputs[1].dims[:2]
    if not _static(sizes) or not _static(output[-2:]):
        raise UnknownLayersError
    same = op.get_attr("padding") == b"SAME"
    results = [
        size * stride if same else (size - 1) * stride + width
        for size, stride, width in zip(sizes, strides, kernel, strict=True)
    ]
    if tuple(results) == output[-2:]:
        return [network.result("Deconvolution", op.outputs[0])]
    network.add("Deconvolution", (*output[:-2], *results), inputs[2].dtype)
    return [network.result("Padding", op.outputs[0])]


def _batch_norm(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    output = op.outputs[0]
    if _channels_first(op):
        return [network.result("Scale", output)]
    dims, dtype = network.dims(output), output.dtype.name
    flat = (*(1 for _ in dims[:-1]), dims[-1])
    network.add("Constant", flat, dtype)
    network.add("ElementWise", dims, dtype)
    network.add("Constant", flat, dtype)
    return [network.result("ElementWise", output)]


def _binary(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    dims = network.broadcast_dims(*inputs)
    for value, wanted in zip(inputs, dims, strict=True):
        network.shaped(value, wanted)
    return [network.result("ElementWise", op.outputs[0])]


def _select(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    """Operands of one rank, tensors or integers; what else it takes makes reshapes."""
    if len({len(value.dims) for value in inputs}) > 1 or any(
        isinstance(value, Weights) and not value.dtype.startswith("int") for value in inputs
    ):
        raise UnknownLayersError
    for value in inputs:
        network.tensor(value)
    return [network.result("Select", op.outputs[0])]


def _bias_add(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    value, bias = inputs
    if _channels_first(op):
        head = () if network.implicit else (1,)
        bias_dims = (*head, *bias.dims, *(1 for _ in value.dims[len(head) + 1 :]))
        dims = value.dims
    else:
        dims, bias_dims = network.broadcast_dims(value, bias)
    network.shaped(value, dims)
    network.shaped(bias, bias_dims)
    return [network.result("ElementWise", op.outputs[0])]


def _square(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    network.add("Constant", tuple(1 for _ in inputs[0].dims), inputs[0].dtype)
    return [network.result("ElementWise", op.outputs[0])]


def _squared_difference(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    for value, dims in zip(inputs, network.broadcast_dims(*inputs), strict=True):
        network.shaped(value, dims)
    network.add("ElementWise", network.dims(op.outputs[0]), op.outputs[0].dtype.name)
    return [network.result("ElementWise", op.outputs[0])]


def _rsqrt(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    network.add("Unary", inputs[0].dims, inputs[0].dtype)
    return [network.result("Unary", op.outputs[0])]


def _add_n(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    dims, dtype = network.dims(op.outputs[0]), op.outputs[0].dtype.name
    for value in inputs:
        network.tensor(value)
    for _ in inputs[2:]:
        network.add("ElementWise", dims, dtype)
    return [network.result("ElementWise", op.outputs[0])]


def _mat_mul(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    return [_product(network, op, inputs[0], inputs[1], op.get_attr("transpose_a"))]


def _batch_mat_mul(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    dims = network.broadcast_dims(*inputs)
    operands = [_broadcast_operand(network, value, wanted) for value, wanted in zip(inputs, dims, strict=True)]
    return [_product(network, op, operands[0], operands[1], op.get_attr("adj_x"))]


def _broadcast_operand(network: Network, value: Value, dims: Dims) -> Value:
    if isinstance(value, Weights):
        return dataclasses.replace(value, dims=dims)
    if sum(size == -1 for size in dims) <= 1:
        return network.shaped(value, dims)
    if len(dims) > len(value.dims):
        return network.reshaped_dynamically(value, dims, 1, (len(dims) - len(value.dims),))
    return value


def _product(network: Network, op: tf.Operation, left: Value, right: Value, transposed: bool) -> Tensor:
    """A fully connected layer between two reshapes where the right side is one constant matrix, else a matrix product."""
    output = op.outputs[0]
    if (
        not transposed
        and isinstance(left, Tensor)
        and isinstance(right, Weights)
        and _fits_fully_connected(network, left, right)
    ):
        network.shaped(left, (*(0 for _ in left.dims), 1, 1))
        # TF-TRT notices a batch of matrices only here, so the reshape stays in the network.
        if all(size == 1 for size in right.dims[:-2]):
            inner = network.add("Fully Connected", (*network.dims(output), 1, 1), output.dtype.name, output.name)
            return network.shaped(inner, tuple(0 for _ in network.dims(output)))
    network.tensor(left)
    network.tensor(right)
    return network.result("Matrix Multiply", output)


def _fits_fully_connected(network: Network, left: Tensor, right: Weights) -> bool:
    if not network.implicit and len(right.dims) > 2 and right.dims[0] != 1:
        return False
    return left.dims[-1] != -1 and len(left.dims) + 2 <= _MAX_DIMS


def _transpose(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    return [network.result("Shuffle", op.outputs[0])]


def _shape(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    # The number of sizes is known even if the sizes are not, so a slice of them needs no arithmetic of its own.
    dims = inputs[0].dims
    layer = network.add("Constant" if _static(dims) else "Shape", (len(dims) + network.implicit,), "int32")
    layer.sizes = None if network.implicit else dims
    return [layer]


def _sizes(op: tf.Operation, index: int, value: Value) -> Dims | None:
    """The known content of an input that holds sizes, as Tensor.sizes."""
    if isinstance(value, Tensor):
        return value.sizes
    constant = tf.get_static_value(op.inputs[index])
    if constant is None or constant.dtype.kind != "i" or constant.ndim > 1 or constant.size > _MAX_DIMS:
        return None
    return tuple(int(size) for size in constant.ravel())


def _joined(op: tf.Operation, inputs: Inputs) -> Dims | None:
    """The sizes of several inputs one after another."""
    parts: list[Dims | Any] = [_sizes(op, index, value) for index, value in enumerate(inputs)]
    return None if None in parts else tuple(size for part in parts for size in part)


def _reshape(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    value, shape = inputs
    if isinstance(shape, Tensor):
        layer = network.result("Shuffle", op.outputs[0])
        if shape.sizes and len(shape.sizes) == len(layer.dims):
            # TensorRT follows sizes through their arithmetic further than TensorFlow does (the same line).
            layer.dims = tuple(
                inferred_size if size == -1 else size
                for size, inferred_size in zip(layer.dims, shape.sizes, strict=True)
            )
        return [layer]
    sizes = tuple(int(size) for size in _constant(op, 1))
    if network.implicit:
        sizes = sizes[1:]
    if sizes == value.dims:
        return [value]
    return [network.result("Shuffle", op.outputs[0])]


def _expand_dims(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    axis = _axis(network, int(_constant(op, 1)), len(inputs[0].dims) + 1)
    return [_expanded(network, inputs[0], axis)]


def _expanded(network: Network, value: Value, axis: int) -> Tensor:
    dims = (*value.dims[:axis], 1, *value.dims[axis:])
    if network.implicit or _static(value.dims):
        return network.shaped(value, dims)
    slices = (axis != 0) + (axis != len(value.dims))
    return network.reshaped_dynamically(value, dims, slices, (-1, 1) if axis else (1,))


def _squeeze(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    value, rank = inputs[0], len(inputs[0].dims)
    axes = {_axis(network, axis, rank) for axis in op.get_attr("squeeze_dims")}
    axes = axes or {axis for axis, size in enumerate(value.dims) if size == 1}
    return [_without_axes(network, value, tuple(size for axis, size in enumerate(value.dims) if axis not in axes))]


def _without_axes(network: Network, value: Value, dims: Dims) -> Tensor:
    """`value` without some axes of size 1; dims: the remaining ones."""
    if network.implicit or _static(dims):
        return network.shaped(value, dims)
    return network.reshaped_dynamically(value, dims, len(dims))


def _pack(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    # TF-TRT takes the dims of the last input that is static, else of the first.
    chosen = inputs[0].dims
    for value in inputs[1:]:
        chosen = value.dims if _static(value.dims) else chosen
    axis = _axis(network, op.get_attr("axis"), len(chosen) + 1)
    expanded = []
    for value in inputs:
        if isinstance(value, Tensor) and not network.implicit and not _static(chosen):
            expanded.append(_expanded(network, value, axis))
        else:
            expanded.append(network.shaped(value, (*chosen[:axis], 1, *chosen[axis:])))
    if len(inputs) > 1:
        expanded = [network.result("Concatenation", op.outputs[0])]
    if chosen == ():
        expanded[0].sizes = _joined(op, inputs)
    return expanded


def _concat(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    for value in inputs[:-1]:
        network.tensor(value)
    layer = network.result("Concatenation", op.outputs[0])
    if len(layer.dims) == 1:
        layer.sizes = _joined(op, inputs[:-1])
    return [layer]


def _product_of_sizes(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    layer = network.result("Reduce", op.outputs[0])
    sizes = _sizes(op, 0, inputs[0])
    if sizes is not None:
        layer.sizes = (-1 if -1 in sizes else math.prod(sizes),)
    return [layer]


def _without_ranges_of_constants(network: Network, values: Inputs) -> None:
    """`values` as tensors: a constant gets its layer, but no line in a table."""
    for value in values:
        tensor = network.tensor(value)
        if isinstance(value, Weights):
            tensor.listed = False


def _gather(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    _without_ranges_of_constants(network, inputs[:2])
    if not network.implicit or isinstance(inputs[0], Tensor) != isinstance(inputs[1], Tensor):
        layer = network.result("Gather", op.outputs[0])
        sizes, indices = (_sizes(op, index, value) for index, value in enumerate(inputs[:2]))
        if sizes is not None and indices is not None and isinstance(inputs[1], Weights):
            layer.sizes = _picked(sizes, indices)
        return [layer]
    network.add("Gather", (), inputs[0].dtype, op.outputs[0].name)
    return [network.result("Shuffle", op.outputs[0])]


def _pad(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    amounts = _constant(op, 1)
    rank = len(amounts)
    padded = [axis for axis, (before, after) in enumerate(amounts) if before or after]
    if not padded:
        return [inputs[0]]
    if len(padded) > 2:
        raise UnknownLayersError
    # TensorRT pads the last two axes only.
    places = [rank - 2, rank - 1]
    if padded == [rank - 1] or (len(padded) == 2 and padded[1] == rank - 2):
        places.reverse()
    swaps = [(axis, place) for axis, place in zip(padded, places, strict=False) if axis != place]
    if not swaps:
        return [network.result("Padding", op.outputs[0])]
    order = list(range(rank))
    for axis, place in swaps:
        order[axis], order[place] = order[place], order[axis]
    network.transpose(inputs[0], order)
    inner = network.add("Padding", (-1,) * len(inputs[0].dims), inputs[0].dtype, op.outputs[0].name)
    return [network.transpose(inner, order)]


def _split(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    return [network.result("Slice", output) for output in op.outputs]


def _unpack(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    if not _static(inputs[0].dims):
        raise UnknownLayersError
    outputs = []
    for output in op.outputs:
        network.add("Slice", (), output.dtype.name, output.name)
        outputs.append(network.result("Shuffle", output))
    return outputs


def _slice(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    begin, size = _constant(op, 1), _constant(op, 2)
    return [
        _sliced(
            network, op, inputs[0], set(), {axis for axis, length in enumerate(size) if length == -1}, [1] * len(begin)
        )
    ]


def _strided_slice(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    strides = [int(stride) for stride in _constant(op, 3)]
    _constant(op, 1), _constant(op, 2)
    rank = len(inputs[0].dims) + network.implicit
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "shrink_axis")}
    begin: set[int] = set()
    end: set[int] = set()
    dense: list[int] = []
    for index, stride in enumerate(strides):
        if masks["ellipsis"] >> index & 1:
            skipped = rank - len(strides) + 1
            begin.update(range(len(dense), len(dense) + skipped))
            end.update(range(len(dense), len(dense) + skipped))
            dense += [1] * skipped
            continue
        if masks["begin"] >> index & 1:
            begin.add(len(dense))
        if masks["end"] >> index & 1:
            end.add(len(dense))
        dense.append(stride)
    begin.update(range(len(dense), rank))
    end.update(range(len(dense), rank))
    dense += [1] * (rank - len(dense))
    output = _sliced(network, op, inputs[0], begin, end, dense)
    if masks["shrink_axis"]:
        output = _without_axes(network, output, network.dims(op.outputs[0]))
    sizes = _sizes(op, 0, inputs[0])
    if sizes is not None and len(strides) == 1 and not masks["ellipsis"]:
        output.sizes = _of_slice(op, sizes, masks)
    return [output]


def _picked(sizes: Dims, indices: Dims) -> Dims | None:
    """Some of the sizes; None if an index is out of range, which makes the op fail when it runs."""
    if any(not -len(sizes) <= index < len(sizes) for index in indices):
        return None
    return tuple(sizes[index] for index in indices)


def _of_slice(op: tf.Operation, sizes: Dims, masks: Mapping[str, int]) -> Dims | None:
    begin, end, stride = (int(_constant(op, index)[0]) for index in (1, 2, 3))
    if masks["shrink_axis"]:
        return _picked(sizes, (begin,))
    return sizes[slice(None if masks["begin"] else begin, None if masks["end"] else end, stride)]


def _sliced(
    network: Network,
    op: tf.Operation,
    value: Value,
    begin: AbstractSet[int],
    end: AbstractSet[int],
    strides: Sequence[int],
) -> Tensor:
    """A slice; axes of unknown size need arithmetic on shapes. begin, end: axes without a given begin or end."""
    unknown = [axis for axis, size in enumerate(value.dims) if size == -1]
    shrinks = op.type == "StridedSlice" and op.get_attr("shrink_axis_mask")
    # The slice itself keeps the rank; a reshape follows it.
    dims = tuple(-1 for _ in value.dims) if shrinks else network.dims(op.outputs[0])
    output = network.add("Slice", dims, value.dtype, op.outputs[0].name)
    if network.implicit or not unknown:
        return output
    network.shapes("Constant", "Constant", "Constant")
    if any(axis in end and strides[axis] > 0 for axis in unknown):
        network.shapes("Shape", "Constant", "Constant", "Concatenation", "Gather", "ElementWise")
    if any(axis in begin and strides[axis] < 0 for axis in unknown):
        network.shapes(
            "Shape", "Constant", "ElementWise", "Constant", "Constant", "Concatenation", "Gather", "ElementWise"
        )
    magnitude = ("Constant", "Constant", "ElementWise", "ElementWise", "ElementWise")
    network.shapes("ElementWise", *magnitude, *magnitude, "ElementWise", "Constant", "ElementWise", "ElementWise")
    return output


def _resize(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    inner = network.transpose(inputs[0], [0, 3, 1, 2])
    constant = isinstance(inputs[1], Weights)
    if not constant or not _static(inner.dims):
        network.shapes("Shape", "Slice", "Slice", *(["Constant"] * 2 if constant else ["Slice"] * 2), "Concatenation")
    resized = network.add(
        "Resize", _moved(network.dims(op.outputs[0]), network.implicit), inputs[0].dtype, op.outputs[0].name
    )
    return [network.transpose(resized, [0, 2, 3, 1])]


def _depth_space(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    if not _static(inputs[0].dims):
        raise UnknownLayersError
    network.add("Shuffle", (), inputs[0].dtype, inputs[0].source)
    return [network.result("Shuffle", op.outputs[0])]


def _einsum(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    # TensorRT makes products and transpositions of it, and merges those of one with its constants' and with the next one's.
    _without_ranges_of_constants(network, inputs)
    layer = network.result("Einsum", op.outputs[0])
    layer.listed = any(reader.type != "Einsum" for reader in op.outputs[0].consumers())
    return [layer]


def _top_k(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    first = network.result("TopK", op.outputs[0])
    return [first, network.add_output(op.outputs[1])]


def _fill(network: Network, op: tf.Operation, inputs: Inputs) -> Sequence[Value]:
    value = inputs[1]
    scalar = network.add("Constant" if isinstance(value, Weights) else "Shuffle", (), value.dtype, value.source)
    scalar.listed = False
    network.add("Constant", (-1,), value.dtype)
    return [network.result("Fill", op.outputs[0])]


_RULES: dict[str, Rule] = {
    "Const": _const,
    **dict.fromkeys(("Identity", "IdentityN", "Snapshot", "StopGradient"), _identity),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative", "Conv3D"), _in_channels_first("Convolution")),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _in_channels_first("Pooling")),
    "Conv2DBackpropInput": _deconvolution,
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch_norm),
    **dict.fromkeys(
        ("Relu", "Relu6", "Sigmoid", "Tanh", "Elu", "Selu", "Softsign", "Softplus", "LeakyRelu", "ClipByValue"),
        _one("Activation"),
    ),
    **dict.fromkeys(
        (
            "Exp",
            "Log",
            "Sqrt",
            "Reciprocal",
            "Abs",
            "Neg",
            "Sin",
            "Cos",
            "Tan",
            "Sinh",
            "Cosh",
            "Asin",
            "Acos",
            "Atan",
            "Asinh",
            "Acosh",
            "Atanh",
            "Ceil",
            "Floor",
            "Erf",
            "Round",
            "Sign",
        ),
        _one("Unary"),
    ),
    "Rsqrt": _rsqrt,
    **dict.fromkeys(("Add", "AddV2", "Mul", "Sub", "Div", "FloorDiv", "RealDiv", "Minimum", "Maximum", "Pow"), _binary),
    **dict.fromkeys(("Less", "Greater", "Equal"), _binary),
    **dict.fromkeys(("Select", "SelectV2"), _select),
    "BiasAdd": _bias_add,
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "AddN": _add_n,
    "MatMul": _mat_mul,
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2"), _batch_mat_mul),
    **dict.fromkeys(("Sum", "Max", "Min", "Mean"), _one("Reduce")),
    "Prod": _product_of_sizes,
    "Softmax": _one("Softmax"),
    "Transpose": _transpose,
    "Shape": _shape,
    "Reshape": _reshape,
    "ExpandDims": _expand_dims,
    "Squeeze": _squeeze,
    "Pack": _pack,
    "ConcatV2": _concat,
    "GatherV2": _gather,
    "Pad": _pad,
    "Split": _split,
    "Unpack": _unpack,
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor"), _resize),
    "TopKV2": _top_k,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _depth_space),
    "Einsum": _einsum,
    "Cast": _one("Identity"),
    "Fill": _fill,
}
