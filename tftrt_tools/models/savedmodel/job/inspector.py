"""Reads a converted SavedModel from its protos and files. Nothing is loaded or run: loading engines that were built for another
TensorRT or GPU ends the process."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import engine_assets, files, passport, signatures
from tftrt_tools.models.savedmodel.inspection import EngineFile, Finding, Inspection, Node, SignatureGraph
from tftrt_tools.models.savedmodel.job import graph, input_facts, protos, twins

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2, node_def_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.shapes import InputSpec

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "RemoteCall"})


def is_converted(path: str | os.PathLike[str], meta_graph: meta_graph_pb2.MetaGraphDef) -> bool:
    """Whether this SavedModel is converted: it has engine ops, engine files or our manifest."""
    carries = any((pathlib.Path(path) / "assets").glob(engine_assets.PREFIX + "*"))
    return (
        carries
        or (passport.folder(path) / passport.MANIFEST).is_file()
        or any(True for _ in graph.engine_nodes(meta_graph.graph_def))
    )


def inspect(path: str | os.PathLike[str], meta_graph: meta_graph_pb2.MetaGraphDef) -> Inspection:
    """Read a SavedModel. Args: path: its directory. meta_graph: its MetaGraphDef.

    Returns: Inspection, with findings for damaged parts of its passport.
    """
    graph_def = meta_graph.graph_def
    manifest, verification, damaged = _passport(path)
    return Inspection(
        model=str(pathlib.Path(path).absolute()),
        tags=tuple(meta_graph.meta_info_def.tags),
        tensorflow=meta_graph.meta_info_def.tensorflow_version,
        graph_bytes=(pathlib.Path(path) / protos.FILE).stat().st_size,
        signatures=signature_graphs(meta_graph),
        engines=tuple(graph.engine_ops(graph_def)),
        ambiguous=_ambiguous(graph_def),
        engine_files=_engine_files(path),
        loads=_loads(graph_def),
        manifest=manifest,
        verification=verification,
        digest=files.digest(path) if verification else None,
        findings=damaged,
    )


def _passport(path: str | os.PathLike[str]) -> tuple[dict[str, Any] | None, dict[str, Any] | None, tuple[Finding, ...]]:
    """Returns: (manifest or None, verification or None, Findings about those that cannot be read)."""
    documents: dict[str, dict[str, Any] | None] = dict.fromkeys((passport.MANIFEST, passport.VERIFY))
    damaged = []
    for name in documents:
        try:
            document = passport.read(path, name)
            with passport.understood(path, name):
                passport.signatures(document if name == passport.MANIFEST else None)
            documents[name] = document
        except errors.TftrtError as error:
            damaged.append(Finding(name, error.cause, error.mend))
    return documents[passport.MANIFEST], documents[passport.VERIFY], tuple(damaged)


def signature_graphs(meta_graph: meta_graph_pb2.MetaGraphDef) -> tuple[SignatureGraph, ...]:
    """The SignatureGraphs of a MetaGraphDef."""
    engines, same, specs = graph.engine_ops(meta_graph.graph_def), twins.find(meta_graph), input_facts.specs(meta_graph)
    return tuple(
        _signature(name, definition, meta_graph, engines, same.get(name, ""), specs[name])
        for name, definition in signatures.definitions(meta_graph).items()
    )


def _signature(
    name: str,
    signature: meta_graph_pb2.SignatureDef,
    meta_graph: meta_graph_pb2.MetaGraphDef,
    engines: Sequence[EngineOp],
    same_as: str,
    inputs: tuple[InputSpec, ...],
) -> SignatureGraph:
    walk = _Walk(meta_graph)
    walk.from_outputs([info.name for info in signature.outputs.values()])
    inside = sum(engine.compute_ops for engine in engines if engine.name in walk.engines)
    outputs = graph.specs(signature.outputs)
    return SignatureGraph(
        name=name,
        inputs=inputs,
        outputs=outputs,
        engines=tuple(walk.engines),
        native=tuple(walk.native),
        inside=inside,
        same_as=same_as,
    )


class _Walk:
    """Collects the nodes that a signature's outputs need, from the main graph and from every function that they call, each once."""

    def __init__(self, meta_graph: meta_graph_pb2.MetaGraphDef) -> None:
        self._main = {node.name: node for node in meta_graph.graph_def.node}
        self._functions = graph.library(meta_graph.graph_def)
        # In a TF2 export a signature is one call, fed by placeholders, variables, and calls that make tables.
        self._is_call = bool(meta_graph.object_graph_def.nodes)
        self._seen: set[str] = set()
        self.engines: dict[str, bool] = {}
        self.native: list[Node] = []

    def from_outputs(self, tensors: Sequence[str]) -> None:
        """Collect `engines` (names, in the order met) and `native` (Nodes) behind main-graph tensors."""
        waiting, met = [_node_name(tensor) for tensor in tensors], set[str]()
        while waiting:
            name = waiting.pop()
            if name in met or name not in self._main:
                continue
            met.add(name)
            node = self._main[name]
            self._visit(node, "")
            if not (self._is_call and node.op in _CALLS):
                waiting += [_node_name(source) for source in node.input]

    def _visit(self, node: node_def_pb2.NodeDef, function: str) -> None:
        if node.op == graph.ENGINE_OP:
            self.engines[graph.engine_name(node.name)] = True
            return
        if node.op in self._functions:
            self._enter(node.op)
        elif node.op not in graph.PASSIVE_OPS and node.op not in _CALLS:
            self.native.append(Node(node.name, node.op, function))
        for value in node.attr.values():
            for called in (
                [value.func.name] if value.WhichOneof("value") == "func" else [func.name for func in value.list.func]
            ):
                self._enter(called)

    def _enter(self, name: str) -> None:
        if name in self._functions and name not in self._seen:
            self._seen.add(name)
            for node in self._functions[name].node_def:
                self._visit(node, name)


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").split(":")[0]


