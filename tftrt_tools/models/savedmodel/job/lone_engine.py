"""Puts one engine op of a converted graph into a graph of its own: its inputs are placeholders, and nothing else of the model runs with it.
Works on protos alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2, types_pb2

from tftrt_tools.models.savedmodel.job import graph, inline

if TYPE_CHECKING:
    from tensorflow.core.framework import node_def_pb2, tensor_pb2

_IDLE, _CHANGED = "_idle", "_changed"


@dataclasses.dataclass(frozen=True)
class LoneEngine:
    """graph_def: with the engine op `node`, its segment and the placeholders `inputs` ("input_0:0", …)."""

    graph_def: graph_pb2.GraphDef
    node: str
    inputs: tuple[str, ...]


def alone(graph_def: graph_pb2.GraphDef, engine: str) -> LoneEngine:
    """Engine op `engine` of the main graph of `graph_def`, which is left as it is. Raises: KeyError(engine) where it is not there."""
    nodes = {graph.engine_name(node.name): node for node in graph_def.node if node.op == graph.ENGINE_OP}
    lone = graph_pb2.GraphDef(versions=graph_def.versions)
    dtypes = nodes[engine].attr["InT"].list.type
    for index, dtype in enumerate(dtypes):
        lone.node.add(name=f"input_{index}", op="Placeholder").attr["dtype"].type = dtype
    node = lone.node.add()
    node.CopyFrom(nodes[engine])
    node.name = engine
    del node.input[:]
    node.input.extend(f"input_{index}" for index in range(len(dtypes)))
    if "_class" in node.attr:  # colocation, by names that are not here
        del node.attr["_class"]
    # The engine is built here even if requests must not build it.
    graph.set_attributes(node, _allow_build_at_runtime=True)
    functions = graph.library(graph_def)
    lone.library.function.extend(functions[name] for name in inline.reached(lone.node, functions))
    return LoneEngine(lone, engine, tuple(f"input_{index}:0" for index in range(len(dtypes))))


def with_changed_segment(lone: LoneEngine) -> None:
    """Give the engine's segment, which was changed, a name of its own, in place: a process has one function of a name, and the model's own
    segment is another."""
    node = next(node for node in lone.graph_def.node if node.op == graph.ENGINE_OP)
    segment = node.attr["segment_func"].func
    graph.library(lone.graph_def)[segment.name].signature.name = segment.name + _CHANGED
    segment.name += _CHANGED


def collecting(lone: LoneEngine) -> LoneEngine:
    """A copy in the mode in which TF-TRT collects the shapes of its calls for optimization profiles.

    In this mode TF-TRT also runs the native segment, whose answers nobody reads; for that TensorFlow compiles its kernels for a new GPU
    and tries cuDNN's algorithms for each shape. So a function of constants replaces the segment. If all sizes are known the segment
    stays, because then TF-TRT collects nothing and builds at once.
    """
    graph_def = graph_pb2.GraphDef.FromString(lone.graph_def.SerializeToString())
    node = next(node for node in graph_def.node if node.op == graph.ENGINE_OP)
    graph.set_attributes(node, _profile_generation_mode=True)
    shapes = [graph.shape_of(shape) for shape in node.attr["input_shapes"].list.shape]
    if any(shape is None or None in shape for shape in shapes):
        _stand_in(graph_def, node)
    return dataclasses.replace(lone, graph_def=graph_def)


def _stand_in(graph_def: graph_pb2.GraphDef, node: node_def_pb2.NodeDef) -> None:
    segment = node.attr["segment_func"].func
    idle = graph_def.library.function.add()
    idle.signature.CopyFrom(graph.library(graph_def)[segment.name].signature)
    idle.signature.name = segment.name + _IDLE
    for index, result in enumerate(idle.signature.output_arg):
        constant = idle.node_def.add(name=f"constant_{index}", op="Const")
        constant.attr["dtype"].type = result.type
        constant.attr["value"].tensor.dtype = result.type
        constant.attr["value"].tensor.tensor_shape.SetInParent()
        _zero(constant.attr["value"].tensor)
        idle.ret[result.name] = f"constant_{index}:output:0"
    segment.name = idle.signature.name


def _zero(tensor: tensor_pb2.TensorProto) -> None:
    field = {
        types_pb2.DT_FLOAT: tensor.float_val,
        types_pb2.DT_HALF: tensor.half_val,
        types_pb2.DT_BOOL: tensor.bool_val,
    }
    field.get(tensor.dtype, tensor.int_val).append(0)
