"""QuantizeLinear and DequantizeLinear put into a graph where a Placement says so. Symmetric INT8: the zero point is 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tftrt_tools.tensorrt.exporting.job.graph_facts import Facts, free, name_of, node_names, tensor_names
from tftrt_tools.tensorrt.exporting.job.placement import Placement, Weights
from tftrt_tools.tftrt.calibration.table import LEVELS

# The first opset whose QuantizeLinear has a scale for each channel.
OPSET = 13
_SCALE, _ZERO, _ROUNDED, _BACK = "/int8_scale", "/int8_zero", "/int8", "/rounded"


def scale_names(model: onnx.ModelProto, placement: Placement) -> dict[str, str]:
    """{tensor of `placement.tensors`: the name of the constant that is its scale}."""
    taken = tensor_names(model.graph)
    return {tensor: free(tensor + _SCALE, taken) for tensor in placement.tensors}


def with_rounding(
    model: onnx.ModelProto, placement: Placement, scales: Mapping[str, float], fed: bool = False
) -> onnx.ModelProto:
    """A copy of the model with rounding.

    Weights stay float32, with both nodes behind them: TensorRT 8.5 takes no INT8 constants, and later ones round such weights, too.

    Args: scales: {tensor of `placement.tensors`: float > 0}. fed: the scales of computed tensors become optional inputs of the graph,
      `scale_names`, so that one session can try several.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, facts = made.graph, Facts(made)
    taken = _Taken(tensor_names(graph), node_names(graph))
    behind: dict[str, list[onnx.NodeProto]] = {}
    rounded: dict[str, str] = {}
    for tensor in placement.tensors:
        pair = _pair(graph, taken, tensor, np.float32(scales[tensor]), None)
        behind.setdefault(tensor, []).extend(pair)
        rounded[tensor] = pair[1].output[0]
        if fed:
            graph.input.append(helper.make_tensor_value_info(pair[0].input[1], TensorProto.FLOAT, []))
    weights: dict[Weights, str] = {}
    front: list[onnx.NodeProto] = []
    for weight in dict.fromkeys(site.weights for site in placement.sites if site.weights):
        values = facts.constant(weight.tensor)
        suffix = "" if sum(one.tensor == weight.tensor for one in weights) == 0 else f"/{weight.axis}"
        pair = _pair(graph, taken, weight.tensor, _channel_scales(values, weight.axis), weight.axis, suffix)
        weights[weight] = pair[1].output[0]
        # Constants may also be nodes.
        (behind.setdefault(weight.tensor, []) if weight.tensor in facts.producers else front).extend(pair)
    sites = {site.node: site for site in placement.sites}
    nodes = [*front, *(one for tensor in behind if tensor not in facts.producers for one in behind[tensor])]
    for node in list(graph.node):
        site = sites.get(name_of(node))
        if site is not None:
            for index, tensor in site.inputs:
                node.input[index] = rounded[tensor]
            if site.weights:
                node.input[1] = weights[site.weights]
        nodes.append(node)
        for output in node.output:
            nodes.extend(behind.get(output, ()))
    # A copy: the nodes are the graph's own.
    listed = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(listed)
    return made


@dataclasses.dataclass(frozen=True)
class _Taken:
    """Names that the model has: of its tensors, and of its nodes."""

    tensors: Collection[str]
    nodes: Collection[str]


def _pair(
    graph: onnx.GraphProto,
    taken: _Taken,
    tensor: str,
    scale: npt.NDArray[Any] | np.float32,
    axis: int | None,
    suffix: str = "",
) -> list[onnx.NodeProto]:
    """The two nodes behind a tensor; their constants are put into the graph."""
    names = [free(tensor + suffix + one, taken.tensors) for one in (_SCALE, _ZERO, _ROUNDED, _BACK)]
    array = np.asarray(scale, np.float32)
    graph.initializer.append(numpy_helper.from_array(array, names[0]))
    graph.initializer.append(numpy_helper.from_array(np.zeros(array.shape, np.int8), names[1]))
    options = {} if axis is None else {"axis": axis}
    return [
        helper.make_node(
            "QuantizeLinear", [tensor, names[0], names[1]], [names[2]], name=free(names[2], taken.nodes), **options
        ),
        helper.make_node(
            "DequantizeLinear", [names[2], names[0], names[1]], [names[3]], name=free(names[3], taken.nodes), **options
        ),
    ]


def _channel_scales(values: npt.NDArray[Any] | Any, axis: int) -> npt.NDArray[np.float32]:
    """max |w| / 127 of each output channel; a channel that is zero everywhere gets the scale of |w| up to 1, because TensorRT takes none
    that is 0."""
    amax = np.abs(values.astype(np.float32)).max(axis=tuple(index for index in range(values.ndim) if index != axis))
    found: npt.NDArray[np.float32] = (np.where(amax > 0, amax, 1.0) / LEVELS).astype(np.float32)
    # Below the normal numbers TensorRT's division could become infinite.
    return np.maximum(found, np.finfo(np.float32).tiny)
