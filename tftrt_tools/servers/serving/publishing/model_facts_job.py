"""The child's side of `model_facts`: a SavedModel's files are read; nothing is loaded or run."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors, op_libraries, tf_private
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.job import findings, graph, inspector, protos, session_load
from tftrt_tools.servers.serving.publishing import model_facts
from tftrt_tools.servers.serving.publishing.model_facts import Facts
from tftrt_tools.tftrt.calibration import table

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2


def read(model: str) -> Facts:
    """The Facts of SavedModel directory `model`. Raises: TftrtError, UsageError."""
    meta_graph = protos.meta_graph(protos.read(model))
    seen = inspector.inspect(model, meta_graph)
    # verification_check judges a failed or outdated verification.
    listed = findings.find(dataclasses.replace(seen, verification=None))
    methods = {name: definition.method_name for name, definition in signatures.definitions(meta_graph).items()}
    ops = _ops(meta_graph.graph_def)
    unknown = _unknown(ops, meta_graph.graph_def)
    return Facts(
        seen=dataclasses.replace(seen, findings=tuple(listed)),
        converted=inspector.is_converted(model, meta_graph),
        methods=methods,
        unknown_ops=unknown,
        library_ops=_of_libraries(unknown),
        tables=_tables(meta_graph.graph_def),
        engine_ops=sum(ops[name] for name in model_facts.TFTRT_OPS),
        lost=session_load.lost(meta_graph),
    )


def _ops(graph_def: graph_pb2.GraphDef) -> collections.Counter[str]:
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    return collections.Counter(node.op for node in nodes)


def _unknown(ops: Mapping[str, int], graph_def: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Ops that TensorFlow does not know. A node with a function's name is a call and not an op."""
    functions = {function.signature.name for function in graph_def.library.function}
    return tuple(sorted(name for name in ops if name not in functions and not _is_op(name)))


def _of_libraries(unknown: Sequence[str]) -> tuple[str, ...]:
    if not unknown or not op_libraries.named():
        return ()
    op_libraries.load()
    return tuple(filter(_is_op, unknown))


def _is_op(name: str) -> bool:
    try:
        tf_private.op_def(name)
    except KeyError:
        return False
    return True


def _tables(graph_def: graph_pb2.GraphDef) -> dict[str, str]:
    tables: dict[str, str] = {}
    for node in graph.engine_nodes(graph_def):
        text = node.attr["calibration_data"].s.decode(errors="replace") if "calibration_data" in node.attr else ""
        if text:
            try:
                tables[graph.engine_name(node.name)] = table.parse(text).tensorrt
            except errors.TftrtError:
                continue  # its form does not tell the version; TensorRT will refuse it
    return tables
