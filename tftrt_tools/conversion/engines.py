"""Building engines on the GPU for declared shapes: one engine op after the other, from the cache where it has the engine."""

import dataclasses
import pathlib
import time

import tensorflow as tf

from tftrt_tools import errors, native_log, progress, tf_private
from tftrt_tools.conversion import engine_inputs
from tftrt_tools.conversion.result import BuiltEngine
from tftrt_tools.engine_cache import key as keys
from tftrt_tools.execution import build_log
from tftrt_tools.execution import inputs as random_inputs
from tftrt_tools.execution.gpu_memory import PeakMemory
from tftrt_tools.savedmodel import engine_assets, graph, loading, segments
from tftrt_tools.savedmodel import shapes as shape_grammar


@dataclasses.dataclass(frozen=True)
class Site:
    """Where engines are built and kept. gpu: of execution.gpu.seen; versions: of finishing.versions; folder: for the engine files; store:
    engine_cache.Store, or None for no cache; origin: the model, for the cache's record."""

    gpu: dict
    versions: dict
    folder: str
    store: object
    origin: str


def build(frozen, graph_def, result, settings, calls, site):
    """Build the engines of one signature for declared shapes.

    Each engine op is built with the others running natively: so an engine has its own seconds, memory and error.

    Args:
      frozen: graph_pass.Frozen of the signature; graph_def: its converted graph, with the final engine names.
      result: SignatureResult. calls: [{input: shape}]. site: Site.

    Returns: (SignatureResult with what was built, {engine name: trackable resource}; {} where engines are not to be saved).

    Raises: TftrtError where an engine did not build.
    """
    wanted = _wanted(calls, settings)
    cached = max(settings.maximum_cached_engines, len(wanted))
    graph.set_on_engines(graph_def, max_cached_engines_count=cached)
    result = dataclasses.replace(result, engines=tuple(graph.engine_ops(graph_def)))
    builder = _Builder(frozen, graph_def, result, settings, wanted, site)
    start = time.monotonic()
    built, resources = [], {}
    for number, engine in enumerate(result.engines):
        path = pathlib.Path(site.folder) / (engine_assets.PREFIX + engine.name)
        built += builder.engine(engine, path, f"{number + 1} of {len(result.engines)}")
        resources[engine.name] = tf_private.engine_resource(engine.name, path, cached)
    seconds = round(time.monotonic() - start, 2)
    # All were built: a profile of one shape tells sizes that the graph leaves open.
    result = dataclasses.replace(result, calls=tuple(calls), built=tuple(built), build_seconds=seconds, findings=())
    return result, resources if settings.save_engines else {}


def _wanted(calls, settings):
    """The calls to build for. In implicit batch mode an engine serves all smaller batches: of a range only opt and max need one, and the
    smaller comes first, since it would find the larger's otherwise."""
    if settings.dynamic:
        return calls
    if shape_grammar.is_range(settings.shapes):
        if any(low[name][1:] != high[name][1:] for low, high in zip(calls, calls[1:], strict=False) for name in low):
            raise errors.UsageError("--shapes gives a range beyond the batch size, and the model is in implicit batch mode",
                                    "convert with --use_dynamic_shape")
        calls = calls[1:]
    return sorted(calls, key=lambda call: [call[name] for name in sorted(call)])


