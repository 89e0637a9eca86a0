"""Measures the engines that a model carries, or the plan of a plan directory, through TensorRT alone, and returns raw facts. Each kind of
facts in a process of its own: TensorRT and CUDA end the process on some failures, and what was asked of them before has to survive that.
"""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorrt as trt

from tftrt_tools.base.process import background
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.execution.job import cudart
from tftrt_tools.models.kinds.plan import profiles
from tftrt_tools.models.kinds.plan.document import ENGINE
from tftrt_tools.models.kinds.plan.job import differences
from tftrt_tools.models.kinds.plan.job import engine as plan_engine
from tftrt_tools.models.savedmodel import engine_assets, files
from tftrt_tools.studies.profiling.apart import Request
from tftrt_tools.studies.profiling.job import plan_clocks, plan_context, plan_cupti
from tftrt_tools.studies.profiling.job.plan_context import Context, Shape

# Calls before anything is measured; the first ones load kernels.
_WARM = 10
# Calls whose layers IProfiler times, and calls whose kernels are traced.
_PROFILED, TRACED = 20, 5
_SINGLE, _ROWS, _IN_A_ROW = 100, 10, 50
# Nothing is repeated for longer than this, in seconds.
_PATIENCE = 3.0
# What is zeroed to keep the GPU busy, and for how many times as long as a call takes to launch; events make that longer.
_BUSY_BYTES, _AHEAD = 64 << 20, 5
# How many calls a stream has waiting before all streams are awaited, and how long one throughput is measured, in seconds.
_BURST, _LOOP_SECONDS = 8, 0.25
STREAMS = (1, 2, 4)
# Calls of each stream that are kept of a trace of several.
_KEPT = 4


class _Layers(trt.IProfiler):  # type: ignore[misc]
    """Collects what TensorRT reports of each layer of each call."""

    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.reported: list[tuple[str, float]] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """TensorRT calls it for each layer after each call."""
        self.reported.append((layer_name, ms))


class _Facts(dict[str, Any]):
    """Facts of one engine and profile. A question that fails leaves its reason and does not end the others."""

    def ask(self, name: str, question: Callable[[], Any]) -> None:
        try:
            self[name] = question()
        except Exception as error:
            self.setdefault("errors", {})[name] = f"{type(error).__name__}: {error}"[:500]


def record(request: Request) -> list[dict[str, Any]]:
    """Measure one kind of facts."""
    if request.part == "traced":
        plan_cupti.record_ranges()
    cuda = cudart.Cuda()
    measure = MEASURES[request.part]
    return [dict(_measured(cuda, measure, chosen)) for chosen in _chosen(cuda, request)]


def _measured(cuda: cudart.Cuda, measure: Callable[[_One, _Facts], None], chosen: _One) -> _Facts:
    facts = _Facts(
        engine=chosen.asset.engine,
        record=chosen.record,
        profile=chosen.profile,
        rows=chosen.rows,
        implicit=chosen.implicit,
        bytes=chosen.asset.bytes,
    )
    facts["engine_bytes"] = chosen.taken
    try:
        chosen.open()
        facts["shapes"] = chosen.context.shapes()
        measure(chosen, facts)
    except Exception as error:
        facts.setdefault("errors", {})["all"] = f"{type(error).__name__}: {error}"[:500]
    finally:
        chosen.close()
    return facts


class _Which(NamedTuple):
    """Which engine, in which profile."""

    asset: engine_assets.EngineAsset
    # The number of its record in the asset's file; of a plan, that of the call that was asked for, 0 for none.
    record: int
    # What loading the engine took of the device's memory.
    taken: int
    profile: int = 0
    # The batch, 0 for what the profile was tuned for.
    rows: int = 0
    # Shapes of the inputs, if they are not the profile's.
    given: Sequence[Shape] | None = None
    # For a plan: {input: shape}.
    call: dict[str, Shape] | None = None


