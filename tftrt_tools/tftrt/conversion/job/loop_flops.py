"""Counts the FLOPs of a signature with its loops. Only a run shows how many rounds a loop has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import inputs as random_inputs
from tftrt_tools.models.savedmodel.job import flop_count
from tftrt_tools.tftrt.conversion.job import engine_inputs

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.engine_op import Shape
    from tftrt_tools.models.savedmodel.flops import Flops
    from tftrt_tools.models.savedmodel.shapes import Call, InputSpec
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen


def count(frozen: Frozen, graph_def: graph_pb2.GraphDef, specs: Sequence[InputSpec], calls: Sequence[Call]) -> Flops:
    """The FLOPs of a call of one row.

    A signature with such loops runs once, natively, on drawn values. If its sizes are open, or it refuses the values, only the first
    round of its loops counts.

    Args: graph_def: what the pass made of `frozen`. specs: of the signature. calls: for which engines are to be built.
    """
    row = frozen.one_row(calls)
    names = flop_count.looping(frozen.graph_def, graph_def)
    return flop_count.count(frozen.graph_def, graph_def, row, _seen(frozen, names, specs, row) if names else None)


def _seen(frozen: Frozen, names: Sequence[str], specs: Sequence[InputSpec], row: Mapping[str, Shape]) -> dict[str, int]:
    """{node: its operations in all rounds of a call}; {} if it cannot be run."""
    call: dict[str, tuple[int, ...]] = {}
    for name, tensor in zip(frozen.input_names, frozen.inputs, strict=True):
        shape = row[tensor.removesuffix(":0")]
        if shape is None or None in shape:
            return {}
        call[name] = tuple(size for size in shape if size is not None)
    progress.say("counting the rounds of loops")
    counts = dict.fromkeys(names, 0)
    arrays = random_inputs.random(specs, call, seed=0)
    try:
        engine_inputs.run(
            _counting(frozen, counts),
            [arrays[name] for name in frozen.input_names],
            frozen.graph_def,
            lambda: counts.update(dict.fromkeys(names, 0)),
        )
    except (tf.errors.OpError, ValueError, KeyError):
        return {}
    return counts


def _counting(frozen: Frozen, counts: dict[str, int]) -> Callable[..., Sequence[tf.Tensor]]:
    """A function of the signature's inputs that adds up in `counts`, and returns nothing."""

    def run(*inputs: tf.Tensor) -> list[Any]:
        with tf.device("/CPU:0"):
            tf.graph_util.import_graph_def(frozen.graph_def, input_map=frozen.input_map(inputs), name="model")
        graph = tf.compat.v1.get_default_graph()
        for name in counts:
            operation = graph.get_operation_by_name(f"model/{name}")
            # Count the result itself, in each round: known sizes would be constants, outside of the loop.
            shapes = [tf.raw_ops.Shape(input=tensor) for tensor in operation.inputs]
            tf.numpy_function(_adding(counts, name, operation), [operation.outputs[0], *shapes], [])
        return []

    counting: Callable[..., Sequence[tf.Tensor]] = tf.compat.v1.wrap_function(run, frozen.input_specs())
    return counting


def _adding(counts: dict[str, int], name: str, operation: tf.Operation) -> Callable[..., None]:
    lock = threading.Lock()  # rounds may overlap

    def add(result: npt.NDArray[Any], *shapes: npt.NDArray[Any]) -> None:
        operations = flop_count.of_sizes(
            operation, [tf.TensorShape(shape) for shape in shapes], tf.TensorShape(result.shape)
        )
        with lock:
            counts[name] += operations or 0

    return add
