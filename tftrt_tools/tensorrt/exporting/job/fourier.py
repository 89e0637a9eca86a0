"""The Fourier transform of real frames as two products, for what ONNX and TensorRT read: neither 8.5 nor 10 has an op for it.

A complex tensor of tf2onnx's graph is a stack of its real and its imaginary part. tf2onnx 1.17.0 writes an RFFT so, too, but it refuses
frames that are shorter than the transform (`tf.signal.stft(x, 400, 160)` transforms 512 values), and ComplexAbs of frames whose number is
open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tf2onnx import utils as tf2onnx_utils
from tf2onnx.graph import Graph, Node
from tf2onnx.onnx_opset.signal import ComplexAbsOp

from tftrt_tools.tensorrt.exporting.job.rewrites.replaced import Replaced


def rfft(graph: Graph, node: Node) -> None:
    """Write an RFFT as products with cosines and sines. Longer frames than the transform are cut; for shorter ones, which
    zeros would fill up, the matrices have fewer rows.

    Raises: ValueError: the graph does not tell the length of the frames, or of the transform.
    """
    frames, points = node.input[0], node.inputs[1].get_tensor_value() if node.inputs[1].is_const() else None
    shape = graph.get_shape(frames)
    if not points or not shape or shape[-1] < 0:
        raise ValueError(f"the graph does not tell how long the frames of RFFT {node.name} are")
    length, dtype = points[0], graph.get_dtype(frames)
    one = Replaced(graph, node)
    if shape[-1] > length:
        frames = one.make(
            "Slice",
            [frames, one.constant([0]), one.constant([length]), one.constant([-1])],
            shape=[*shape[:-1], length],
            dtype=dtype,
        )
    parts, spectrum = [], [*shape[:-1], length // 2 + 1]
    for matrix in _matrices(min(shape[-1], length), length):
        constant = one.constant(matrix.astype(tf2onnx_utils.map_onnx_to_numpy_type(dtype)))
        part = one.make("MatMul", [frames, constant], shape=spectrum, dtype=dtype)
        parts.append(one.make("Unsqueeze", [part, one.constant([0])], shape=[1, *spectrum], dtype=dtype))
    one.give("Concat", parts, {"axis": 0}, shape=[2, *spectrum], dtype=dtype)


def _matrices(rows: int, length: int) -> tuple[Any, Any]:
    """What the first `rows` values of a frame are multiplied with for the real and the imaginary part: float64 [rows, length // 2 + 1].

    X[k] = sum over n of x[n] exp(-2 pi i k n / length). The product k n is taken modulo length, so that large angles lose no digits.
    """
    angles = 2 * np.pi / length * (np.outer(np.arange(rows), np.arange(length // 2 + 1)) % length)
    return np.cos(angles), -np.sin(angles)


def _parts(graph: Graph, node: Node) -> tuple[str, ...]:
    """(real part, imaginary part) of what a node reads; () where `rfft` did not write it."""
    stack = node.inputs[0]
    made = stack.inputs if stack.type == "Concat" and len(stack.input) == 2 else ()
    return tuple(one.input[0] for one in made) if all(one.type == "Unsqueeze" for one in made) else ()


def part(graph: Graph, node: Node, which: int) -> None:
    """Write Real (0) or Imag (1) of a transform. Raises: ValueError: for another complex tensor."""
    parts = _parts(graph, node)
    if not parts:
        raise ValueError(f"{node.type} {node.name} reads a complex tensor that is no RFFT")
    Replaced(graph, node).give("Identity", [parts[which]])


def magnitude(graph: Graph, node: Node) -> None:
    """Write ComplexAbs of a transform; tf2onnx writes others."""
    parts = _parts(graph, node)
    if not parts:
        ComplexAbsOp.version_13(graph, node)
        return
    one = Replaced(graph, node)
    squares = [one.make("Mul", [each, each]) for each in parts]
    one.give("Sqrt", [one.make("Add", squares)])
