"""Builds a plan; the child's side. TensorRT may end this process."""

from __future__ import annotations

import contextlib
import datetime
import json
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorrt as trt

from tftrt_tools import errors, progress
from tftrt_tools.conversion.job import watched
from tftrt_tools.conversion.job.timing_log import TimingLog
from tftrt_tools.engine_cache.job import turns
from tftrt_tools.engine_cache.timings import Timings
from tftrt_tools.execution.job import device, gpu
from tftrt_tools.models.plan.job import engine as engines
from tftrt_tools.models.plan.profiles import Profile
from tftrt_tools.plans.job import network as networks
from tftrt_tools.plans.settings import Settings


def check(_request: None) -> dict[str, str]:
    """What device.seen says. Raises: TftrtError where nothing can be built."""
    here = device.seen()
    if here is None:
        raise errors.TftrtError("no GPU is visible here, and TensorRT builds a plan on the kind of GPU that will run it",
                                "build it there; `tftrt export` makes the ONNX file without a GPU")
    return here


def job(request: dict[str, Any]) -> dict[str, Any]:
    """Build.

    Args: request: {"onnx": the file, "plan": where the plan goes, "timing_cache": where its timing cache goes, "profiles", "settings",
      "ranges": {tensor: range}, "timings": folder of the engine cache or None, "verbose": whether everything is logged}.
    Returns: {"tensorrt", "gpu": of device.seen, "inputs" and "outputs": [[name, the engine's dtype]], "profiles": how many, "creators":
      [those that each library of plugins added], "flags", "ranged": tensors that got a range, "seconds": {"parse", "build"},
      "known_timings": bytes of the timing cache that it began with, "layers": what the inspector says}. Raises: TftrtError.
    """
    here = check(None)
    settings = Settings.from_dict(request["settings"])
    log = engines.logger()
    log.verbose = request["verbose"]
    added = _plugins(settings)
    progress.say("reading the ONNX file")
    start = time.monotonic()
    try:
        builder = trt.Builder(log)
    except TypeError:  # 8.5 returns a null pointer
        raise errors.TftrtError(f"TensorRT {trt.__version__} does not start here: {engines.said()}",
                                "`tftrt doctor` says what is missing") from None
    network, parser = networks.parsed(trt, builder, log, request["onnx"], settings.strongly_typed)
    networks.check_inputs(network)
    profiles = tuple(map(Profile.from_dict, request["profiles"]))
    config, flags = networks.configured(trt, builder, network, profiles, settings, request["ranges"])
    ranged = networks.set_ranges(network, request["ranges"]) if request["ranges"] else 0
    parsed = time.monotonic()
    timings = Timings(pathlib.Path(request["timings"]) if request["timings"] else None,
                      {"for": "plans", "tensorrt": trt.__version__, **here})
    with turns.turn(gpu.identity(), progress.say), _timing_cache(config, timings, request["timing_cache"]) as known:
        begun = time.monotonic()
        log.errors.clear()
        plan = watched.run(lambda: builder.build_serialized_network(network, config), _Progress(log))
        built = time.monotonic()
        if plan is None:
            raise _unbuilt()
        plan = bytes(plan)
    del parser
    pathlib.Path(request["plan"]).write_bytes(plan)
    progress.say("looking at the plan's layers")
    engine = engines.runtime().deserialize_cuda_engine(plan)
    if engine is None:
        raise errors.TftrtError(f"TensorRT does not read the plan that it has built: {engines.said()}", "free memory of the GPU")
    inputs, outputs = ([[name, engines.dtype_name(engine.get_tensor_dtype(name))] for name in engines.names(engine, inputs=one)]
                       for one in (True, False))
    return {"tensorrt": trt.__version__, "gpu": here, "inputs": inputs, "outputs": outputs, "profiles": engine.num_optimization_profiles,
            "creators": added, "flags": flags, "ranged": ranged, "seconds": {"parse": parsed - start, "build": built - begun},
            "known_timings": known, "layers": _layers(engine)}


class _Progress:
    """Reports how far TensorRT is, by its log."""

    def __init__(self, log: engines.Log) -> None:
        self._log, self._known = log, TimingLog()
        log.heard = []
        progress.say("building the plan")

    def __call__(self, seconds: float) -> None:
        new, self._log.heard = self._log.heard or [], []
        self._known.feed("".join(f"{datetime.datetime.fromtimestamp(when):%Y-%m-%d %H:%M:%S.%f} {text}\n" for when, text in new))
        told = self._known.text()
        progress.say(f"building the plan, {seconds:.0f} s" + (f": {told}" if told else ""))


def _plugins(settings: Settings) -> list[list[str]]:
    engines.load_plugins([])
    added = []
    for path in settings.plugins:
        before = engines.creators()
        engines.load_plugins([path])
        added.append(sorted(engines.creators() - before))
    return added


@contextlib.contextmanager
def _timing_cache(config: Any, timings: Timings, output: str) -> Iterator[int]:
    """Let the build begin with the times that earlier builds have measured, and keep those of this one. Yields: bytes that were known."""
    known = timings.read()
    cache = config.create_timing_cache(known)
    if not config.set_timing_cache(cache, False):
        known = b""
        config.set_timing_cache(config.create_timing_cache(known), False)
    engines.said()
    with timings.trial() if known else contextlib.nullcontext():
        yield len(known)
    measured = bytes(config.get_timing_cache().serialize())
    timings.write(measured)
    pathlib.Path(output).write_bytes(measured)


def _unbuilt() -> errors.TftrtError:
    said = engines.said(count=3)
    if "memory" in said.lower() and "alloc" in said.lower() or "outofmemory" in said.lower().replace(" ", ""):
        return errors.TftrtError(f"the GPU's memory was not enough to build the plan: {said}",
                                 "free memory of the GPU, build for smaller shapes, or bound it with --max_workspace_size_bytes")
    return errors.TftrtError(f"TensorRT {trt.__version__} does not build the plan: {said or 'its log does not say why'}",
                             "--log_file keeps everything that it says; another --precision_mode or other --shapes may do")


def _layers(engine: trt.ICudaEngine) -> Mapping[str, Any]:
    """What the inspector says of each layer; its text where that is no JSON."""
    said = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    try:
        found = json.loads(said)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"text": said}
