"""Which sizes of a graph are the same, whatever their values: of two tensors, and of a shape that the graph computes.

Nothing is run. Args of all functions: tensors of a graph that `inferred.shapes` made.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of an axis of a tensor, which is not known."""

    # The tensor's name, "node:0".
    tensor: str
    axis: int


# A size: a number where it is known; None for anything else.
Dimension = int | Size | None

# Ops whose result has the shape of their first input.
_ALIKE = frozenset(
    {
        "Identity",
        "StopGradient",
        "Snapshot",
        "ZerosLike",
        "Cumsum",
        "IsNan",
        "IsInf",
        "IsFinite",
        "OnesLike",
        "Cast",
        "Relu",
        "Relu6",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Sigmoid",
        "Tanh",
        "Softplus",
        "Softsign",
        "Exp",
        "Expm1",
        "Log",
        "Log1p",
        "Sqrt",
        "Rsqrt",
        "Square",
        "Neg",
        "Abs",
        "Erf",
        "Floor",
        "Round",
        "Reciprocal",
        "LogicalNot",
        "Softmax",
        "LogSoftmax",
        "BiasAdd",
        "FusedBatchNorm",
        "FusedBatchNormV2",
        "FusedBatchNormV3",
    }
)
# Ops whose result has as many rows as their first input.
_BY_ROW = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"})
# Ops whose smaller inputs are repeated.
_BROADCAST = frozenset(
    {
        *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "Maximum", "Minimum", "SquaredDifference", "Pow"),
        *("Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr"),
        *("DivNoNan", "SelectV2"),
    }
)
# Products of matrices, whose other axes are repeated so.
_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_REDUCED = frozenset({"Mean", "Sum", "Max", "Min", "Prod", "All", "Any"})
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Maximum": max,
    "Minimum": min,
}
# Where both operands of an op have a size, it is followed in both; so often at most, because sums of sums have many ways.
_MOST_FORKS = 4
# The most steps of a computed shape that are followed.
_DEEPEST = 16


def of(tensor: tf.Tensor) -> list[Dimension] | None:
    """The sizes of a tensor, one an axis; None where its rank is not known."""
    return None if tensor.shape.rank is None else [size_of(tensor, axis) for axis in range(tensor.shape.rank)]


def size_of(tensor: tf.Tensor, axis: int, forks: int = _MOST_FORKS) -> int | Size:
    """The size of an axis, which counts from the beginning. Sizes that are equal as Python values are equal in each run of the graph."""
    while True:
        size = tensor.shape[axis]
        if size is not None:
            return int(size)
        before = _before(tensor, axis, forks)
        if before is None:
            return Size(tensor.name, axis)
        tensor, axis = before


def _before(tensor: tf.Tensor, axis: int, forks: int) -> tuple[tf.Tensor, int] | None:
    """(an input, its axis) of the same size, or None."""
    op = tensor.op
    if not op.inputs or tensor.value_index != 0:
        return None
    first = op.inputs[0]
    if op.type in _ALIKE:
        return (first, axis) if first.shape.rank is not None else None
    if op.type in _BROADCAST:
        return _of_broadcast(op, axis, forks)
    if op.type in _PRODUCTS:
        return _of_product(op, axis, forks)
    if op.type == "Einsum":
        return _of_labels(op, axis)
    if axis != 0 or first.shape.rank is None or not _keeps_rows(op):
        return None
    return first, 0


def _keeps_rows(op: tf.Operation) -> bool:
    """Whether the result of an op has as many rows as its first input."""
    if op.type in _BY_ROW:
        return True
    if op.type == "MatMul":
        return not op.get_attr("transpose_a")
    if op.type == "Transpose":
        order = _constant(op.inputs[1])
        return order is not None and order.size > 0 and order.ravel()[0] == 0
    if op.type in _REDUCED:
        axes, rank = _constant(op.inputs[1]), op.inputs[0].shape.rank
        return axes is not None and rank > 0 and not (axes.ravel() % rank == 0).any()
    if op.type in ("Pad", "PadV2", "MirrorPad"):
        sizes = _constant(op.inputs[1])
        return sizes is not None and sizes.size > 0 and not sizes[0].any()
    if op.type == "StridedSlice":
        return _slices_rows(op)
    if op.type == "Reshape":
        return _reshapes_rows(op)
    return False


def _slices_rows(op: tf.Operation) -> bool:
    """Whether a slice takes all rows, and they stay in front."""
    steps = _constant(op.inputs[3])
    if op.get_attr("ellipsis_mask") & 1:
        # It stands for the axes that nothing else names, and there may be none.
        named = 0 if steps is None else sum(not op.get_attr("new_axis_mask") >> one & 1 for one in range(1, steps.size))
        return steps is not None and named < op.inputs[0].shape.rank
    whole = op.get_attr("begin_mask") & op.get_attr("end_mask") & 1
    others = (op.get_attr("shrink_axis_mask") | op.get_attr("new_axis_mask")) & 1
    return bool(whole and not others and steps is not None and steps.size and steps[0] == 1)


def _reshapes_rows(op: tf.Operation) -> bool:
    """Whether a Reshape to [-1, …] changes no more than what is in a row."""
    shape, data = _constant(op.inputs[1]), op.inputs[0].shape
    if shape is None or data.rank == 0 or not shape.size or None in data[1:]:
        return False
    return bool(shape[0] == -1 and 0 < np.prod(shape[1:]) == np.prod(data[1:].as_list()))


