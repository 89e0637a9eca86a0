"""Einsum of two operands as one MatMul.

tf2onnx 1.17.0 takes an Einsum apart by the shapes that its operands have at run time: Keras' MultiHeadAttention becomes about 90 nodes,
most of them sizes, and attention is a product of three dimensions there. Here a product with weights is a MatMul and a Reshape to constant
sizes, and a product of two tensors keeps its dimensions: that of queries and keys has four.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tf2onnx.graph import Graph, Node
from tf2onnx.onnx_opset.math import Einsum

from tftrt_tools.models.savedmodel.job import equation as equations
from tftrt_tools.models.savedmodel.job.equation import Equation
from tftrt_tools.tensorrt.exporting.job.rewrites.replaced import FLOAT, Replaced


def parsed(text: str) -> Equation | None:
    """As equation.parsed; None, too, where an operand has no letter of its own."""
    found = equations.parsed(text)
    return found if found and found.left and found.right else None


def write(graph: Graph, node: Node) -> bool:
    """Write an Einsum node of tf2onnx's graph otherwise, or leave it to tf2onnx. Returns: whether it was written."""
    equation = parsed(node.get_attr_value("equation").decode())
    weights = (
        node.inputs[1].get_tensor_value(as_list=False) if len(node.input) == 2 and node.inputs[1].is_const() else None
    )
    if equation is None or graph.get_dtype(node.output[0]) != FLOAT or len(node.input) != 2:
        Einsum.version_12(graph, node)
        return False
    if not equation.batch and weights is not None:
        _with_weights(graph, node, equation, weights)
        return True
    if equation.batch and len(equation.left) == len(equation.right) == len(equation.summed) == 1:
        _of_tensors(graph, node, equation)
        return True
    Einsum.version_12(graph, node)
    return False


def _with_weights(graph: Graph, node: Node, equation: Equation, weights: npt.NDArray[Any]) -> None:
    """[left…, summed…] times [summed, right]."""
    sizes = dict(zip(equation.second, weights.shape, strict=True))
    right = [sizes[one] for one in equation.right]
    known = _sizes(graph, node.input[0], equation.first)
    matrix = np.transpose(weights, [equation.second.index(one) for one in equation.summed + equation.right])
    matrix = matrix.reshape(math.prod(sizes[one] for one in equation.summed), math.prod(right))
    tensor, one = node.input[0], Replaced(graph, node)
    tensor = _transposed(one, tensor, equation.first, equation.left + equation.summed, known)
    left = [known.get(letter, -1) for letter in equation.left]
    if len(equation.summed) > 1:
        tensor = one.make(
            "Reshape", [tensor, one.constant([0] * len(left) + [matrix.shape[0]])], shape=[*left, matrix.shape[0]]
        )
    product, form = [tensor, one.constant(matrix)], equation.left + equation.right
    if form == equation.result and len(right) == 1:
        one.give("MatMul", product)
        return
    tensor = one.make("MatMul", product, shape=[*left, matrix.shape[1]])
    if len(right) > 1:
        sizes_of = one.constant([0] * len(left) + right)
        if form == equation.result:
            one.give("Reshape", [tensor, sizes_of])
            return
        tensor = one.make("Reshape", [tensor, sizes_of], shape=[*left, *right])
    one.give("Transpose", [tensor], {"perm": [form.index(letter) for letter in equation.result]})


def _of_tensors(graph: Graph, node: Node, equation: Equation) -> None:
    """[batch…, left, summed] times [batch…, summed, right]; the operands change places if the result then needs no Transpose."""
    first, second = node.input
    if equation.result.endswith(equation.right + equation.left):
        first, second, equation = second, first, equation.turned()
    known = {**_sizes(graph, first, equation.first), **_sizes(graph, second, equation.second)}
    one = Replaced(graph, node)
    operands = [
        _transposed(one, first, equation.first, equation.batch + equation.left + equation.summed, known),
        _transposed(one, second, equation.second, equation.batch + equation.summed + equation.right, known),
    ]
    form = equation.batch + equation.left + equation.right
    if form == equation.result:
        one.give("MatMul", operands)
        return
    product = one.make("MatMul", operands, shape=[known.get(letter, -1) for letter in form])
    one.give("Transpose", [product], {"perm": [form.index(letter) for letter in equation.result]})


def _sizes(graph: Graph, tensor: str, letters: str) -> dict[str, int]:
    """{letter: its size, -1 for an open one}."""
    shape: Sequence[int] | None = graph.get_shape(tensor)
    return dict(zip(letters, shape, strict=True)) if shape is not None and len(shape) == len(letters) else {}


def _transposed(one: Replaced, tensor: str, there: str, wanted: str, known: dict[str, int]) -> str:
    """A tensor with its dimensions in another order. Args: there, wanted: letters of its dimensions."""
    if there == wanted:
        return tensor
    order = [there.index(letter) for letter in wanted]
    return one.make("Transpose", [tensor], {"perm": order}, shape=[known.get(letter, -1) for letter in wanted])
