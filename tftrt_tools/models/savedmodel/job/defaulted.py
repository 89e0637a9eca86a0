"""Makes constants of placeholders with a default that no signature names (`unnamed`). Works on protos; nothing is run."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.job import conditionals, folding, unnamed

if TYPE_CHECKING:
    import numpy.typing as npt
    from tensorflow.core.framework import graph_pb2, node_def_pb2


def fold(
    graph_def: graph_pb2.GraphDef, named: Container[str], given: Mapping[str, npt.NDArray[np.generic]] | None = None
) -> tuple[tuple[str, str], ...]:
    """Let each pass its default on, in place, and take away the conditionals that this decides.

    Args: graph_def, named: as of unnamed.specs. given: {name: another value}, by the names there.
    Returns: ((name, its value as text, "" where it is no single constant), …).
    """
    nodes = {node.name: node for node in graph_def.node}
    placeholders = list(unnamed.nodes(graph_def, named))
    others = {
        node.name: value
        for node in placeholders
        if node.name in nodes and (value := _given(node.name, given or {})) is not None
    }
    conditionals.replace(graph_def, others)
    told = {node.name: _text(others.get(node.name, _value(node, nodes))) for node in placeholders}
    for node in placeholders:
        dtype = node.attr["dtype"].type
        node.op = "Identity"
        node.attr.clear()
        node.attr["T"].type = dtype
    if placeholders:
        conditionals.decide(graph_def)
    return tuple(told.items())


def _given(name: str, given: Mapping[str, npt.NDArray[np.generic]]) -> npt.NDArray[np.generic] | None:
    """A frozen graph has the calls' names before those of their nodes."""
    return next((value for key, value in given.items() if name == key or name.endswith(f"/{key}")), None)


def _value(node: node_def_pb2.NodeDef, nodes: Mapping[str, node_def_pb2.NodeDef]) -> npt.NDArray[np.generic] | None:
    default = nodes.get(folding.name_of(node.input[0]))
    return tf.make_ndarray(default.attr["value"].tensor) if default is not None and default.op == "Const" else None


def _text(value: npt.NDArray[np.generic] | None) -> str:
    return str(value.item()).lower() if value is not None and value.size == 1 and value.dtype.kind in "fiub" else ""
