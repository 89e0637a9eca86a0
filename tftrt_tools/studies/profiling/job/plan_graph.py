"""The segments of a model's engines with the sizes of given calls, from the protos and TensorFlow's shape inference. Nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.models.savedmodel.job import flop_count, graph, inferred, protos, segment
from tftrt_tools.studies.profiling.apart import SegmentsRequest
from tftrt_tools.studies.profiling.engine_graph import Graph, Node, Tensor

if TYPE_CHECKING:
    import tensorflow as tf


def describe(request: SegmentsRequest) -> tuple[Graph, ...]:
    """A Graph for each engine and its sizes; it has no nodes where the native segment was removed."""
    segments = graph.native_segments(protos.meta_graph(protos.read(request.model)).graph_def)
    return tuple(
        of(segments[engine.engine], engine.shapes) if engine.engine in segments else Graph(engine.engine, ())
        for engine in request.engines
    )


def of(one: graph.Segment, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """The Graph of one segment. Args: shapes: {input of the engine: shape}; an input that the engine does not have keeps its declared
    shape."""
    body, _ = segment.to_graph(one.function)
    given = [shapes.get(f"{engine_op.INPUT}{index}") for index in range(len(one.shapes))]
    graph_shapes = inferred.shapes(
        segment.importable(
            body,
            [
                tuple(shape) if shape is not None else declared
                for shape, declared in zip(given, one.shapes, strict=True)
            ],
        )
    )
    constants = {node.name for node in body.node if node.op == "Const"}
    operations = [(graph_shapes.get_operation_by_name(node.name), node) for node in body.node]
    return Graph(
        one.engine.name,
        tuple(
            Node(
                name=node.name,
                op="Const" if node.name in constants else node.op,
                inputs=tuple(tensor.op.name for tensor in operation.inputs),
                outputs=tuple(Tensor(tensor.dtype.name, _shape(tensor.shape)) for tensor in operation.outputs),
                flops=_flops(operation),
            )
            for operation, node in operations
        ),
    )


def _shape(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _flops(operation: tf.Operation) -> int | None:
    if operation.type not in flop_count.OPS:
        return 0
    return flop_count.of_sizes(operation, [tensor.shape for tensor in operation.inputs], operation.outputs[0].shape)