def _of_broadcast(op: tf.Operation, axis: int, forks: int) -> tuple[tf.Tensor, int] | None:
    rank = op.outputs[0].shape.rank
    places = []
    for tensor in op.inputs:
        if tensor.shape.rank is None:
            return None
        own = axis - (rank - tensor.shape.rank)
        if own >= 0 and tensor.shape[own] != 1:
            places.append((tensor, own))
    if len(places) > 1 and (not forks or len({size_of(*place, forks - 1) for place in places}) > 1):
        return None
    return places[0] if places else None


def _of_product(op: tf.Operation, axis: int, forks: int) -> tuple[tf.Tensor, int] | None:
    first, second = op.inputs
    rank = op.outputs[0].shape.rank
    if first.shape.rank is None or second.shape.rank is None:
        return None
    if axis < rank - 2:
        return _of_broadcast(op, axis, forks)
    if axis == rank - 2:
        return first, first.shape.rank - 2 + op.get_attr("adj_x")
    return second, second.shape.rank - 1 - op.get_attr("adj_y")


def _of_labels(op: tf.Operation, axis: int) -> tuple[tf.Tensor, int] | None:
    """The axis of an operand with the letter of one of the result. A letter has one size."""
    operands, _, result = op.get_attr("equation").decode().replace(" ", "").partition("->")
    if "." in operands + result:
        return None
    for letters, operand in zip(operands.split(","), op.inputs, strict=True):
        if result[axis] in letters and operand.shape.rank is not None:
            return operand, letters.index(result[axis])
    return None


def of_shape(tensor: tf.Tensor, deep: int = 0) -> list[Dimension] | None:
    """The sizes in a computed shape (a vector or a single number); None where their count is not known."""
    while tensor.op.type in ("Identity", "Cast", "StopGradient"):
        tensor = tensor.op.inputs[0]
    op, constant = tensor.op, _constant(tensor)
    if constant is not None:
        return (
            [int(value) for value in constant.ravel()] if constant.ndim <= 1 and constant.dtype.kind in "iu" else None
        )
    if deep >= _DEEPEST or not tensor.dtype.is_integer:
        return None
    if op.type == "Shape":
        return of(op.inputs[0])
    if op.type in ("Pack", "ConcatV2"):
        return _joined(op, deep)
    if op.type == "StridedSlice":
        return _sliced(op, deep)
    if op.type in _ARITHMETIC:
        return _computed(op, deep)
    return None


def multiple(tensor: tf.Tensor) -> tuple[Dimension, int] | None:
    """(a size, how often it is taken) of a computed number, such as (size - 1) * 2 + 2; None for any other number."""
    found = _linear(tensor)
    return found[:2] if found is not None and found[2] == 0 else None


def _linear(tensor: tf.Tensor) -> tuple[Dimension, int, int] | None:
    """(a size, how often it is taken, what is added to that) of a computed number."""
    while tensor.op.type in ("Identity", "Cast", "StopGradient"):
        tensor = tensor.op.inputs[0]
    op = tensor.op
    if op.type in ("Mul", "Add", "AddV2", "Sub"):
        for place, other in enumerate(op.inputs[::-1]):
            number = _constant(op.inputs[place])
            # A constant less a size is no multiple of it.
            if number is None or number.size != 1 or (op.type == "Sub" and place == 0):
                continue
            before = _linear(other)
            # A Cast may go to floats and back.
            if before is None or not float(number.item()).is_integer():
                return None
            (size, times, more), given = before, int(number.item())
            if op.type == "Mul":
                return size, times * given, more * given
            return size, times, more - given if op.type == "Sub" else more + given
        return None
    sizes = of_shape(tensor)
    return (sizes[0], 1, 0) if sizes is not None and len(sizes) == 1 and tensor.shape.rank == 0 else None


def _computed(op: tf.Operation, deep: int) -> list[Dimension] | None:
    """The result of arithmetic; what is not known stays so."""
    first, second = (of_shape(tensor, deep + 1) if (tensor.shape.rank or 0) <= 1 else None for tensor in op.inputs)
    if not first or not second or (len(first) != len(second) and 1 not in (len(first), len(second))):
        return None
    count = max(len(first), len(second))
    pairs = zip(first * (count // len(first)), second * (count // len(second)), strict=True)
    return [
        int(_ARITHMETIC[op.type](one, other)) if isinstance(one, int) and isinstance(other, int) else None
        for one, other in pairs
    ]


def _joined(op: tf.Operation, deep: int) -> list[Dimension] | None:
    parts, rank = (op.inputs, 0) if op.type == "Pack" else (op.inputs[:-1], 1)
    dimensions: list[Dimension] = []
    for part in parts:
        inner = of_shape(part, deep + 1) if part.shape.rank == rank else None
        if inner is None:
            return None
        dimensions += inner
    return dimensions


def _sliced(op: tf.Operation, deep: int) -> list[Dimension] | None:
    bounds = [_constant(bound) for bound in op.inputs[1:]]
    masks = [op.get_attr(name) for name in ("begin_mask", "end_mask", "shrink_axis_mask")]
    if (
        any(bound is None or bound.size != 1 for bound in bounds)
        or op.get_attr("ellipsis_mask")
        or op.get_attr("new_axis_mask")
    ):
        return None
    values = of_shape(op.inputs[0], deep + 1) if op.inputs[0].shape.rank == 1 else None
    if values is None:
        return None
    begin, end, step = (int(bound.ravel()[0]) for bound in bounds if bound is not None)
    if masks[2] & 1:
        return [values[begin]] if -len(values) <= begin < len(values) else None
    return values[None if masks[0] & 1 else begin : None if masks[1] & 1 else end : step] if step else None


def _constant(tensor: tf.Tensor) -> npt.NDArray[Any] | None:
    value = tf.get_static_value(tensor) if tensor.op.type == "Const" else None
    return None if value is None else np.asarray(value)
