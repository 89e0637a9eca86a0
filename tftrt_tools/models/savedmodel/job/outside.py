"""Why nodes stay in TensorFlow that are written otherwise elsewhere, in plain words."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.models.savedmodel.job import (
    chosen,
    control_flow,
    cumulated,
    einsums,
    gather_nd,
    new_axes,
    normalized,
    slices,
)

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2

ALONE = "written as TF-TRT takes it, it would be in no engine, or in one that holds nothing else"
# Of other types TF-TRT says so itself.
_TYPES = frozenset(dtype.as_datatype_enum for dtype in (tf.float32, tf.float16, tf.int32))
_ALWAYS = {cumulated.OP: cumulated.REASON, gather_nd.OP: gather_nd.REASON, **chosen.REASONS}


def reasons(
    graph_def: graph_pb2.GraphDef, kept: Container[str], lone: Container[str], explicit: bool, named: bool = True
) -> tuple[tuple[str, str], ...]:
    """((name, why), …) of such nodes that TF-TRT may refuse, in the graph's order.

    Args: graph_def: frozen, and rewritten. kept: names of nodes that the user leaves as they are. lone: those that were tried otherwise in
      vain. explicit: for explicit batch mode. named: whether layers without known names may be in engines.
    """
    loops = control_flow.in_loops(graph_def)
    found = [
        (node.name, ALONE if node.name in lone else _reason(node, explicit, named))
        for node in graph_def.node
        if node.name not in kept and node.name not in loops
    ]
    return tuple((name, text) for name, text in found if text)


def _reason(node: node_def_pb2.NodeDef, explicit: bool, named: bool) -> str:
    if not any(node.attr[name].type in _TYPES for name in ("T", "Tparams") if name in node.attr):
        return ""
    if node.op == einsums.OP:
        return einsums.reason(node, explicit)
    if normalized.of_what_it_gets(node):
        return normalized.STAYS if explicit and named else normalized.REASON
    if node.op == slices.OP and node.attr["new_axis_mask"].i:
        return new_axes.REASON
    if not named and node.op in _ALWAYS:
        return (
            f"TF-TRT knows no {node.op} of this form; what it becomes elsewhere has layers that no INT8 table can name"
        )
    return _ALWAYS.get(node.op, "")
