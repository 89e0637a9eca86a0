"""Records whole calls of models in one process: times without a trace, traces, several callers at once, and facts of the machine.

Every step that fails leaves its reason and nothing else, so that the others still count. What is known is written after each step: native
code may end this process.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tftrt_tools import errors, native_log, progress, tf_private
from tftrt_tools.bench import gpu_watch
from tftrt_tools.execution import run_job, trace
from tftrt_tools.execution.job import profiling, timing
from tftrt_tools.execution.runner import Arrays, Wanted
from tftrt_tools.models.savedmodel import runner_job
from tftrt_tools.savedmodel.job import protos
from tftrt_tools.stack import gpu_state_job

T = TypeVar("T")
# Events that mark a call and its stages in the trace.
CALL, INPUT, RUN, OUTPUT = "tftrt call", "tftrt input", "tftrt run", "tftrt output"
FACTS = "facts.json"
_PLANES = ("/host:CPU", "/device:GPU")
_MOST_BYTES = 900_000
_ROUND_SECONDS, _ROUNDS = 0.4, 5
_LEAST, _MOST = 10, 100


def record(request: dict[str, Any]) -> dict[str, Any]:
    """Record.

    Args: request: {"models": [{"name", "path", "calls": [{"signature", "inputs": .npz path, "renamed"} or None, …]}], of which each
      has an entry for each shape, "folder": where the traces go, "traced": calls of a trace, "callers": [1, 2, 4], "seconds": how
      long several callers are timed}.
    Returns: what facts.json in the folder holds: {"machine", "models": {name: facts}, "calls": [facts of each model's call at each
      shape], "failed": {step: why}}.
    """
    return _Recorder(request).all()


class _Recorder:
    def __init__(self, request: dict[str, Any]) -> None:
        self._request, self._folder = request, pathlib.Path(request["folder"])
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found: dict[str, Any] = {"machine": {}, "models": {}, "calls": [], "failed": {}}

    def all(self) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            self._found["machine"] = self._try("machine", machine) or {}
            loaded = {}
            for model in self._request["models"]:
                progress.say(f"loading {model['name']}")
                start = time.perf_counter()
                runner = self._try(f"loading {model['name']}", stack.enter_context,
                                   runner_job.load(model["path"], Wanted(label=model["name"])))
                if runner is not None:
                    loaded[model["name"]] = runner
                    self._found["models"][model["name"]] = {"load_seconds": time.perf_counter() - start, "where": runner.where.to_dict(),
                                                            **(self._try("reading", _model, model["path"]) or {})}
            for number in range(max((len(model["calls"]) for model in self._request["models"]), default=0)):
                self._shape(number, loaded)
        return _rounded(self._found)

    def _shape(self, number: int, loaded: dict[str, Any]) -> None:
        calls = {}
        for model in self._request["models"]:
            asked = model["calls"][number]
            if asked is None or model["name"] not in loaded:
                continue
            name = f"{model['name']}-{number}"
            one = self._try(name, Whole, loaded[model["name"]], asked["signature"], run_job.read_inputs(asked))
            if one is None:
                continue
            facts: dict[str, Any] = {"model": model["name"], "number": number, "signature": asked["signature"], "shapes": one.shapes,
                                     "input_bytes": one.input_bytes, "dtypes": one.dtypes, "untraced": [], "traced": [], "callers": []}
            self._found["calls"].append(facts)
            progress.say(f"calling {model['name']} at shape {number + 1}")
            first = self._try(f"{name}: first call", one.first)
            if first is not None:
                facts |= first
                calls[name] = (one, facts)
            self._write()
        self._turns(calls)
        for name, (one, facts) in calls.items():
            self._try(f"{name}: trace", self._trace, name, one, facts)
            self._write()
        self._turns(calls)
        for name, (one, facts) in calls.items():
            for callers in self._request["callers"]:
                self._try(f"{name}: {callers} callers", self._several, name, one, callers, facts["callers"])
                self._write()

    def _turns(self, calls: dict[str, tuple[Whole, dict[str, Any]]]) -> None:
        """Time calls without a trace, some of each model in turn."""
        counts = {}
        for name, (one, _) in calls.items():
            seconds = self._try(f"{name}: warm-up", _warm, one.call)
            if seconds is not None:
                counts[name] = min(max(_LEAST, int(_ROUND_SECONDS / seconds)), _MOST)
        for number in range(_ROUNDS):
            for name, count in counts.items():
                progress.say("timing calls", number, _ROUNDS)
                one, facts = calls[name]
                timed = self._try(f"{name}: timing", _timed, one, count)
                facts["untraced"].append(timed or [])

    def _trace(self, name: str, one: Whole, facts: dict[str, Any]) -> None:
        progress.say(f"tracing {name}")
        count = self._request["traced"]

        while True:
            times, raw, log = _traced(one.all_marked, count)
            facts |= {"traced": times, "trace": f"{name}.xplane.pb.gz", **self._kept(raw, f"{name}.xplane.pb.gz"), "trace_log": log}
            if facts["trace_bytes"] <= _MOST_BYTES or count == 1:
                return
            count = max(1, count // 3)

    def _several(self, name: str, one: Whole, callers: int, kept: list[dict[str, Any]]) -> None:
        """Callers at once: without a trace for some time, then a few calls of each in a trace."""
        progress.say(f"{name}: {callers} callers at once")
        found: dict[str, Any] = {"callers": callers}
        kept.append(found)
        with gpu_watch.watching() as watch:
            since = watch.now
            found["seconds"], found["wall"] = one.together(callers, self._request["seconds"])
            found["gpu"] = [use.to_dict() for use in watch.uses(since)]
        if callers > 1:
            count = max(1, self._request["traced"] // 2)
            _, raw, found["trace_log"] = _traced(one.together_marked, callers, count)
            found |= {"trace": f"{name}-callers{callers}.xplane.pb.gz", **self._kept(raw, f"{name}-callers{callers}.xplane.pb.gz")}

    def _kept(self, raw: bytes, name: str) -> dict[str, Any]:
        trimmed, complaints = trim(raw)
        packed = gzip.compress(trimmed)
        (self._folder / name).write_bytes(packed)
        return {"trace_bytes": len(packed), "complaints": complaints}

    def _try(self, step: str, function: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return function(*arguments)
        except errors.TftrtError as error:
            self._found["failed"][step] = str(error)
        except Exception as error:  # a step that fails must not take the others with it
            self._found["failed"][step] = f"{type(error).__name__}: {errors.first_line(str(error))}"[:500]
        return None

    def _write(self) -> None:
        (self._folder / FACTS).write_text(json.dumps(_rounded(self._found)))


def _rounded(value: Any) -> Any:
    """The same with times to a tenth of a microsecond, so that thousands of them take little space."""
    if isinstance(value, float):
        return round(value, 7)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


class Whole:
    """Whole calls of a signature: from arrays on the host to arrays on the host. Args: runner: of runner_job.load."""

    def __init__(self, runner: runner_job.Loaded, signature: str, inputs: Arrays) -> None:
        self._inputs = inputs
        self._make, self._run, self._read = runner.stages(signature, inputs)
        self.shapes = {name: list(array.shape) for name, array in inputs.items()}
        self.dtypes = {name: array.dtype.name for name, array in inputs.items()}
        self.input_bytes = {name: int(array.nbytes) for name, array in inputs.items()}

    def call(self) -> Arrays:
        """One call."""
        return self._read(self._run(self._make()))

    def timed(self) -> list[float]:
        """One call: [seconds of making tensors, of running, of reading the answer]."""
        start = time.perf_counter()
        feed = self._make()
        made = time.perf_counter()
        answer = self._run(feed)
        ran = time.perf_counter()
        self._read(answer)
        return [made - start, ran - made, time.perf_counter() - ran]

    def marked(self, number: int, caller: int = 0) -> list[float]:
        """As `timed`, with marks for the trace."""
        start = time.perf_counter()
        with tf.profiler.experimental.Trace(CALL, number=number, caller=caller):
            with tf.profiler.experimental.Trace(INPUT):
                feed = self._make()
            made = time.perf_counter()
            with tf.profiler.experimental.Trace(RUN):
                answer = self._run(feed)
            ran = time.perf_counter()
            with tf.profiler.experimental.Trace(OUTPUT):
                self._read(answer)
            return [made - start, ran - made, time.perf_counter() - ran]

    def all_marked(self, count: int) -> list[list[float]]:
        """`count` marked calls, one after the other. The first call of a trace is slower than the others, so one without marks precedes."""
        self.call()
        return [self.marked(number) for number in range(count)]

    def first(self) -> dict[str, Any]:
        """The first call, watched: what engines did, what was said, bytes of the answer; then a second one."""
        start = time.perf_counter()
        with native_log.captured() as log:
            answers, counts = profiling.profiled(self.call)
        seconds = time.perf_counter() - start
        with native_log.captured() as later:
            _, again = profiling.profiled(self.call)
        return {"first_seconds": seconds, "first": trace.combine(counts, log[0]).to_dict(),
                "second": trace.combine(again, later[0]).to_dict(), "output_bytes": {
                    name: int(array.nbytes) for name, array in answers.items()},
                "output_shapes": {name: list(array.shape) for name, array in answers.items()},
                "output_dtypes": {name: array.dtype.name for name, array in answers.items()}}

    def together(self, callers: int, seconds: float) -> tuple[list[float], float]:
        """Callers in threads, each calls again as soon as its answer is there. Returns: (seconds of each call, seconds of all)."""
        times: list[float] = []
        end = [0.0]

        def work(_: int) -> None:
            while (now := time.perf_counter()) < end[0]:
                self.call()
                times.append(time.perf_counter() - now)

        def begin() -> None:
            end[0] = time.perf_counter() + seconds

        wall = _threads(callers, work, begin)
        return times, wall

    def together_marked(self, callers: int, count: int) -> float:
        """Callers in threads, `count` calls each, marked for a trace, after one without marks. Returns: seconds of all."""
        self.call()
        return _threads(callers, lambda caller: [self.marked(number, caller) for number in range(count)])


def _threads(callers: int, work: Callable[[int], object], begin: Callable[[], None] = lambda: None) -> float:
    """Call work(caller) in threads that start together. Returns: seconds until all are done. Raises: what one of them raised."""
    failures: list[BaseException] = []
    started = [0.0]

    def go() -> None:
        begin()
        started[0] = time.perf_counter()

    barrier = threading.Barrier(callers, action=go)

    def one(caller: int) -> None:
        try:
            barrier.wait()
            work(caller)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - started[0]


def _timed(one: Whole, count: int) -> list[list[float]]:
    """`count` calls; the one before them finds cold caches and does not count."""
    return [one.timed() for _ in range(count + 1)][1:]


def _warm(call: Callable[[], object]) -> float:
    """Call until it is warm. Returns: seconds of the fastest call."""
    end, times = time.perf_counter() + 1.0, list[float]()
    while len(times) < 3 or (len(times) < 5 * timing.WARM_UP_CALLS and time.perf_counter() < end):
        times.append(timing.seconds(call))
    return max(min(times), 1e-6)


def _traced(function: Callable[..., T], *arguments: Any) -> tuple[T, bytes, str]:
    """(Its result, the XSpace, lines of the log about CUPTI and the profiler)."""
    with native_log.captured() as log:
        result, raw = profiling.recorded(lambda: function(*arguments))
    lines = [line for line in log[0].splitlines() if "cupti" in line.lower() or "profiler" in line.lower()]
    return result, raw, "\n".join(lines[:20])


def trim(raw: bytes) -> tuple[bytes, list[str]]:
    """An XSpace without planes that nobody reads. Returns: (its bytes, what the profiler complains about)."""
    space = tf_private.xplane_pb2.XSpace()
    space.ParseFromString(raw)
    kept = [plane for plane in space.planes if plane.name.startswith(_PLANES)]
    smaller = tf_private.xplane_pb2.XSpace(planes=kept, errors=space.errors, warnings=space.warnings)
    return smaller.SerializeToString(), [*space.errors, *space.warnings]


def _model(path: str) -> dict[str, Any]:
    """Facts of a SavedModel's graph: which functions ask for XLA."""
    proto = protos.read(path)
    compiled = sorted({function.signature.name for meta in proto.meta_graphs for function in meta.graph_def.library.function
                       if function.attr["_XlaMustCompile"].b})
    return {"xla_functions": compiled[:20], "xla_count": len(compiled)}


def machine() -> dict[str, Any]:
    """Facts of this machine and process that a call's time depends on."""
    linked, loaded = tf_private.tensorrt_versions()
    build = tf.sysconfig.get_build_info()
    return {"cpus": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "tensorflow": tf.__version__, "tensorrt_linked": linked,
            "tensorrt": loaded, "cuda": build.get("cuda_version", ""), "cudnn": build.get("cudnn_version", ""),
            "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads(), "jit": str(tf.config.optimizer.get_jit()),
            "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
            "gpus": gpu_state_job.query()}


_VARIABLES = ("TF_", "CUDA_", "NVIDIA_", "OMP_")
