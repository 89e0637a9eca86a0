"""The conversion itself: every signature of a loaded SavedModel through the graph pass, engines built, all of it saved.

Runs in a child process (`job`); `pipeline` calls it.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil
import tempfile

import tensorflow as tf

from tftrt_tools import errors, progress, tf_private
from tftrt_tools.conversion import engines, graph_pass, int8
from tftrt_tools.conversion.result import SignatureResult
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.engine_cache.store import Store
from tftrt_tools.execution import gpu as gpu_module
from tftrt_tools.savedmodel import graph, loading, signatures
from tftrt_tools.savedmodel import shapes as shape_grammar


def job(request):
    """Convert in this process.

    Args:
      request: {"source": SavedModel directory, "output": empty directory or None for a dry run, "settings": Settings.to_dict(),
        "int8": int8.Source.to_dict(), "cache": {"folder", "max_bytes"} of the engine cache, or None for none}.

    Returns: {"signatures": [SignatureResult dicts], "versions": {…}, "gpu": {…} or None, "tables": [EngineTable dicts], "data": [DataRecord
      dicts, one a calibrated signature], "cache_problem": why the engine cache did not work, or ""}.
    """
    settings = Settings.from_dict(request["settings"])
    gpu = gpu_module.seen()
    if settings.shapes and gpu is None:
        raise errors.TftrtError("--shapes builds engines, and engines need a GPU; none is visible here",
                                "leave --shapes out to convert here and build on the target, or run on a machine with a GPU")
    source = pathlib.Path(request["source"])
    progress.say("loading the model")
    model = loading.load(source, settings.tags)
    chosen = signatures.chosen(list(model.root.signatures), settings.signature_keys)
    work = _Work(settings, int8.Source.from_dict(request["int8"]), gpu, versions(), _store(request["cache"], settings), str(source))
    specs = {name: loading.input_specs(model.root.signatures[name]) for name in model.root.signatures}
    calls = shape_grammar.calls(shape_grammar.parse(settings.shapes), {name: specs[name] for name in chosen}) if settings.shapes else {}
    prefix = _prefix(source, settings)
    results, functions, resources, tables, records = [], {}, {}, [], []
    with tempfile.TemporaryDirectory(prefix="tftrt-engines-") as folder:
        for index, name in enumerate(chosen):
            progress.say(f"converting signature {name}", index, len(chosen))
            frozen = graph_pass.freeze(name, model.root.signatures[name])
            made = _signature(name, frozen, work, f"{prefix}_{index}", calls.get(name, []), folder)
            results.append(made.result)
            if made.function:
                functions[name] = made.function
                resources.update(made.resources)
            tables += made.tables
            records += [made.record] if made.record else []
        for name in model.root.signatures:
            if name not in chosen:
                results.append(SignatureResult.untouched(name, specs[name]))
        if request["output"] and (functions or settings.allow_no_engines):
            progress.say("saving")
            _save(model, functions, resources, source, pathlib.Path(request["output"]))
    return {"signatures": [result.to_dict() for result in results], "versions": work.versions, "gpu": gpu,
            "tables": [one.to_dict() for one in tables], "data": [one.to_dict() for one in records],
            "cache_problem": work.store.problem if work.store else ""}


@dataclasses.dataclass(frozen=True)
class _Work:
    """What is the same for all signatures of a conversion."""

    settings: Settings
    int8: int8.Source
    gpu: dict | None
    versions: dict
    store: object
    origin: str


@dataclasses.dataclass(frozen=True)
class _Made:
    """One converted signature. function: None where it has no engine; resources: {engine name: trackable}; tables: EngineTables;
    record: DataRecord of a calibration, or None."""

    result: SignatureResult
    function: object = None
    resources: dict = dataclasses.field(default_factory=dict)
    tables: tuple = ()
    record: object = None


def _store(cache, settings):
    return Store(cache["folder"], cache["max_bytes"]) if cache and settings.shapes else None


def _prefix(source, settings):
    """Engine names are keys of a cache that all models of a process share: the same name in two models means the wrong engine."""
    digest = hashlib.sha256((source / "saved_model.pb").read_bytes())
    digest.update(json.dumps(settings.to_dict(), sort_keys=True).encode())
    return "TRTEngineOp_" + digest.hexdigest()[:10]


def _signature(name, frozen, work, prefix, calls, folder):
    """Convert one signature. Returns: _Made."""
    _refuse_converted(frozen.graph_def)
    settings, specs = work.settings, loading.input_specs(frozen.original)
    passed = graph_pass.run(frozen, settings)
    result = SignatureResult.of(name, specs, passed)
    _check_quantization(name, passed.quantization, settings)
    if not passed.engines:
        return _Made(result)
    graph_def = passed.graph_def
    _unique_names(graph_def, prefix)
    tables, record = int8.tables(name, frozen, graph_def, specs, settings, work.int8, folder)
    int8.write(graph_def, tables)
    return _finished(frozen, graph_def, result, work, calls, folder, tables, record)


def _finished(frozen, graph_def, result, work, calls, folder, tables=(), record=None):
    """Build the engines of a signature whose graph is complete, where calls are given, and make its function. Returns: _Made."""
    settings, built = work.settings, {}
    if calls:
        site = engines.Site(work.gpu, work.versions, folder, work.store, work.origin)
        result, built = engines.build(frozen, graph_def, result, settings, calls, site)
    graph.set_on_engines(graph_def, _allow_build_at_runtime=settings.allow_build_at_runtime)
    result = dataclasses.replace(result, engines=tuple(graph.engine_ops(graph_def)))
    return _Made(result, tf_private.rebuild(graph_def, frozen), built, tables, record)


def _check_quantization(name, quantization, settings):
    """TF-TRT says nothing where it computes otherwise than the quantization nodes, or the precision, ask."""
    problems = quantization.problems
    if not quantization.aware or not problems or settings.allow_quantization_changes:
        return
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    raise errors.CheckFailed(f"quantization-aware signature {name!r}: {first.name} ({first.op}) {first.text}{more}",
                             (first.mend + "; " if first.mend else "") + "`tftrt inspect` lists all of it; "
                             "--allow_quantization_changes accepts it")


def _refuse_converted(graph_def):
    for node in graph.engine_nodes(graph_def):
        raise errors.UsageError(f"the model is converted already: it holds engine op {graph.engine_name(node.name)}",
                                "convert the original model; the manifest in assets.extra/tftrt names it")


def _unique_names(graph_def, prefix):
    """Rename engine ops, and all functions of the graph, which may share names with the original's in this process."""
    engine_names = [node.name for node in graph_def.node if node.op == graph.ENGINE_OP]
    names = {old: f"{prefix}_{number}" for number, old in enumerate(engine_names)}
    functions = {function.signature.name: f"{prefix}_{function.signature.name}" for function in graph_def.library.function}
    functions.update({f"{old}_native_segment": f"{new}_native_segment" for old, new in names.items()})
    graph.rename(graph_def, names, functions)


