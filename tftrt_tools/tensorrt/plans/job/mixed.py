"""Nodes that need FP32, held there.

In a network without strong types TensorRT chooses the precision. With the builder's flag FP16 it may compute any layer in FP16, also one
between casts to FP32 (its guides of releases 8.5 to 10, "Reduced Precision"). So the types of a file in FP16 become constraints of the
layers, and so do spectra that a logarithm reads. For these TF32 is as coarse as FP16 (docs/dev/measured/real_models.md). In a file with
Q/DQ nodes nothing is held for a spectrum: TensorRT 8.5.3 did not build such a plan of basic_pitch then, and stft_tagger's had the same 30.7
dB either way (seen on H100 and H200, 2026-11-27 and 2026-11-28).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
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


@dataclasses.dataclass(frozen=True)
class Wide:
    """What needs FP32. tensors: their names; computed: those of all tensors that nodes compute; exact: whether TF32 is too coarse; inner:
    tensors of a spectrum that only nodes which need FP32 read."""

    tensors: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    exact: bool = False
    inner: frozenset[str] = frozenset()


def hold(trt: ModuleType, network: tensorrt.INetworkDefinition, wide: Wide) -> int:
    """Constrain the layers that compute tensors which need FP32. Args: network: parsed from the file of `wide`.

    Returns: layers that are constrained.
    """
    if not wide.tensors:
        return 0
    return sum(constrain(trt, layer) for layer in _layers(network, wide.tensors, wide.computed))


def constrain(trt: ModuleType, layer: tensorrt.ILayer) -> bool:
    """Let a layer compute and give FP32. Returns: False for one that has no such choice."""
    floats = (trt.DataType.FLOAT, trt.DataType.HALF)
    numbers = [number for number in range(layer.num_outputs) if layer.get_output(number).dtype in floats]
    if not numbers or layer.type.name in _LAYERS:
        return False
    layer.precision = trt.DataType.FLOAT
    for number in numbers:
        layer.set_output_type(number, trt.DataType.FLOAT)
    return True


def narrowed(information: Mapping[str, object], wide: Wide) -> tuple[str, ...]:
    """Tensors of a spectrum that a built plan hands on in FP16 nevertheless.

    What TensorRT computes in a block of its own ({ForeignNode[…]}) may have FP16 at its borders, whatever the layers within are constrained
    to: for such a block 8.5.3 offered its algorithm selector nothing else (seen on an H200, 2026-11-28).

    Args: information: the inspector's JSON of all layers.
    """
    layers = information.get("Layers")
    listed = [one for one in layers if isinstance(one, Mapping)] if isinstance(layers, list) else []
    found = [
        str(taken["Name"])
        for one in listed
        if one.get("LayerType") == "Reformat"
        for taken, given in zip(one.get("Inputs", ()), one.get("Outputs", ()), strict=False)
        if "FP32" in str(taken.get("Format/Datatype")) and "FP16" in str(given.get("Format/Datatype"))
    ]
    return tuple(name for name in dict.fromkeys(found) if name in wide.inner)


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


def read(path: str) -> onnx.ModelProto | None:
    """An ONNX file without weights that lie beside it, with the shapes that can be inferred; None without the package onnx."""
    try:
        import onnx
    except ImportError:
        return None
    from tftrt_tools.tensorrt.exporting.job import graph_facts

    model = onnx.load(path, load_external_data=False)
    graph_facts.write_values(model.graph)
    return onnx.shape_inference.infer_shapes(model)


def wide(model: onnx.ModelProto | None, by_types: bool) -> Wide:
    """What needs FP32 in an ONNX file: spectra whose logarithm it takes; and, by its types, what it computes in float32 if it computes in
    float16 as well. Graphs within nodes are not looked at. Args: model: of `read`; nothing is known without it."""
    if model is None:
        return Wide()
    from onnx import TensorProto

    from tftrt_tools.tensorrt.exporting.job import graph_facts, spectra

    graph = model.graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.value_info, *graph.output)}
    computed = frozenset(name for node in graph.node for name in node.output)
    own = [name for node in graph.node if node.op_type not in _TYPELESS for name in node.output]
    single, half = (
        frozenset(name for name in own if types.get(name) == kind) for kind in (TensorProto.FLOAT, TensorProto.FLOAT16)
    )
    facts = graph_facts.Facts(model)
    quantized = any(node.op_type == "DequantizeLinear" for node in facts.nodes)
    named = {} if quantized else spectra.nodes(facts)
    spectral = frozenset(
        name
        for node in facts.nodes
        if graph_facts.name_of(node) in named and node.op_type not in _TYPELESS
        for name in node.output
    )
    inner = frozenset(
        name
        for name in spectral
        if (readers := facts.readers.get(name)) and all(graph_facts.name_of(one) in named for one in readers)
    )
    # In a file in FP16 they are in FP32 if the export has foreseen them.
    found = (single if half and by_types else frozenset()) | spectral - half
    return Wide(found, computed, bool(spectral), inner) if found else Wide()
