"""The second half of a conversion, which `tftrt build` uses too: unique names, engines, the signature's function."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tftrt_tools.base import errors, tf_private
from tftrt_tools.models.engine_cache.store import Place, Store
from tftrt_tools.models.savedmodel.job import graph
from tftrt_tools.tftrt.conversion.job import engines, watched
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.calibration.file import EngineTable
    from tftrt_tools.tftrt.calibration.record import DataRecord
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The facts that all signatures of a conversion share."""

    settings: Settings
    # The GPU, by execution.job.gpu.seen; None if no GPU is visible.
    gpu: Mapping[str, str] | None
    # The versions as `versions` returns them.
    versions: dict[str, str]
    # The engine cache, None for none.
    store: Store | None
    # The model's path, for the cache's record.
    origin: str
    # The limit of the time of all builds.
    budget: watched.Budget = dataclasses.field(default_factory=watched.Budget)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """One converted signature."""

    result: SignatureResult
    # A ConcreteFunction; None where it has no engine.
    function: Any = None
    # {engine name: trackable that carries the engine}.
    resources: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Tables of its INT8 engines.
    tables: tuple[EngineTable, ...] = ()
    # The data of a calibration, None where none was read.
    record: DataRecord | None = None


def store(cache: Place | None, settings: Settings) -> Store | None:
    """The engine cache of a request, or None if nothing is built or it is switched off."""
    return cache.store() if cache and settings.shapes else None


def prefix(source: pathlib.Path, settings: Settings) -> str:
    """Engine names are keys of a cache that all models of a process share: the same name in two models means the wrong engine."""
    digest = hashlib.sha256((source / "saved_model.pb").read_bytes())
    digest.update(json.dumps(settings.to_dict(), sort_keys=True).encode())
    return "TRTEngineOp_" + digest.hexdigest()[:10]


def unique_names(graph_def: graph_pb2.GraphDef, prefix: str) -> dict[str, str]:
    """Rename engine ops, and all functions of the graph, which may share names with the original's in this process.

    Returns: {engine: its new name}.
    """
    engine_names = [node.name for node in graph_def.node if node.op == graph.ENGINE_OP]
    names = {old: f"{prefix}_{number}" for number, old in enumerate(engine_names)}
    functions = {
        function.signature.name: f"{prefix}_{function.signature.name}" for function in graph_def.library.function
    }
    functions.update({f"{old}_native_segment": f"{new}_native_segment" for old, new in names.items()})
    graph.rename(graph_def, names, functions)
    return {graph.engine_name(old): new for old, new in names.items()}


def finished(
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    result: SignatureResult,
    work: Work,
    calls: Sequence[Call],
    folder: str | os.PathLike[str],
    tables: Sequence[EngineTable] = (),
    record: DataRecord | None = None,
    done: SignatureResult | None = None,
) -> Made:
    """Build the engines of a signature whose graph is complete, where calls are given, and make its function. Args: done: as of
    engines.build. Returns: Made."""
    settings = work.settings
    built: dict[str, Any] = {}
    if calls:
        assert work.gpu is not None, "without a GPU no shapes are declared"
        site = engines.Site(
            gpu=work.gpu,
            versions=work.versions,
            folder=folder,
            store=work.store,
            origin=work.origin,
            budget=work.budget,
        )
        result, built = engines.build(frozen, graph_def, result, settings, calls, site, done)
    left = {engine.name for engine in result.unbuilt}
    for node in graph.engine_nodes(graph_def):
        # An engine that was not ready in time here would make a request wait just as long.
        allowed = settings.allow_build_at_runtime and graph.engine_name(node.name) not in left
        graph.set_attributes(node, _allow_build_at_runtime=allowed)
    result = dataclasses.replace(result, engines=tuple(graph.engine_ops(graph_def)))
    return Made(
        result=result,
        function=tf_private.rebuild(graph_def, frozen),
        resources=built,
        tables=tuple(tables),
        record=record,
    )


def versions() -> dict[str, str]:
    """Versions of the converting stack: TensorFlow, TensorRT (linked and loaded), CUDA, cuDNN."""
    linked, loaded = tf_private.tensorrt_versions()
    return {
        "tensorflow": tf.__version__,
        "tensorrt_linked": linked,
        "tensorrt": loaded,
        **{
            key: value
            for key, value in tf.sysconfig.get_build_info().items()
            if key in ("cuda_version", "cudnn_version")
        },
    }


def check_built(results: Sequence[SignatureResult], budget: watched.Budget) -> None:
    """Raise where engines were requested and there is none. Args: results: SignatureResults; budget: watched.Budget.

    Raises: TftrtError: an engine was refused; CheckFailed: none was ready in time.
    """
    unbuilt = [engine for result in results for engine in result.unbuilt]
    if any(result.built for result in results):
        return
    for result in results:
        for left_engine in result.unbuilt:
            if left_engine.refused:
                raise errors.TftrtError(
                    f"engine {left_engine.name} of signature {result.name!r}: {left_engine.reason}", left_engine.mend
                )
    if unbuilt and budget.over:
        raise errors.CheckFailed(
            f"none of the {len(unbuilt)} engines was ready within --max_build_minutes={budget.minutes:g}",
            "give more minutes, or fewer --shapes: each is a profile to build",
        )
