"""Grouped convolutions, written so that TensorRT can build them.

In TensorFlow a convolution has groups where its filter reads fewer channels than there are. TF-TRT takes it, tells TensorRT of one
group, and no engine can be built. With one channel a group it is a depthwise convolution; otherwise a convolution of all channels, with
a filter that is zero between the groups, gives the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from tftrt_tools.models.savedmodel.job import added_nodes, folding, inferred
from tftrt_tools.models.savedmodel.preparation import Grouped

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2

_CONVOLUTIONS = {"Conv2D": "NHWC", "Conv3D": "NDHWC"}
_DEPTHWISE_ATTRIBUTES = frozenset({"T", "strides", "explicit_paddings", "padding", "data_format", "dilations"})


def rewrite(
    graph_def: graph_pb2.GraphDef, most_bytes: int, kept: AbstractSet[str] = frozenset()
) -> tuple[Grouped, ...]:
    """Rewrite the grouped convolutions of a graph, in place, but not inside functions.

    Args: graph_def: frozen. most_bytes: by how much all filters together may grow. kept: names of nodes to leave as they are and not to
      report.
    Returns: (Grouped, …), in the graph's order; those that were not rewritten have no `written`: their filter is not known, it has three
      dimensions, or it would become too large.
    """
    convolutions, filters = [], {}
    nodes = {node.name: node for node in graph_def.node}
    for node, groups in _grouped(graph_def):
        if node.name in kept:
            continue
        convolution = Grouped(name=node.name, type=node.op, groups=groups)
        before = folding.value(node.input[1], nodes, folding.FILTERS) if node.op == "Conv2D" else None
        if before is not None:
            written, values = _written(node, before, groups)
            added = values.nbytes - before.nbytes
            if added <= most_bytes:
                most_bytes -= added
                filters[node.name] = (written, values)
                convolution = dataclasses.replace(convolution, written=written, added_bytes=added)
        convolutions.append(convolution)
    if filters:
        _write(graph_def, filters)
    return tuple(convolutions)


def _grouped(graph_def: graph_pb2.GraphDef) -> list[tuple[node_def_pb2.NodeDef, int]]:
    """[(node, groups)] of convolutions whose filter reads fewer channels than their input has."""
    nodes = [node for node in graph_def.node if node.op in _CONVOLUTIONS]
    if not nodes:
        return []
    shapes = inferred.shapes(graph_def)
    grouped_nodes = []
    for node in nodes:
        operation = shapes.get_operation_by_name(node.name)
        data, filters = (tensor.shape for tensor in operation.inputs)
        if data.rank is None or filters.rank is None:
            continue
        channels, read = data[_layout(node).index("C")], filters[-2]
        if channels and read and channels != read:
            grouped_nodes.append((node, channels // read))
    return grouped_nodes


def _written(node: node_def_pb2.NodeDef, filters: npt.NDArray[Any], groups: int) -> tuple[str, npt.NDArray[Any]]:
    """(type of the node, its filter). Args: filters: (height, width, channels of a group, results)."""
    height, width, read, results = filters.shape
    steps, gaps = (_by_axis(node, name) for name in ("strides", "dilations"))
    # TensorFlow's own kernels take only one stride for a depthwise convolution, and silently ignore its dilations.
    if read == 1 and steps[0] == steps[1] and gaps == [1, 1]:
        return "DepthwiseConv2dNative", filters.reshape(height, width, groups, results // groups)
    dense = np.zeros((height, width, read * groups, results), filters.dtype)
    of_group = results // groups
    for group in range(groups):
        group_slice = slice(group * of_group, (group + 1) * of_group)
        dense[:, :, group * read : (group + 1) * read, group_slice] = filters[..., group_slice]
    return "Conv2D", dense


def _layout(node: node_def_pb2.NodeDef) -> str:
    return node.attr["data_format"].s.decode() if "data_format" in node.attr else _CONVOLUTIONS[node.op]


def _by_axis(node: node_def_pb2.NodeDef, name: str) -> list[int]:
    """[along the height, along the width] of an attribute with a number for each axis."""
    sizes = node.attr[name].list.i if name in node.attr else ()
    return [sizes[_layout(node).index(axis)] if sizes else 1 for axis in "HW"]


def _write(graph_def: graph_pb2.GraphDef, filters: Mapping[str, tuple[str, npt.NDArray[Any]]]) -> None:
    nodes = {node.name: node for node in graph_def.node}
    for name, (written, values) in filters.items():
        node = nodes[name]
        node.input[1] = added_nodes.constant(f"{name}/filter", values, graph_def, nodes)
        if written != node.op:
            node.op = written
            for attribute in [key for key in node.attr if key not in _DEPTHWISE_ATTRIBUTES and not key.startswith("_")]:
                del node.attr[attribute]
