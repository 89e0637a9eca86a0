"""Building engines on the GPU for declared shapes: one engine op after the other, from the cache where it has the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tftrt_tools.base import errors, tf_private
from tftrt_tools.base.process import native_log, progress
from tftrt_tools.models.engine_cache import key as keys
from tftrt_tools.models.engine_cache.entry import Hit
from tftrt_tools.models.engine_cache.job import turns
from tftrt_tools.models.execution.job import build_log
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.execution.job.gpu_memory import PeakMemory
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.job import graph, loading, lone_engine, segments, slices, unbuildable
from tftrt_tools.tftrt.conversion.job import beside, build_progress, engine_inputs, watched
from tftrt_tools.tftrt.conversion.job.timing_cache import TimingCache
from tftrt_tools.tftrt.conversion.signature_result import NOT_BUILT, BuiltEngine, Unbuilt

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.models.engine_cache.key import EngineKey, Fed
    from tftrt_tools.models.engine_cache.store import Store
    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.job.lone_engine import LoneEngine
    from tftrt_tools.models.savedmodel.shapes import Call
    from tftrt_tools.tftrt.conversion.job.engine_inputs import Feed
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen
    from tftrt_tools.tftrt.conversion.settings import Settings
    from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

NOT_REACHED = "no declared shape reaches it: it is in a branch or loop that was not run"
BY_VALUES = (
    "its shapes depend on what the inputs hold, not on their shapes alone, so that no declared shapes cover them"
)
IN_A_FUNCTION = "it is inside a function, whose shapes are not known"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """Where engines are built and kept."""

    # The GPU, by execution.job.gpu.seen.
    gpu: Mapping[str, Any]
    # The versions of finishing.versions.
    versions: Mapping[str, str]
    # For the engine files.
    folder: str | os.PathLike[str]
    # The engine cache, None for none.
    store: Store | None
    # The model, for the cache's record.
    origin: str
    # The limit of the time of all builds.
    budget: watched.Budget = dataclasses.field(default_factory=watched.Budget)


def build(
    frozen: Frozen,
    graph_def: graph_pb2.GraphDef,
    result: SignatureResult,
    settings: Settings,
    calls: Sequence[Call],
    site: Site,
    done: SignatureResult | None = None,
) -> tuple[SignatureResult, dict[str, Any]]:
    """Build the engines of one signature for declared shapes.

    Each engine op is built alone, in a graph of its own that gets the same inputs as in the model. So an engine has its own seconds,
    memory and error, and TensorFlow computes nothing else of the model for it.

    Args:
      frozen: graph_pass.Frozen of the signature; graph_def: its converted graph, with the final engine names.
      result: SignatureResult. calls: [{input: shape}]. site: Site. done: of an earlier build of the same signature, with the same calls and
        folder: engine ops that have their names from there are not built again.

    Returns: (SignatureResult with built and unbuilt engines, {engine name: trackable resource}; {} if engines are not to be saved).

    An engine that TF-TRT or TensorRT refuses is left unbuilt with the reason; the others are built.

    Raises: TftrtError where the model fails at these shapes, or GPU memory runs out.
    """
    calls_to_build = _wanted(calls, settings)
    inputs = engine_inputs.of_calls(frozen, graph_def, result.inputs, calls_to_build)
    if not settings.dynamic:
        # The smallest batch first: the engine of the largest serves all smaller ones, so after it none would be built for them.
        ordered = {
            engine: tuple(sorted(own, key=lambda feed: [tensor.shape for tensor in feed]))
            for engine, own in inputs.feeds.items()
        }
        inputs = dataclasses.replace(inputs, feeds=ordered)
    cached = max(settings.maximum_cached_engines, len(calls_to_build), *map(len, inputs.feeds.values()))
    graph.set_on_engines(graph_def, max_cached_engines_count=cached)
    result = dataclasses.replace(result, engines=tuple(graph.engine_ops(graph_def)))
    kept = _by_name((*done.built, *done.unbuilt) if done else ())
    builder = _Builder(graph_def, result, settings, inputs, site, kept.keys())
    start = time.monotonic()
    built: list[BuiltEngine] = []
    unbuilt: list[Unbuilt] = []
    resources: dict[str, Any] = {}
    kept.update(builder.cached())
    with builder.helped(kept):
        for engine in result.engines:
            found = kept.get(engine.name) or builder.engine(engine)
            if isinstance(found, Unbuilt):
                unbuilt.append(found)
                continue
            built += found
            resources[engine.name] = tf_private.engine_resource(engine.name, builder.path(engine.name), cached)
    seconds = round(time.monotonic() - start + ((done and done.build_seconds) or 0.0), 2)
    result = dataclasses.replace(
        result,
        calls=tuple(calls),
        built=tuple(built),
        unbuilt=tuple(unbuilt),
        build_seconds=seconds,
        findings=unbuildable.standing(
            result.findings,
            {built_engine.name for built_engine in built},
            {built_engine.name for built_engine in built if built_engine.slices},
        ),
    )
    return result, resources if settings.save_engines else {}


def _by_name(done: Iterable[BuiltEngine | Unbuilt]) -> dict[str, Unbuilt | list[BuiltEngine]]:
    """{engine: what _Builder.engine gave for it}."""
    named: dict[str, Unbuilt | list[BuiltEngine]] = {}
    for one in done:
        if isinstance(one, Unbuilt):
            named[one.name] = one
        elif isinstance(engines := named.setdefault(one.name, []), list):
            engines.append(one)
    return named


def _wanted(calls: Sequence[Call], settings: Settings) -> Sequence[Call]:
    """The calls to build for. In implicit batch mode an engine serves all smaller batches: a range needs one for opt and one for max."""
    if not settings.dynamic and shape_grammar.is_range(settings.shapes):
        if any(low[name][1:] != high[name][1:] for low, high in zip(calls, calls[1:], strict=False) for name in low):
            raise errors.UsageError(
                "--shapes gives a range beyond the batch size, and the model is in implicit batch mode",
                "convert with --use_dynamic_shape",
            )
        return calls[1:]
    return calls


class Refused(Exception):
    """TF-TRT or TensorRT refused to build an engine. Its text: the reason, "" where the log has none."""


def written(
    lone: LoneEngine,
    feeds: Sequence[Feed],
    dynamic: bool,
    path: str | os.PathLike[str],
    gpu: str,
    timings: TimingCache,
    shown: build_progress.Shown,
    what: str,
) -> list[BuiltEngine]:
    """Build an engine op in this process, and write its engines to `path`.

    Args: gpu: the GPU's identity. shown: is told what goes on. what: the engine in messages, such as "engine 1 of 2 of signature 's'".
    Returns: the BuiltEngines. Raises: Refused; TftrtError where it fails at these shapes, or memory runs out.
    """
    node = next(node for node in lone.graph_def.node if node.name == lone.node)
    dtypes = [tf.dtypes.as_dtype(dtype).name for dtype in node.attr["InT"].list.type]
    tensors = [[_tensor(fed, dtype) for fed, dtype in zip(feed, dtypes, strict=True)] for feed in feeds]
    with turns.turn(gpu, shown.waits), timings.shared():
        start, logged = time.monotonic(), native_log.position()
        shown.runs(logged)
        with PeakMemory() as memory:
            _compile(lone, tensors, dynamic, what)
            seconds = time.monotonic() - start
            some = tf_private.serialize_engines(lone.node, path)
    built = _described(path, round(seconds, 2), memory.bytes, cached=False) if some else []
    if not built:
        raise Refused(build_log.reason(native_log.since(logged)))
    return built


def _compile(lone: LoneEngine, feeds: Sequence[Sequence[Any]], dynamic: bool, what: str) -> None:
    try:
        compile_engines(lone, feeds, dynamic)
    except tf.errors.OpError as error:
        if loading.is_out_of_gpu_memory(error):
            mend = "give fewer or smaller --shapes, a --max_workspace_size_bytes, or " + loading.GPU_MEMORY_MEND
            raise errors.TftrtError(
                f"out of GPU memory while building {what}: {loading.first_line(error)}", mend
            ) from None
        raise errors.TftrtError(
            f"{what} fails at the declared shapes: {loading.first_line(error)}", "check --shapes"
        ) from None


class _Builder:
    """Builds the engines of one signature."""

    def __init__(
        self,
        graph_def: graph_pb2.GraphDef,
        result: SignatureResult,
        settings: Settings,
        inputs: engine_inputs.Inputs,
        site: Site,
        kept: Collection[str],
    ) -> None:
        """Args: kept: names of engine ops that are not built here."""
        self._graph_def, self._result, self._settings = graph_def, result, settings
        self._feeds, self._by_values, self._site = inputs.feeds, inputs.by_values, site
        self._lone = {
            engine_op.name: self._alone(engine_op)
            for engine_op in result.engines
            if self._feeds.get(engine_op.name) and engine_op.name not in kept
        }
        self._keys = self._cache_keys() if site.store else {}
        self._gpu = gpu_module.identity()
        self._timings = TimingCache.of(site.store, site.versions, site.gpu, self._gpu)
        self._shown = build_progress.Shown()
        self._positions = {
            engine_op.name: f"{number} of {len(result.engines)}" for number, engine_op in enumerate(result.engines, 1)
        }
        self._helpers: beside.Helpers | None = None

    def path(self, engine: str) -> pathlib.Path:
        """Where the file of an engine op's engines is written."""
        return pathlib.Path(self._site.folder) / (engine_assets.PREFIX + engine)

    def cached(self) -> dict[str, list[BuiltEngine]]:
        """{engine op: what the cache has}, of those that are to be built. It takes no time of the builds."""
        found = {name: self._cached(name) for name in self._lone}
        return {name: engines for name, engines in found.items() if engines}

    @contextlib.contextmanager
    def helped(self, kept: Collection[str]) -> Iterator[None]:
        """Inside the block other processes build on other GPUs, if the user gives any, what this one has not begun. Args: kept: names of
        engine ops that need no build."""
        left = [name for name in self._lone if name not in kept]
        gpus = beside.gpus() if len(left) > 1 else ()
        if not gpus:
            yield
            return
        # The first one is for this process.
        others = left[1:]
        with beside.helpers(gpus[: len(others)], others, self._made_beside) as self._helpers:
            yield
        self._helpers = None

    def _alone(self, engine: EngineOp) -> tuple[LoneEngine, tuple[str, ...]]:
        """(the engine op alone, names of its slices that are fixed for these calls)."""
        lone, feeds = lone_engine.alone(self._graph_def, engine.name), self._feeds[engine.name]
        segment = graph.native_segments(lone.graph_def).get(engine.name)
        if segment is None or not self._settings.dynamic or len(feeds) == 1:
            return lone, ()
        fixed = slices.fix(segment.function, segment.shapes, [[tensor.shape for tensor in feed] for feed in feeds])
        if fixed:
            lone_engine.with_changed_segment(lone)
        return lone, fixed

    def engine(self, engine: EngineOp) -> Unbuilt | list[BuiltEngine]:
        """The BuiltEngines of one engine op (several in implicit batch mode), with their file at `path`; or Unbuilt."""
        if engine.name in self._by_values:
            return Unbuilt(name=engine.name, reason=BY_VALUES)
        if not self._feeds.get(engine.name):
            return Unbuilt(name=engine.name, reason=NOT_REACHED if engine.name in self._feeds else IN_A_FUNCTION)
        budget, position = self._site.budget, self._positions[engine.name]
        until = budget.until()
        late = Unbuilt.late(engine.name, budget.minutes or 0)
        if budget.over:
            return self._made_in_time(engine.name) or late
        self._shown.begin(f"building engine {position} of {self._result.name}", self._what(engine))
        try:
            return watched.run(lambda: self._made_anywhere(engine.name), self._shown.tick, until)
        except watched.NotReady:
            return late
        except Refused as error:
            return self._refused(engine, str(error))

    def _what(self, engine: EngineOp) -> str:
        feeds = self._feeds[engine.name]
        if engine.implicit_batch:
            return "for " + ", ".join("x".join(map(str, feed[0].shape)) or "a scalar" for feed in feeds)
        return (
            "with one profile"
            if len(feeds) == 1 or engine.profile_strategy == "Range"
            else f"with {len(feeds)} profiles"
        )

    def _made_anywhere(self, engine: str) -> list[BuiltEngine]:
        """What a helper has begun, or what is made here. What a helper cannot make, this process tries: its GPU may have been full."""
        helpers = self._helpers
        begun = helpers and helpers.begun(engine)
        if helpers and begun:
            with self._shown.beside():
                if not (error := begun.exception()):
                    return begun.result()
            if helpers.ended:  # with the time of the builds; nobody waits for this engine any more
                raise error
        return self._made(engine, self._build, self._shown)

    def _made_in_time(self, engine: str) -> list[BuiltEngine] | None:
        """What a helper made before the time was over, or None."""
        begun = self._helpers and self._helpers.begun(engine)
        return begun.result() if begun and begun.done() and not begun.exception() else None

    def _made_beside(self, engine: str, call: beside.Call) -> list[BuiltEngine]:
        """As _made. Args: call: a job of a helper."""
        return self._made(engine, lambda name: self._built_beside(name, call), build_progress.Silent())

    def _made(
        self, engine: str, build: Callable[[str], list[BuiltEngine]], shown: build_progress.Shown
    ) -> list[BuiltEngine]:
        store, key = self._site.store, self._keys.get(engine)
        if key is None or store is None:
            return self._with_slices(engine, build(engine))
        with store.lock(key, shown.waits):
            cached = self._cached(engine)
            if cached:
                return cached
            built = self._with_slices(engine, build(engine))
            origin = f"{self._site.origin} {engine}"
            store.put(key, self.path(engine), built[0].seconds, origin, self._site.gpu.get("driver", ""))
            return built

    def _cached(self, engine: str) -> list[BuiltEngine] | None:
        """The BuiltEngines that the cache has, copied to their place, or None."""
        store, key, path = self._site.store, self._keys.get(engine), self.path(engine)
        entry = store.get(key, path) if store and key else None
        if not isinstance(entry, Hit):
            return None
        progress.say(f"engine {self._positions[engine]} of {self._result.name} comes from the cache")
        return self._with_slices(engine, _described(path, entry.record.build_seconds, None, cached=True))

    def _with_slices(self, engine: str, built: Sequence[BuiltEngine]) -> list[BuiltEngine]:
        return [dataclasses.replace(one, slices=self._lone[engine][1]) for one in built]

    def _build(self, engine: str) -> list[BuiltEngine]:
        return written(
            self._lone[engine][0],
            self._feeds[engine],
            self._settings.dynamic,
            self.path(engine),
            self._gpu,
            self._timings,
            self._shown,
            self._named(engine),
        )

    def _built_beside(self, engine: str, call: beside.Call) -> list[BuiltEngine]:
        site = self._site
        done = call(
            self._lone[engine][0],
            beside.Asked(
                feeds=self._feeds[engine],
                dynamic=self._settings.dynamic,
                path=str(self.path(engine)),
                gpu=site.gpu,
                versions=site.versions,
                cache=beside.place(site.store),
                what=self._named(engine),
            ),
        )
        if done.refused is not None:
            raise Refused(done.refused)
        return list(done.built)

    def _named(self, engine: str) -> str:
        return f"engine {self._positions[engine]} of signature {self._result.name!r}"

    def _refused(self, engine: EngineOp, reason: str) -> Unbuilt:
        """The Unbuilt of a refusal. Args: reason: of build_log.reason."""
        mend = "out of memory: a --max_workspace_size_bytes or smaller --shapes; an op that TensorRT refuses: --keep_native_ops"
        segment = graph.native_segments(self._graph_def).get(engine.name)
        if reported := next((finding for finding in self._result.findings if finding.about == engine.name), None):
            reason, mend = reason or reported.text, reported.mend
        elif not reason:
            reason, mend = "its log does not say why", f"run again with --log_file=FILE and read it; {mend}"
        named = build_log.node_of_segment(reason, segment.function.node_def if segment else ())
        # Some refusals of TF-TRT name no node; the rules that foresee them do.
        known = reported.nodes if reported else ()
        node, *more = dict.fromkeys((*filter(None, (named,)), *known)) or ("",)
        if node and not reported:
            mend = f"--keep_native_nodes='{re.escape(node)}' leaves this node to TensorFlow; the rest may be built then"
        return Unbuilt(
            name=engine.name, reason=NOT_BUILT + reason, refused=True, mend=mend, node=node, more_nodes=tuple(more)
        )

    def _cache_keys(self) -> dict[str, EngineKey]:
        """{engine name: EngineKey}, without engine ops inside functions and those that no call reaches."""
        plain = segments.engine_digests(self._graph_def, names=False)
        named = segments.engine_digests(self._graph_def, names=True)
        tables = {
            graph.engine_name(node.name): node.attr["calibration_data"].s
            for node in graph.engine_nodes(self._graph_def)
        }
        for name, (lone, fixed) in self._lone.items():
            if fixed:
                plain[name] = segments.engine_digests(lone.graph_def, names=False)[name]
        return {
            engine.name: self._key(
                engine, self._feeds[engine.name], plain[engine.name], named[engine.name], tables[engine.name]
            )
            for engine in self._result.engines
            if engine.name in self._lone and engine.name in plain
        }

    def _key(self, engine: EngineOp, calls: tuple[Feed, ...], digest: str, named: str, table: bytes) -> EngineKey:
        versions, gpu = self._site.versions, self._site.gpu
        return keys.EngineKey(
            segment_digest=digest,
            inputs=tuple(keys.DeclaredInput(tensor.dtype, tensor.shape) for tensor in engine.inputs),
            calls=calls,
            precision=engine.precision,
            implicit_batch=engine.implicit_batch,
            profile_strategy=engine.profile_strategy,
            max_workspace_size_bytes=engine.workspace_size_bytes,
            maximum_cached_engines=engine.maximum_cached_engines,
            tf32_allowed=tf.config.experimental.tensor_float_32_execution_enabled(),
            tensorflow=versions["tensorflow"],
            tensorrt=versions["tensorrt"],
            tensorrt_linked=versions["tensorrt_linked"],
            compute_capability=gpu["compute_capability"],
            gpu=gpu["name"],
            cuda=versions.get("cuda_version", ""),
            cudnn=versions.get("cudnn_version", ""),
            use_calibration=engine.use_calibration and engine.precision == "INT8",
            explicit_precision=engine.explicit_precision,
            calibration_digest=keys.digest_of_text(table),
            names_digest=named if table else "",
            environment=keys.environment(),
        )