def _ambiguous(graph_def: graph_pb2.GraphDef) -> tuple[str, ...]:
    """Engine names that stand for different segments. TF-TRT caches engines by name, so one segment would get the engine of the other."""
    functions = graph.library(graph_def)
    shapes: dict[str, set[tuple[Any, ...]]] = {}
    for node in graph.engine_nodes(graph_def):
        segment = functions.get(node.attr["segment_func"].func.name)
        body = (
            [inner.SerializeToString(deterministic=True) for inner in segment.node_def] if segment is not None else []
        )
        types = (tuple(node.attr["InT"].list.type), tuple(node.attr["OutT"].list.type), tuple(sorted(body)))
        shapes.setdefault(graph.engine_name(node.name), set()).add(types)
    return tuple(name for name, segments in shapes.items() if len(segments) > 1)


def _engine_files(path: str | os.PathLike[str]) -> tuple[EngineFile, ...]:
    return tuple(map(_engine_file, sorted((pathlib.Path(path) / "assets").glob(engine_assets.PREFIX + "*"))))


def _engine_file(file: pathlib.Path) -> EngineFile:
    assets: tuple[engine_assets.EngineAsset, ...] = ()
    problem = ""
    try:
        # TensorFlow's own reader checks the records' checksums.
        for _ in tf.data.TFRecordDataset([str(file)]):
            pass
        assets = tuple(engine_assets.read_file(file))
    except tf.errors.DataLossError as error:
        problem = "truncated" if "truncated" in str(error) else "damaged: a checksum is wrong"
    except DecodeError as error:
        problem = f"damaged: {' '.join(str(error).split())}"
    return EngineFile(file.name.removeprefix(engine_assets.PREFIX), assets, file.stat().st_size, problem)


def _loads(graph_def: graph_pb2.GraphDef) -> dict[str, int]:
    """{engine: engines kept} of the engine files that the model's initializers read."""
    ops = {}
    for function in graph_def.library.function:
        nodes = {node.op: node for node in function.node_def}
        handle, initialize = nodes.get("CreateTRTResourceHandle"), nodes.get("InitializeTRTResource")
        if handle is not None and initialize is not None:
            # A SavedModel drops attributes that have their default value, here 1.
            kept = initialize.attr["max_cached_engines_count"].i if "max_cached_engines_count" in initialize.attr else 1
            ops[handle.attr["resource_name"].s.decode(errors="replace")] = kept
    return ops