class _One:
    """One engine and one of its profiles, or one implicit-batch engine."""

    def __init__(
        self, cuda: cudart.Cuda, copy: Callable[[], trt.ICudaEngine], engine: trt.ICudaEngine, which: _Which
    ) -> None:
        """Args: copy: deserializes the engine once more."""
        self.cuda, self.copy, self.engine = cuda, copy, engine
        self.asset, self.record, self.taken = which.asset, which.record, which.taken
        self.profile, self.rows = which.profile, which.rows
        self.implicit = differences.implicit_batch(engine)
        self._given, self._call = which.given, which.call
        self._context: Context | None = None

    @property
    def context(self) -> Context:
        assert self._context is not None
        return self._context

    def open(self) -> None:
        self._context = self.another(self.engine)
        for _ in range(_WARM):
            self.context.call()

    def close(self) -> None:
        if self._context is not None:
            self._context.close()

    def another(self, engine: trt.ICudaEngine) -> Context:
        """A context of `engine`, which is this one or a copy of it."""
        if self.implicit:
            inputs = [one.name for one in differences.bindings(engine) if one.is_input]
            shapes = {
                name: tuple(size or 1 for size in shape or ())
                for name, shape in zip(inputs, self._shapes(), strict=False)
            }
            return Context(self.cuda, engine, shapes)
        if self._call is not None:
            return Context(self.cuda, engine, self._call, self.profile)
        shapes = plan_context.opt_shapes(engine, self.profile)
        if self._given:
            shapes |= dict(zip(shapes, map(tuple, self._given), strict=False))
        if self.rows:
            shapes = {name: (self.rows, *shape[1:]) for name, shape in shapes.items()}
        values = {
            name: (three[1] if len(three) == 3 else [])
            for name, three in plan_context.shape_values(engine, self.profile).items()
        }
        return Context(self.cuda, engine, shapes, self.profile, values)

    def _shapes(self) -> Sequence[Sequence[int | None] | None]:
        return self._given or self.asset.input_shapes


def _chosen(cuda: cudart.Cuda, request: Request) -> Iterator[_One]:
    """Every engine and profile, one at a time."""
    if files.is_plan(request.model):
        yield from _of_a_plan(cuda, request)
        return
    for path in sorted((pathlib.Path(request.model) / "assets").glob(engine_assets.PREFIX + "*")):
        for number, (asset, plan) in enumerate(engine_assets.plans(path)):
            free = cuda.free_memory()
            load = functools.partial(plan_context.load, plan)
            engine = load()
            taken = free - cuda.free_memory()
            count = 1 if differences.implicit_batch(engine) else engine.num_optimization_profiles
            which = _Which(asset, number, taken, given=request.shapes.get(asset.engine))
            for profile in range(count):
                yield _One(cuda, load, engine, which._replace(profile=profile))
            for rows in request.rows.get(asset.engine, ()):
                if (serving := plan_context.serving(engine, rows)) is not None:
                    yield _One(cuda, load, engine, which._replace(profile=serving, rows=rows))


def _of_a_plan(cuda: cudart.Cuda, request: Request) -> Iterator[_One]:
    """Each profile of a plan directory at what it was tuned for, and each call that is none of these in the profile that serves it."""
    opened = plan_engine.Engine(request.model)
    plan_profiles = opened.plan.profiles
    free = cuda.free_memory()
    engine = opened.copy()
    taken = free - cuda.free_memory()
    asset_choice = _Which(engine_assets.EngineAsset(engine=ENGINE, input_shapes=(), bytes=opened.plan.bytes), 0, taken)
    for number, profile in enumerate(plan_profiles):
        yield _One(cuda, opened.copy, engine, asset_choice._replace(profile=number, call=profile.opt))
    for number, call in enumerate(request.calls, 1):
        shapes = dict(call)
        serving = profiles.choose(plan_profiles, shapes)
        if serving is not None and shapes not in [profile.opt for profile in plan_profiles]:
            rows = max((shape[0] for shape in shapes.values() if shape), default=1)
            which = asset_choice._replace(profile=serving, rows=rows, record=number, call=shapes)
            yield _One(cuda, opened.copy, engine, which)