class _Builder:
    """Builds the engines of one signature."""

    def __init__(self, frozen, graph_def, result, settings, calls, site):
        self._frozen, self._graph_def, self._result, self._settings = frozen, graph_def, result, settings
        self._calls, self._site = calls, site
        self._keys = self._cache_keys() if site.store else {}

    def engine(self, engine, path, position):
        """The BuiltEngines of one engine op (several in implicit batch mode); its file is at `path` afterwards."""
        key = self._keys.get(engine.name)
        if key is None:
            return self._build(engine, path, position)
        store = self._site.store
        with store.lock(key):
            found = store.get(key, path)
            if found.hit:
                progress.say(f"engine {position} of {self._result.name} comes from the cache")
                return _described(path, found.record.build_seconds, None, cached=True)
            built = self._build(engine, path, position)
            store.put(key, path, built[0].seconds, f"{self._site.origin} {engine.name}", self._site.gpu.get("driver", ""))
            return built

    def _build(self, engine, path, position):
        graph_def = type(self._graph_def)()
        graph_def.CopyFrom(self._graph_def)
        graph.native(graph_def, keep={engine.name})
        settings = self._settings
        # The converter's precision is that of a graph pass, which does not run here; each engine op has its own.
        converter = tf_private.GraphPass(
            precision_mode="FP32", minimum_segment_size=settings.minimum_segment_size,
            max_workspace_size_bytes=settings.max_workspace_size_bytes, use_calibration=False, use_dynamic_shape=settings.dynamic,
            dynamic_shape_profile_strategy=settings.strategy)
        converter.adopt(graph_def, tf_private.rebuild(graph_def, self._frozen))
        start, logged = time.monotonic(), native_log.position()
        with PeakMemory() as memory:
            self._run(converter, position)
            seconds = time.monotonic() - start
            written = tf_private.serialize_engines(engine.name, path)
        built = _described(path, round(seconds, 2), memory.bytes, cached=False) if written else []
        if not built:
            raise self._failed(engine, build_log.reason(native_log.since(logged)))
        return built

    def _run(self, converter, position):
        name = self._result.name

        def feed():
            for call in self._calls:
                progress.say(f"building engine {position} of {name} for {shape_grammar.call_text(call)}")
                arrays = random_inputs.random(self._result.inputs, call, seed=0)
                # In order, not by name: for its profiles TF-TRT makes a function of its own, whose arguments are named after nodes.
                yield [tf.constant(arrays[key]) for key in self._frozen.input_names]
            progress.say(f"building engine {position} of {name}")

        try:
            converter.build(feed)
        except tf.errors.OpError as error:
            if loading.is_out_of_gpu_memory(error):
                mend = "give fewer or smaller --shapes, a --max_workspace_size_bytes, or " + loading.GPU_MEMORY_MEND
                raise errors.TftrtError(f"out of GPU memory while building engine {position} of {name!r}: {loading.first_line(error)}",
                                        mend) from None
            raise errors.TftrtError(f"signature {name!r} fails at the declared shapes: {loading.first_line(error)}",
                                    "check --shapes") from None

    def _failed(self, engine, reason):
        what = f"engine {engine.name} of signature {self._result.name!r} ({engine.precision}, {engine.compute_ops} ops) did not build"
        known = next((one for one in self._result.findings if one.about == engine.name), None)
        if known:
            return errors.TftrtError(f"{what}: {reason or known.text}", known.mend)
        mend = "out of memory: a --max_workspace_size_bytes or smaller --shapes; an op that TensorRT refuses: --keep_native_ops"
        if not reason:
            return errors.TftrtError(f"{what}, and its log does not say why", f"run again with --log_file=FILE and read it; {mend}")
        return errors.TftrtError(f"{what}: {reason}", mend)

    def _cache_keys(self):
        """{engine name: EngineKey}; engine ops inside functions have none, nor those that no call reaches."""
        inputs = engine_inputs.of_calls(self._frozen, self._graph_def, self._result.inputs, self._calls)
        plain = segments.engine_digests(self._graph_def, names=False)
        named = segments.engine_digests(self._graph_def, names=True)
        tables = {graph.engine_name(node.name): node.attr["calibration_data"].s for node in graph.engine_nodes(self._graph_def)}
        return {engine.name: self._key(engine, inputs[engine.name], plain[engine.name], named[engine.name], tables[engine.name])
                for engine in self._result.engines if inputs.get(engine.name) and engine.name in plain}

    def _key(self, engine, calls, digest, named, table):
        versions, gpu = self._site.versions, self._site.gpu
        return keys.EngineKey(
            segment_digest=digest, inputs=tuple((one.dtype, one.shape) for one in engine.inputs), calls=calls, precision=engine.precision,
            implicit_batch=engine.implicit_batch, profile_strategy=engine.profile_strategy,
            max_workspace_size_bytes=engine.workspace_size_bytes, maximum_cached_engines=engine.maximum_cached_engines,
            tf32_allowed=tf.config.experimental.tensor_float_32_execution_enabled(), tensorflow=versions["tensorflow"],
            tensorrt=versions["tensorrt"], tensorrt_linked=versions["tensorrt_linked"], compute_capability=gpu["compute_capability"],
            gpu=gpu["name"], cuda=versions.get("cuda_version", ""), cudnn=versions.get("cudnn_version", ""),
            use_calibration=engine.use_calibration and engine.precision == "INT8", explicit_precision=engine.explicit_precision,
            calibration_digest=keys.digest_of_text(table), names_digest=named if table else "", environment=keys.environment())


def _described(path, seconds, memory, cached):
    return [BuiltEngine(asset.engine, asset.input_shapes, asset.bytes, seconds, memory, cached) for asset in engine_assets.read_file(path)]