def _save(model, functions, resources, source, output):
    root = model.root
    if resources:
        root.trt_engine_resources = resources
    functions = {name: functions.get(name, root.signatures[name]) for name in root.signatures}
    try:
        tf.saved_model.save(root, str(output), signatures=functions)
    except (tf.errors.OpError, OSError) as error:
        raise _save_error(error, output) from None
    loading.restore_declarations(output, model)
    loading.copy_extras(source, output)


def _save_error(error, output):
    """TensorFlow reports a full disk in words of its own, or, of the checkpoint, only as a failed write."""
    text = loading.first_line(error)
    if shutil.disk_usage(output.parent).free < 1 << 20 or "No space left" in str(error):
        return errors.TftrtError(f"no space left on the disk of {output.parent}", "free space there, or choose another output directory")
    return errors.TftrtError(f"TensorFlow cannot save the model: {text}", "check the output directory; the log has more (--log_file)")


def versions():
    """Versions of what converts here: TensorFlow, TensorRT (linked and loaded), CUDA, cuDNN."""
    linked, loaded = tf_private.tensorrt_versions()
    return {"tensorflow": tf.__version__, "tensorrt_linked": linked, "tensorrt": loaded,
            **{key: value for key, value in tf.sysconfig.get_build_info().items() if key in ("cuda_version", "cudnn_version")}}

