"""Builds a plan; the child's side. TensorRT may end this process."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import pathlib
import time
from collections.abc import Iterator, Mapping

import tensorrt as trt

from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file
from tftrt_tools.base.process import progress
from tftrt_tools.models.engine_cache import timings
from tftrt_tools.models.engine_cache.job import turns
from tftrt_tools.models.engine_cache.timings import Timings
from tftrt_tools.models.execution.job import device, gpu
from tftrt_tools.models.kinds.plan.job import differences
from tftrt_tools.models.kinds.plan.job import engine as engines
from tftrt_tools.tensorrt.plans import building
from tftrt_tools.tensorrt.plans.building import Answer, Gpu, Machine, Request, Seconds
from tftrt_tools.tensorrt.plans.job import cached, mixed, reshapes, unread, valid
from tftrt_tools.tensorrt.plans.job import network as networks
from tftrt_tools.tensorrt.plans.settings import Settings
from tftrt_tools.tftrt.conversion.job import watched
from tftrt_tools.tftrt.conversion.job.timing_log import TimingLog


def check(_request: None) -> Machine:
    """This machine. Raises: TftrtError where nothing can be built."""
    return Machine(**_gpu().to_dict(), tensorrt=trt.__version__)


def _gpu() -> Gpu:
    """The one that is visible. Raises: TftrtError where nothing can be built."""
    here = device.seen()
    if here is None:
        raise errors.TftrtError(
            "no GPU is visible here, and TensorRT builds a plan on the kind of GPU that will run it",
            "build it there; `tftrt export` makes the ONNX file without a GPU",
        )
    return Gpu.from_dict(here)


def job(request: Request) -> Answer:
    """Build. Raises: TftrtError."""
    with valid.told(request.onnx):
        model = mixed.read(request.onnx)
        unread.check(model, trt.__version__)
    here = _gpu()
    settings = request.settings
    log = engines.logger()
    log.verbose = request.verbose
    added = _plugins(settings)
    progress.say("reading the ONNX file")
    start = time.monotonic()
    try:
        builder = trt.Builder(log)
    except TypeError:  # 8.5 returns a null pointer
        raise errors.TftrtError(
            f"TensorRT {trt.__version__} does not start here: {engines.said()}", "`tftrt doctor` says what is missing"
        ) from None
    network, parser = networks.parsed(trt, builder, log, request.onnx, settings.strongly_typed)
    networks.check_inputs(network)
    # With INT8 the types of a file say nothing: what lies between QuantizeLinear nodes is float32, too.
    with valid.told(request.onnx):
        wide = mixed.wide(model, by_types=settings.precision_mode == "FP16")
    free = settings.precision_mode != "FP32" and not differences.typed(trt, settings.strongly_typed)
    held = mixed.hold(trt, network, wide) if free else 0
    if wide.exact:
        settings = dataclasses.replace(settings, tf32=False)
        request = dataclasses.replace(request, settings=settings)
    config, flags = networks.configured(trt, builder, network, request.profiles, settings, request.ranges, held > 0)
    ranged = networks.set_ranges(network, request.ranges) if request.ranges else 0
    parsed = time.monotonic()
    store = request.cache.store() if request.cache else None
    times = store.folder if store and store.max_bytes and not timings.switched_off() else None
    work = _Work(
        builder,
        network,
        config,
        request,
        Timings(times, {"for": "plans", "tensorrt": trt.__version__, **here.to_dict()}),
    )
    made, engine = cached.made(
        store, lambda: cached.key(request, trt.__version__, here, held), request, here.driver, work.build, work.load
    )
    del parser
    if made.cached:
        work.keep_times()
    progress.say("looking at the plan's layers")
    layers = work.layers()
    inputs, outputs = (
        {name: engines.dtype_name(engine.get_tensor_dtype(name)) for name in engines.names(engine, inputs=one)}
        for one in (True, False)
    )
    return Answer(
        tensorrt=trt.__version__,
        gpu=here,
        inputs=inputs,
        outputs=outputs,
        creators=added,
        flags=flags,
        ranged=ranged,
        held=held,
        narrowed=mixed.narrowed(layers, wide) if held else (),
        misread=reshapes.misread(layers),
        seconds=Seconds(parse=parsed - start, build=made.seconds),
        cached=made.cached,
        known_timings=work.known,
        layers=layers,
        cache_problem=store.problem if store else "",
    )


class _Work:
    """TensorRT's part: a configured network becomes a plan. known: bytes of the timing cache that the build began with."""

    def __init__(
        self,
        builder: trt.Builder,
        network: trt.INetworkDefinition,
        config: trt.IBuilderConfig,
        request: Request,
        times: Timings,
    ) -> None:
        self._builder, self._network, self._config, self._request, self._timings = (
            builder,
            network,
            config,
            request,
            times,
        )
        self.known = 0
        self._budget = watched.Budget(request.minutes)
        self._engine: trt.ICudaEngine | None = None
        self._seen: Mapping[str, object] | None = None

    def build(self) -> float:
        """Write the plan, and the times of kernels. Returns: seconds. Raises: TftrtError."""
        return reshapes.built(
            self._once, self.layers, lambda names: reshapes.hold(trt, self._network, self._config, names)
        )

    def _once(self) -> float:
        self._engine, self._seen = None, None
        log = engines.logger()
        with turns.turn(gpu.identity(), progress.say), self._timing_cache():
            begun = time.monotonic()
            log.errors.clear()
            try:
                plan = watched.run(
                    lambda: self._builder.build_serialized_network(self._network, self._config),
                    _Progress(log),
                    self._budget.until(),
                )
            except watched.NotReady:
                raise building.late(self._request.minutes or 0) from None
            seconds = time.monotonic() - begun
            if plan is None:
                raise _unbuilt()
            plain_file.write_bytes(self._request.plan, bytes(plan))
        return seconds

    def load(self) -> trt.ICudaEngine:
        """The engine of the plan, loaded once for each build. Raises: TftrtError."""
        if self._engine is not None:
            return self._engine
        engine = engines.runtime().deserialize_cuda_engine(pathlib.Path(self._request.plan).read_bytes())
        if engine is None:
            raise errors.TftrtError(
                f"TensorRT does not read the plan: {engines.said()}",
                "free memory of the GPU, or build it without the engine cache (--noengine_cache)",
            )
        self._engine = engine
        return engine

    def layers(self) -> Mapping[str, object]:
        """What the inspector says of the engine's layers. Raises: TftrtError."""
        if self._seen is None:
            self._seen = _layers(self.load())
        return self._seen

    def keep_times(self) -> None:
        """Without a build: write the times that earlier ones have measured, if there are any."""
        if known := self._timings.read():
            plain_file.write_bytes(self._request.timing_cache, known)

    @contextlib.contextmanager
    def _timing_cache(self) -> Iterator[None]:
        """Let the build begin with the times that earlier builds have measured, and keep those of this one."""
        config, known = self._config, self._timings.read()
        cache = config.create_timing_cache(known)
        if not config.set_timing_cache(cache, False):
            known = b""
            config.set_timing_cache(config.create_timing_cache(known), False)
        engines.said()
        self.known = len(known)
        with self._timings.trial() if known else contextlib.nullcontext():
            yield
        measured = bytes(config.get_timing_cache().serialize())
        self._timings.write(measured)
        plain_file.write_bytes(self._request.timing_cache, measured)


