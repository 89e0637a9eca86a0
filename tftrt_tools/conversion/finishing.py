"""The second half of a conversion, which `build` shares: unique names, engines, the signature's function."""

import dataclasses
import hashlib
import json

import tensorflow as tf

from tftrt_tools import errors, tf_private
from tftrt_tools.conversion import engines, watched
from tftrt_tools.conversion.result import SignatureResult
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.engine_cache.store import Store
from tftrt_tools.savedmodel import graph


@dataclasses.dataclass(frozen=True)
class Work:
    """What is the same for all signatures of a conversion. store: engine_cache.Store or None; origin: the model's path, for the cache;
    budget: the time that builds may take."""

    settings: Settings
    gpu: dict | None
    versions: dict
    store: object
    origin: str
    budget: watched.Budget = dataclasses.field(default_factory=watched.Budget)


@dataclasses.dataclass(frozen=True)
class Made:
    """One converted signature. function: None where it has no engine; resources: {engine name: trackable}; tables: EngineTables;
    record: DataRecord of a calibration, or None."""

    result: SignatureResult
    function: object = None
    resources: dict = dataclasses.field(default_factory=dict)
    tables: tuple = ()
    record: object = None


def store(cache, settings):
    """The engine cache of a request ({"folder", "max_bytes"}), or None where nothing is built or it is switched off."""
    return Store(cache["folder"], cache["max_bytes"]) if cache and settings.shapes else None


def prefix(source, settings):
    """Engine names are keys of a cache that all models of a process share: the same name in two models means the wrong engine."""
    digest = hashlib.sha256((source / "saved_model.pb").read_bytes())
    digest.update(json.dumps(settings.to_dict(), sort_keys=True).encode())
    return "TRTEngineOp_" + digest.hexdigest()[:10]


def unique_names(graph_def, prefix):
    """Rename engine ops, and all functions of the graph, which may share names with the original's in this process."""
    engine_names = [node.name for node in graph_def.node if node.op == graph.ENGINE_OP]
    names = {old: f"{prefix}_{number}" for number, old in enumerate(engine_names)}
    functions = {function.signature.name: f"{prefix}_{function.signature.name}" for function in graph_def.library.function}
    functions.update({f"{old}_native_segment": f"{new}_native_segment" for old, new in names.items()})
    graph.rename(graph_def, names, functions)


def finished(frozen, graph_def, result, work, calls, folder, tables=(), record=None):
    """Build the engines of a signature whose graph is complete, where calls are given, and make its function. Returns: Made."""
    settings, built = work.settings, {}
    if calls:
        site = engines.Site(work.gpu, work.versions, folder, work.store, work.origin, work.budget)
        result, built = engines.build(frozen, graph_def, result, settings, calls, site)
    left = {one.name for one in result.unbuilt}
    for node in graph.engine_nodes(graph_def):
        # What had no time here is not to take it in a request.
        allowed = settings.allow_build_at_runtime and graph.engine_name(node.name) not in left
        graph.set_attributes(node, _allow_build_at_runtime=allowed)
    result = dataclasses.replace(result, engines=tuple(graph.engine_ops(graph_def)))
    return Made(result, tf_private.rebuild(graph_def, frozen), built, tables, record)


def versions():
    """Versions of what converts here: TensorFlow, TensorRT (linked and loaded), CUDA, cuDNN."""
    linked, loaded = tf_private.tensorrt_versions()
    return {"tensorflow": tf.__version__, "tensorrt_linked": linked, "tensorrt": loaded,
            **{key: value for key, value in tf.sysconfig.get_build_info().items() if key in ("cuda_version", "cudnn_version")}}


def check_built(results, budget):
    """Raise CheckFailed where engines were wanted and none was ready in time. Args: results: SignatureResults; budget: watched.Budget."""
    unbuilt = [one for result in results for one in result.unbuilt]
    if unbuilt and budget.over and not any(result.built for result in results):
        raise errors.CheckFailed(f"no engine was ready when --max_build_minutes={budget.minutes:g} were over, of {len(unbuilt)}",
                                 "give more minutes, or fewer --shapes: each is a profile to build")