# What is measured -----------------------------------------------------------------------------------------------------------------------


def _told(chosen: _One, facts: _Facts) -> None:
    """Ask the engine and the GPU for facts about themselves."""
    engine = chosen.engine
    facts["context_bytes"] = chosen.context.context_bytes
    for name in ("name", "num_layers", "num_optimization_profiles"):
        facts.ask(name, functools.partial(getattr, engine, name))
    facts.ask("device_memory_size", functools.partial(differences.context_memory, engine))
    facts.ask("profiling_verbosity", lambda: engine.profiling_verbosity.name)
    facts.ask("multiprocessors", chosen.cuda.multiprocessors)
    facts.ask("profiles", lambda: _profiles(engine))
    facts["buffer_bytes"] = chosen.context.buffer_bytes
    facts.ask("gpu", plan_clocks.state)


def _inspected(one: _One, facts: _Facts) -> None:
    """What the inspector says of each layer in a context, which has sizes; of a plan with open sizes alone it tells no formats."""
    inspector = one.engine.create_engine_inspector()
    inspector.execution_context = one.context.context
    facts.ask("layers", lambda: json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))["Layers"])


def _profiles(engine: trt.ICudaEngine) -> list[dict[str, Any]]:
    if differences.implicit_batch(engine):
        return []
    return [
        {
            name: [list(shape) for shape in engine.get_tensor_profile_shape(name, profile)]
            for name in plan_context.names(engine)
            if plan_context.is_input(engine, name) and not engine.is_shape_inference_io(name)
        }
        | plan_context.shape_values(engine, profile)
        for profile in range(engine.num_optimization_profiles)
    ]


def _timed(chosen: _One, facts: _Facts) -> None:
    """Latency without a profiler, then each layer by IProfiler."""
    facts.ask("single_seconds", lambda: _within(_SINGLE, lambda: _between_events(chosen, 1)))
    facts.ask("host_seconds", lambda: _within(_SINGLE, lambda: _host_seconds(chosen)))
    facts.ask("wall_seconds", lambda: _within(_SINGLE, lambda: _wall_seconds(chosen)))

    def in_a_row() -> list[float]:
        return _within(_ROWS, lambda: _between_events(chosen, _IN_A_ROW) / _IN_A_ROW)

    with plan_clocks.watching() as clocks:
        facts.ask("row_seconds", in_a_row)
    facts["clocks_mhz"] = clocks
    facts.ask("layers_ahead", lambda: _by_profiler_ahead(chosen))
    if "layers_ahead" not in facts:
        facts.ask("layers", lambda: _by_profiler(chosen, chosen.context.call))


def _within(times: int, measure: Callable[[], float]) -> list[float]:
    """Results of at most `times` measurements, fewer if they take long."""
    seconds: list[float] = []
    end = time.monotonic() + _PATIENCE
    while len(seconds) < times and (len(seconds) < 3 or time.monotonic() < end):
        seconds.append(round(measure(), 9))
    return seconds


def _between_events(chosen: _One, calls: int) -> float:
    cuda, stream = chosen.cuda, chosen.context.stream
    first, last = cuda.event(), cuda.event()
    cuda.record(first, stream)
    for _ in range(calls):
        chosen.context.enqueue()
    cuda.record(last, stream)
    return cuda.seconds_between(first, last)


def _host_seconds(chosen: _One) -> float:
    """Seconds of the call that puts the work on the stream."""
    start = time.perf_counter()
    chosen.context.enqueue()
    seconds = time.perf_counter() - start
    chosen.cuda.wait(chosen.context.stream)
    return seconds


def _wall_seconds(one: _One) -> float:
    start = time.perf_counter()
    one.context.call()
    return time.perf_counter() - start