def _described(
    path: str | os.PathLike[str], seconds: float | None, memory: int | None, cached: bool
) -> list[BuiltEngine]:
    return [
        BuiltEngine(
            name=asset.engine,
            shapes=asset.input_shapes,
            bytes=asset.bytes,
            seconds=seconds,
            peak_memory_bytes=memory,
            cached=cached,
        )
        for asset in engine_assets.read_file(path)
    ]


def _tensor(fed: Fed, dtype: str) -> Any:
    """A tensor to build with: TensorRT looks at its shape, and at its values only where it is a shape tensor."""
    values = np.zeros(fed.shape, dtype) if fed.values is None else np.reshape(np.array(fed.values, dtype), fed.shape)
    return tf.constant(values)


def compile_engines(lone: LoneEngine, feeds: Sequence[Sequence[Any]], dynamic: bool) -> None:
    """Have TF-TRT build the engines of an engine op, in this process.

    In explicit batch mode all calls run first in the mode that collects shapes, then one call builds for them, as in
    TrtGraphConverterV2.build.

    Args: lone: lone_engine.LoneEngine; feeds: a list of tensors for each shape. Raises: tf.errors.OpError.
    """
    if dynamic:
        collecting = lone_engine.collecting(lone)
        collect = tf_private.running(collecting.graph_def, collecting.inputs, collecting.node)
        for tensors in feeds:
            collect(*tensors)
    function = tf_private.running(lone.graph_def, lone.inputs, lone.node)
    for tensors in feeds[:1] if dynamic else feeds:
        function(*tensors)
