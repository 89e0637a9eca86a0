"""One process of the benchmark `plans`: python -m benchmarks._plan_worker REQUEST

REQUEST is JSON with "do": rows (inputs of 128 rows), reference (answers of ONNX Runtime), or measure (rows of one variant).
"""

import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np

from benchmarks import _loop, _stats

_IN_A_ROW, _BURST, _TURNS = 50, 8, 11
_JUDGED = 32


def rows(request):
    """Inputs of 128 rows: of the given file, repeated as needed, or drawn."""
    from tftrt_tools.models.savedmodel import shapes

    wanted = {name: listed[0] for (_, name), listed in shapes.parse(request["shapes"]).items()}
    if request["given"]:
        with np.load(request["given"]) as held:
            found = {name: np.resize(held[name], (shape[0], *held[name].shape[1:])) for name, shape in wanted.items()}
    else:
        import saved_models

        length = {"length": wanted["input_ids"][1]} if "input_ids" in wanted else {}
        found = saved_models.sample_inputs(
            request["case"], np.random.default_rng(0), next(iter(wanted.values()))[0], **length
        )
        found = found["serving_default"]
    np.savez(request["output"], **{name: found[name] for name in wanted})


def reference(request):
    """Answers of ONNX Runtime on the CPU to the first rows."""
    from tftrt_tools.models.execution import runner
    from tftrt_tools.models.kinds.onnx import runner_job

    with runner_job.load(request["onnx"], runner.Wanted(label="the reference")) as loaded:
        np.savez(request["output"], **loaded.ready("serving_default", _feed(request, _JUDGED))())


def _feed(request, batch):
    with np.load(request["rows"]) as held:
        return {name: held[name][:batch] for name in held.files}


def measure(request):
    """Rows of a variant."""
    output, found = pathlib.Path(request["output"]), []

    def add(**row):
        found.append(row)
        output.write_text(json.dumps(found))

    start = time.monotonic()
    if request["plan"]:
        _measure_plan(request, add, start)
    else:
        _measure_saved_model(request, add, start)


def _measure_saved_model(request, add, start):
    import tempfile

    from tftrt_tools.models.execution import npz, run
    from tftrt_tools.studies.bench import in_process_job

    with tempfile.TemporaryDirectory() as folder:
        calls = []
        pathlib.Path(folder, "out").mkdir()
        for batch in request["batches"]:
            path = f"{folder}/{batch}.npz"
            npz.save(path, _feed(request, batch))
            calls.append(("serving_default", path))
        asked = run.LoadRequest(model=request["model"], calls=tuple(run.named(calls)), answers=folder + "/out")
        function, _ = in_process_job.make(asked)
        place = request["batches"].index(_JUDGED)
        add(
            way="answers",
            batch=_JUDGED,
            load_s=time.monotonic() - start,
            **judged(request, npz.load(f"{folder}/out/{place}.npz")),
        )
        _loops(request, add, lambda batch: lambda: function(request["batches"].index(batch)))


def _measure_plan(request, add, start):
    from tftrt_tools.models.kinds.plan import runner_job

    loaded = runner_job.Loaded(request["model"], request["graph"])
    ready = {batch: loaded.ready("serving_default", _feed(request, batch)) for batch in request["batches"]}
    answers = ready[_JUDGED]()
    add(way="answers", batch=_JUDGED, load_s=time.monotonic() - start, **judged(request, answers))
    _loops(request, add, ready.get)
    add(way="contexts", n=loaded.pool.contexts, captured=loaded.pool.captured)
    _alone(request, add, ready)


def _loops(request, add, call_of):
    """Whole calls: one caller for each batch, then several at the largest."""
    for batch in request["batches"]:
        for workers in request["streams"] if batch == max(request["batches"]) else (1,):
            add(
                way="whole calls",
                batch=batch,
                **_loop.measure([call_of(batch)] * workers, batch, request["seconds"], least=10),
            )


def judged(request, answers):
    """{"snr_db": of the worst output, "top1_same": of the first that has classes} against ONNX Runtime."""
    from tftrt_tools.accuracy.metrics.elements import Elements

    levels, same = [], None
    with np.load(request["answers"]) as wanted:
        for name in wanted.files:
            one, other = wanted[name], np.asarray(answers[name])
            if one.dtype.kind == "f":
                measured = Elements()
                measured.add(one, other)
                levels.append(float(measured.values()["snr_db"]))
            if same is None and one.ndim == 2 and one.shape[1] > 1:
                same = float(np.mean(one.argmax(1) == other.argmax(1)))
    return {"snr_db": min(levels, default=None), "top1_same": same}