def _by_profiler(chosen: _One, call: Callable[[], object]) -> dict[str, Any]:
    """{"names": [layer], "milliseconds": [[of each layer] of each call]}; calls that report other layers are in "others"."""
    profiler = _Layers()
    chosen.context.context.profiler = profiler
    calls: list[list[tuple[str, float]]] = []
    end = time.monotonic() + _PATIENCE
    while len(calls) < _PROFILED + 1 and (len(calls) < 4 or time.monotonic() < end):
        profiler.reported = []
        call()
        calls.append(profiler.reported)
    names = [name for name, _ in calls[-1]]
    # The first call with a profiler makes its events.
    rows = [[round(ms, 7) for _, ms in call] for call in calls[1:] if [name for name, _ in call] == names]
    return {"names": names, "milliseconds": rows, "others": len(calls) - 1 - len(rows)}


def _by_profiler_ahead(chosen: _One) -> dict[str, Any]:
    """The same where the process is ahead of the GPU: other work keeps the GPU busy until the whole call waits for it. Without it the times
    of short layers hold the GPU's wait for the next launch."""
    cuda, context = chosen.cuda, chosen.context
    memory = cuda.malloc(_BUSY_BYTES)

    def busy(times: int) -> None:
        for _ in range(times):
            cuda.start_filling(memory, 0, _BUSY_BYTES, context.stream)

    busy(1)
    first, last = cuda.event(), cuda.event()
    cuda.record(first, context.stream)
    busy(_WARM)
    cuda.record(last, context.stream)
    each = cuda.seconds_between(first, last) / _WARM
    times = 1 + int(_AHEAD * statistics.median(_host_seconds(chosen) for _ in range(_WARM)) / each)
    context.context.enqueue_emits_profile = False

    def call() -> None:
        busy(times)
        context.call()
        if not context.context.report_to_profiler():
            raise RuntimeError("TensorRT reports no layers")

    try:
        return _by_profiler(chosen, call) | {"busy_seconds": times * each}
    finally:
        context.context.enqueue_emits_profile = True
        cuda.free(memory)


def _traced(chosen: _One, facts: _Facts) -> None:
    """Kernels and NVTX ranges of calls without IProfiler, which puts events between the kernels."""

    def calls() -> dict[str, Any]:
        with plan_cupti.cupti().tracing() as recorded:
            for _ in range(TRACED):
                chosen.context.call()
            chosen.cuda.wait_for_all()
        return recorded

    calls()  # CUPTI itself warms up
    facts["trace"] = calls()


def _graphed(chosen: _One, facts: _Facts) -> None:
    """A CUDA graph of the call against plain calls, in turns. A failed capture can leave the context unusable, so this part is alone."""
    chosen.cuda.wait(chosen.context.stream)
    captured = chosen.cuda.captured(chosen.context.enqueue, chosen.context.stream)
    facts["graph_nodes"] = captured.nodes

    def replayed() -> None:
        captured.launch()
        chosen.cuda.wait(chosen.context.stream)

    for _ in range(_WARM):
        replayed()
    ways = {
        "plain": lambda: _median_wall(chosen.context.call),
        "graph": lambda: _median_wall(replayed),
        "plain_row": lambda: _row(chosen, chosen.context.enqueue),
        "graph_row": lambda: _row(chosen, captured.launch),
    }
    facts["turns"] = interleaving.in_turns(list(ways), range(_ROWS), lambda way: ways[way]())


def _median_wall(call: Callable[[], object]) -> float:
    rows = []
    for _ in range(_WARM):
        start = time.perf_counter()
        call()
        rows.append(time.perf_counter() - start)
    return statistics.median(rows)


def _row(chosen: _One, launch: Callable[[], object]) -> float:
    """Seconds of each call where the GPU always has the next one waiting."""
    cuda, stream = chosen.cuda, chosen.context.stream
    first, last = cuda.event(), cuda.event()
    cuda.record(first, stream)
    for _ in range(_WARM):
        launch()
    cuda.record(last, stream)
    return cuda.seconds_between(first, last) / _WARM


def _streamed(chosen: _One, facts: _Facts) -> None:
    """Plain calls of several contexts on as many streams."""
    facts["streams"] = rows = []
    with _contexts(chosen, facts) as context:
        for count in STREAMS:
            used = [context(number) for number in range(count)]
            row = _Facts(contexts=count)
            row.ask(
                "one_thread_calls_s",
                functools.partial(_one_thread, chosen.cuda, [used_context.enqueue for used_context in used]),
            )
            row.ask("thread_each_calls_s", functools.partial(_thread_each, tuple(used)))
            rows.append(row)


