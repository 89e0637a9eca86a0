"""Nodes that an ONNX file in FP16 leaves in FP32, held there.

In a network without strong types TensorRT chooses the precision. With the builder's flag FP16 it may compute any layer in FP16, also one
between casts to FP32 (its guides of releases 8.5 to 10, "Reduced Precision"). So the file's types become constraints of the layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorrt

# The builder flag with which the constraints are kept, or the build fails.
FLAG = "OBEY_PRECISION_CONSTRAINTS"
# Ops, and TensorRT's layers, that compute nothing, or whose type is their task.
_TYPELESS = frozenset(
    {
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "Identity",
        "QuantizeLinear",
        "DequantizeLinear",
        "Shape",
        "Size",
    }
)
_LAYERS = frozenset(
    {
        "CONSTANT",
        "CAST",
        "IDENTITY",
        "SHAPE",
        "QUANTIZE",
        "DEQUANTIZE",
        # Borders of loops and branches, and what a plugin decides for itself.
        "LOOP_OUTPUT",
        "RECURRENCE",
        "ITERATOR",
        "TRIP_LIMIT",
        "CONDITION",
        "CONDITIONAL_INPUT",
        "CONDITIONAL_OUTPUT",
        "ASSERTION",
        "PLUGIN",
        "PLUGIN_V2",
        "PLUGIN_V3",
    }
)


def hold(trt: ModuleType, network: tensorrt.INetworkDefinition, path: str) -> int:
    """Constrain layers to FP32 where the file computes in FP32 among nodes in FP16.

    Args: network: parsed from the file. path: of the file.
    Returns: layers that are constrained; 0 for a file without FP16, whose precision is TensorRT's to choose, and without the package onnx.
    """
    wide, computed = tensors(path)
    if not wide:
        return 0
    floats = (trt.DataType.FLOAT, trt.DataType.HALF)
    count = 0
    for layer in _layers(network, wide, computed):
        numbers = [number for number in range(layer.num_outputs) if layer.get_output(number).dtype in floats]
        if numbers and layer.type.name not in _LAYERS:
            layer.precision = trt.DataType.FLOAT
            for number in numbers:
                layer.set_output_type(number, trt.DataType.FLOAT)
            count += 1
    return count


def _layers(
    network: tensorrt.INetworkDefinition, wide: frozenset[str], computed: frozenset[str]
) -> Iterator[tensorrt.ILayer]:
    """The layers of the nodes that give `wide`. A node may be several layers in a row; the last has the name of the node's output."""
    pending = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        pending.append(layer)
        names = {layer.get_output(number).name for number in range(layer.num_outputs)}
        if names & wide:
            yield from pending
        if names & computed:
            pending = []


def tensors(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """(Those that nodes compute in float32, all that nodes compute) of an ONNX file that computes in float16 as well; two empty sets for
    another file, and without the package onnx. Graphs within nodes are not looked at."""
    try:
        import onnx
        from onnx import TensorProto, shape_inference
    except ImportError:
        return frozenset(), frozenset()
    model = onnx.load(path, load_external_data=False)
    graph = shape_inference.infer_shapes(model).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.value_info, *graph.output)}
    computed = frozenset(name for node in graph.node for name in node.output)
    own = [name for node in graph.node if node.op_type not in _TYPELESS for name in node.output]
    wide, half = (
        frozenset(name for name in own if types.get(name) == kind) for kind in (TensorProto.FLOAT, TensorProto.FLOAT16)
    )
    return (wide, computed) if half else (frozenset(), frozenset())