# TensorRT alone -------------------------------------------------------------------------------------------------------------------------


def _alone(request, add, ready):
    """A bare loop: input and output stay on the GPU. Each context is of a copy of the engine. Args: ready: {batch: the runner's call}."""
    from tftrt_tools.models.execution.job.cudart import Cuda, HostArray
    from tftrt_tools.models.kinds.plan import profiles
    from tftrt_tools.models.kinds.plan.job.context import Context
    from tftrt_tools.models.kinds.plan.job.engine import Engine

    cuda, engine = Cuda(), Engine(request["model"])

    def context(batch):
        feed = _feed(request, batch)
        shapes = {name: array.shape for name, array in feed.items()}
        made = Context(cuda, engine.copy(), profiles.choose(engine.plan.profiles, shapes))
        made.shaped(shapes)
        pinned = {}
        for one in engine.plan.inputs:
            pinned[one.name] = HostArray.of(cuda.pinned(feed[one.name].shape, one.engine_dtype))
            pinned[one.name].array[...] = feed[one.name]
        if request["graph"]:
            made.capture(pinned)
        made.upload(pinned)
        made.launch()
        cuda.wait(made.stream)
        return made, pinned

    for batch in request["batches"]:
        count = max(request["streams"]) if batch == max(request["batches"]) else 1
        made = [context(batch) for _ in range(count)]
        one, pinned = made[0]

        def call(one=one):
            one.launch()
            cuda.wait(one.stream)

        add(way="alone, each call awaited", batch=batch, **_loop.measure([call], batch, request["seconds"], least=10))
        add(
            way="in turns",
            batch=batch,
            **_in_turns(ready[batch], lambda one=one, pinned=pinned: one.call(pinned), request["seconds"]),
        )
        each = _in_a_row(cuda, one, request["seconds"])
        add(
            way="alone, calls in a row",
            batch=batch,
            workers=1,
            **_stats.summary(each),
            images_s=batch / statistics.median(each),
        )
        for streams in request["streams"]:
            if 1 < streams <= count:
                rate = _several(cuda, [each for each, _ in made[:streams]], request["seconds"])
                add(way="alone, calls in a row", batch=batch, workers=streams, images_s=rate * batch)
        for each, _ in made:
            each.close()


def _in_turns(whole, bare, seconds):
    """{"p50_ms" of the runner's call, "bare_ms", "ratio", "ratio_low", "ratio_high" of the turns}: what both do within a second wavers less
    than what they do one after the other."""
    both, medians = (whole, bare), ([], [])
    for turn in range(_TURNS):
        for side in (0, 1) if turn % 2 else (1, 0):
            both[side]()
            times = []
            _loop.until(both[side], time.perf_counter() + seconds / _TURNS, 10, times)
            medians[side].append(1e3 * statistics.median(times))
    ratios = _stats.ratios(*medians)
    return {
        "workers": 1,
        "n": ratios["n"],
        "p50_ms": statistics.median(medians[0]),
        "bare_ms": statistics.median(medians[1]),
        "ratio": ratios["median"],
        "ratio_low": ratios["min"],
        "ratio_high": ratios["max"],
    }


def _in_a_row(cuda, context, seconds):
    """Seconds of each call where the GPU always has the next one waiting."""
    first, last = cuda.event(), cuda.event()
    found, end = [], time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        cuda.record(first, context.stream)
        for _ in range(_IN_A_ROW):
            context.launch()
        cuda.record(last, context.stream)
        found.append(cuda.seconds_between(first, last) / _IN_A_ROW)
    return found


def _several(cuda, contexts, seconds):
    """Calls a second; one thread feeds all streams in turns."""
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(_BURST):
            for one in contexts:
                one.launch()
        cuda.wait_for_all()
        calls += _BURST * len(contexts)
    return calls / (time.perf_counter() - start)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    {"rows": rows, "reference": reference, "measure": measure}[asked["do"]](asked)
    sys.stdout.flush()
    # CUDA's exit handlers could still abort.
    os._exit(0)