def _overlapped(chosen: _One, facts: _Facts) -> None:
    """Several streams, each call one launch of a CUDA graph, so that the launches do not bound what the GPU can do at once.

    On an H100 these calls and their trace did not come to an end in the process that had timed plain streams; why is not known. So they
    are alone here, and CUPTI is at work before the graphs are made.
    """
    facts["streams"] = rows = []
    with plan_cupti.cupti().tracing():
        chosen.context.call()
    with _contexts(chosen, facts) as context:
        launches = list[Callable[[], None]]()
        for count in STREAMS:
            for number in range(len(launches), count):
                launches.append(chosen.cuda.captured(context(number).enqueue, context(number).stream).launch)
            row = _Facts(contexts=count)
            row.ask("graphs_calls_s", functools.partial(_one_thread, chosen.cuda, tuple(launches)))
            row.ask("trace", functools.partial(_overlap, chosen.cuda, tuple(launches)))
            rows.append(row)


@contextlib.contextmanager
def _contexts(chosen: _One, facts: _Facts) -> Iterator[Callable[[int], Context]]:
    """A function that gives the context of a number. Each is of a copy of the engine, because a profile serves one context at a time."""
    contexts, copies = [chosen.context], list[trt.ICudaEngine]()

    def context(number: int) -> Context:
        while len(contexts) <= number:
            contexts.append(_copied(chosen, copies, facts))
        return contexts[number]

    try:
        yield context
    finally:
        for added_context in contexts[1:]:
            added_context.close()


def _copied(chosen: _One, copies: list[trt.ICudaEngine], facts: _Facts) -> Context:
    """A context of a further copy of the engine, after a first call."""
    free = chosen.cuda.free_memory()
    copies.append(chosen.copy())
    taken = free - chosen.cuda.free_memory()
    context = chosen.another(copies[-1])
    facts.setdefault("copies_bytes", []).append([taken, context.context_bytes])
    for _ in range(_WARM):
        context.call()
    return context


def _one_thread(cuda: cudart.Cuda, launches: Sequence[Callable[[], None]]) -> float:
    """Calls a second; one thread feeds all streams in turns."""
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < _LOOP_SECONDS:
        for _ in range(_BURST):
            for launch in launches:
                launch()
        cuda.wait_for_all()
        calls += _BURST * len(launches)
    return calls / (time.perf_counter() - start)


def _thread_each(contexts: Sequence[Context]) -> float:
    """Calls a second; each stream has a thread, which waits for each call."""
    start = time.perf_counter()

    def calls(context: Context) -> int:
        count = 0
        while time.perf_counter() - start < _LOOP_SECONDS:
            context.call()
            count += 1
        return count

    counts = [background.start(functools.partial(calls, context)) for context in contexts]
    return sum(count.result() for count in counts) / (time.perf_counter() - start)


def _overlap(cuda: cudart.Cuda, launches: Sequence[Callable[[], None]]) -> list[list[int]]:
    """[[start, end in nanoseconds, stream]] of the kernels of a few calls on each stream, without the first ones, which warm up CUPTI."""
    with plan_cupti.cupti().tracing() as recorded:
        for _ in range(_WARM):
            for launch in launches:
                launch()
        cuda.wait_for_all()
    spans = sorted([start, end, stream] for _, start, end, stream, *_ in recorded["kernels"])
    return spans[len(spans) * (_WARM - _KEPT) // _WARM :]


# {part: what measures it}. A capture that fails may leave its process unusable, and ranges are recorded for the traces alone.
MEASURES: dict[str, Callable[[_One, _Facts], None]] = {
    "told": _told,
    "timed": _timed,
    "traced": _traced,
    "graph": _graphed,
    "streams": _streamed,
    "overlap": _overlapped,
    "inspected": _inspected,
}