class _Progress:
    """Reports how far TensorRT is, by its log."""

    def __init__(self, log: engines.Log) -> None:
        self._log, self._known = log, TimingLog()
        log.heard = []
        progress.say("building the plan")

    def __call__(self, seconds: float) -> None:
        new, self._log.heard = self._log.heard or [], []
        self._known.feed(
            "".join(f"{datetime.datetime.fromtimestamp(when):%Y-%m-%d %H:%M:%S.%f} {text}\n" for when, text in new)
        )
        told = self._known.text()
        progress.say(f"building the plan, {seconds:.0f} s" + (f": {told}" if told else ""))


def _plugins(settings: Settings) -> tuple[tuple[str, ...], ...]:
    engines.load_plugins([])
    added = []
    for path in settings.plugins:
        before = engines.creators()
        engines.load_plugins([path])
        added.append(tuple(sorted(engines.creators() - before)))
    return tuple(added)


def _unbuilt() -> errors.TftrtError:
    said = engines.said(count=3)
    if "memory" in said.lower() and "alloc" in said.lower() or "outofmemory" in said.lower().replace(" ", ""):
        return errors.TftrtError(
            f"the GPU's memory was not enough to build the plan: {said}",
            "free memory of the GPU, build for smaller shapes, or bound it with --max_workspace_size_bytes",
        )
    return errors.TftrtError(
        f"TensorRT {trt.__version__} does not build the plan: {said or 'its log does not say why'}",
        "--log_file keeps everything that it says; another --precision or other --shapes may do",
    )


def _layers(engine: trt.ICudaEngine) -> Mapping[str, object]:
    """What the inspector says of each layer; its text where that is no JSON."""
    said = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    try:
        found = json.loads(said)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"text": said}
