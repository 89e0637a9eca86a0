"""The jobs of `precision`, for child.worker: `prepare` on the CPU, `job` in the process that lives through all columns of a model.

That process is one because TF-TRT keeps what TensorRT learnt about the speed of its kernels in memory only.
"""

import dataclasses
import functools
import gc
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np

from benchmarks import _loop, _models, _trace
from benchmarks import _precision_cases as cases
from tftrt_tools.accuracy import metrics
from tftrt_tools.accuracy.metrics.classes import Top
from tftrt_tools.base import errors
from tftrt_tools.base.process import native_log
from tftrt_tools.models.execution import trace
from tftrt_tools.models.execution.job import profiling
from tftrt_tools.tftrt.calibration.job.data import DataOptions

_REFERENCE_ROWS = 32
_THROUGHPUT_SECONDS = 1.0
_TRACED_CALLS = 5
_CALLERS = 2  # the calling of one overlaps with the other's engine
_loaded = {}


def prepare(request):
    """Make what is missing of a model, its data, its float32 answers and the toolkit's tables. No GPU must be visible.

    Args: request: {"case": Case dict, "folder", "calibration": rows, "scoring": rows, "batch": rows of a calibration batch, "tables":
      methods}.

    Returns: {"model", "calibration", "scoring", "labels" ("" for none), "reference", "tables": {method: path}: paths; "common": rows that
      are in both data sets; "seconds": {what: seconds} of what was made}.
    """
    _step_aside()
    case, clock = cases.Case.from_dict(request["case"]), _Clock()
    model = clock("model", lambda: cases.model(case, request["folder"]))
    folder = (
        pathlib.Path(request["folder"])
        / f"{case.label}.data-{request['calibration']}-{request['scoring']}-{request['batch']}"
    )
    files = {name: str(folder / f"{name}.npz") for name in ("calibration", "scoring", "reference")}
    labels = clock("data", lambda: _data(case, request, folder))
    clock("reference", lambda: _reference(model, files["scoring"], folder / "reference.npz"))
    tables = {}
    for method in request["tables"]:
        path, column = folder / f"{method}.json", cases.Column("", "INT8", "toolkit", method)
        if not path.exists():
            _write_table(
                path,
                clock(
                    f"{method} table", lambda column=column: _calibrated(model, column, files["calibration"], request)
                ),
            )
        tables[method] = str(path)
    return {
        "model": str(model),
        **files,
        "labels": labels,
        "tables": tables,
        "folder": str(folder),
        "common": _common(files),
        "seconds": clock.seconds,
    }


def _step_aside():
    """Leave processor time to what is built and measured meanwhile."""
    os.nice(15)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= 8:
        os.sched_setaffinity(0, cores[len(cores) // 4 :])


class _Clock:
    """Calls functions and keeps their seconds."""

    def __init__(self):
        self.seconds = {}

    def __call__(self, what, function):
        start = time.monotonic()
        result = function()
        self.seconds[what] = round(time.monotonic() - start, 2)
        return result


def _data(case, request, folder):
    """Write the data sets. Returns: path of the labels, or ""."""
    labels = folder / "labels.npy"
    with _models.made(folder / "calibration.npz") as partial:
        if partial:
            _save(partial, cases.calibration(case, request["calibration"]))
    if not (folder / "scoring.npz").exists():
        arrays, wanted = cases.scoring(case, request["scoring"])
        if wanted is not None:
            np.save(labels, wanted)
        with _models.made(folder / "scoring.npz") as partial:
            _save(partial, arrays)
    return str(labels) if labels.exists() else ""


def _save(path, arrays):
    with open(path, "wb") as file:  # np.savez would add an ending to the name
        np.savez(file, **arrays)


def _load(path):
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _reference(model, scoring, target):
    """The original's answers on the CPU, where float32 is float32."""
    with _models.made(target) as partial:
        if partial:
            import tensorflow as tf

            loaded = tf.saved_model.load(str(model))
            _save(partial, _answers(loaded.signatures[cases.SIGNATURE], _load(scoring), _REFERENCE_ROWS))


def _common(files):
    from tftrt_tools.tftrt.calibration.job.data import row_hashes

    return len(set(row_hashes(_load(files["calibration"]))) & set(row_hashes(_load(files["scoring"]))))


def _calibrated(model, column, data, request):
    """A Calibration of a column."""
    from tftrt_tools.tftrt.conversion import convert_job
    from tftrt_tools.tftrt.conversion.converting import ConvertRequest, TablesFrom

    source = TablesFrom(options=DataOptions(source=data, batch_size=request["batch"]))
    answer = convert_job.job(ConvertRequest(source=str(model), settings=cases.settings(column, ""), int8=source))
    if not answer.tables:
        raise errors.TftrtError("no INT8 engine takes a table", "look at the model with `tftrt inspect`")
    method = "entropy2" if column.table == "tensorrt" else column.method
    return dataclasses.replace(answer, method=method, comparison=None).calibration(column.calibrator, str(model), "")


def _write_table(path, calibration):
    with _models.made(pathlib.Path(path)) as partial:
        if partial:
            calibration.write(partial)


def job(request):
    """Do request["do"]: the function of that name says what it takes and returns."""
    try:
        return {"warm": warm, "calibrate": calibrate, "convert": convert, "measure": measure}[request["do"]](request)
    finally:
        # A model that is still referenced by a cycle would keep its engines in GPU memory during the next build.
        gc.collect()


def warm(request):
    """Call the original at each batch size, so that nobody's seconds hold the compilation of TensorFlow's kernels.

    Args: request: {"model", "scoring": .npz, "batches"}. Returns: {"warm_seconds"}.
    """
    import tensorflow as tf

    start, arrays = time.monotonic(), _load(request["scoring"])
    function = _native(request["model"]).root.signatures[cases.SIGNATURE]
    for size in request["batches"]:
        for tensor in function(**{name: tf.constant(_rows(value, size)) for name, value in arrays.items()}).values():
            tensor.numpy()
    return {"warm_seconds": round(time.monotonic() - start, 2)}


def calibrate(request):
    """Args: request: {"model", "column": Column dict, "data": .npz, "batch", "path": for the table}. Returns: {"calibrate_seconds"}."""
    start = time.monotonic()
    _write_table(
        request["path"], _calibrated(request["model"], cases.Column(**request["column"]), request["data"], request)
    )
    return {"calibrate_seconds": round(time.monotonic() - start, 2)}


def convert(request):
    """Convert and build, without the engine cache.

    Args: request: {"model", "column", "shapes", "table": path of a calibration file or "", "output": directory to make}.

    Returns: {"convert_seconds", "build_seconds", "engines": engine ops, "coverage", "engine_bytes", "peak_device_bytes": of the whole
      GPU above its use before, "peak_allocated_bytes": of TensorFlow's allocator, which TensorRT's memory comes from too}.
    """
    from tftrt_tools.tftrt.calibration import file
    from tftrt_tools.tftrt.conversion import convert_job
    from tftrt_tools.tftrt.conversion.converting import ConvertRequest, TablesFrom

    column = cases.Column(**request["column"])
    settings = cases.settings(column, request["shapes"])
    source = TablesFrom(given=file.read(request["table"]) if request["table"] else None)
    pathlib.Path(request["output"]).mkdir(parents=True)
    before = _allocated(reset=True)
    start = time.monotonic()
    answer = convert_job.job(
        ConvertRequest(source=request["model"], output=request["output"], settings=settings, int8=source)
    )
    seconds = time.monotonic() - start
    results = answer.signatures
    built = [engine for one in results for engine in one.built]
    inside, whole = map(sum, zip(*(one.compute_ops for one in results), strict=True))
    after = _allocated()
    return {
        "convert_seconds": round(seconds, 2),
        "build_seconds": round(sum(one.build_seconds or 0.0 for one in results), 2),
        "engines": sum(len(one.engines) for one in results),
        "coverage": inside / whole if whole else 0.0,
        "engine_bytes": sum(one.bytes for one in built),
        "peak_device_bytes": max(
            (one.peak_memory_bytes for one in built if one.peak_memory_bytes is not None), default=None
        ),
        "peak_allocated_bytes": after["peak"] - before["current"] if before and after else None,
    }


def _allocated(reset=False):
    """{"current", "peak"} bytes of TensorFlow's GPU allocator, or None without a GPU."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None
    if reset:
        tf.config.experimental.reset_memory_stats("GPU:0")
    return tf.config.experimental.get_memory_info("GPU:0")


def measure(request):
    """Time and score a converted model beside the original, or the original alone.

    Args: request: {"model", "converted": directory or "", "engines": how many have to run in a call, "scoring", "labels", "reference":
      paths, "latency": batch sizes, "throughput": batch size or 0, "score": batch size, "repeats"}.

    Returns: {"device", "latency": {batch: {"native_ms", "native_mad_ms", "ms", "mad_ms", "calls"}}, "images_s", "outputs": Comparison
      dicts, "accuracy", "snr_db": of the worst output ("inf" for no difference), "top1": of the outputs that are classes, "kernels": of
      _trace.kernels at the score's batch size}.

    Raises: TftrtError where an engine does not serve a shape.
    """
    import tensorflow as tf

    from tftrt_tools.models.execution.job import gpu

    seen = gpu.seen()
    native = _native(request["model"])
    with tempfile.TemporaryDirectory(prefix="tftrt-precision-") as folder:
        model = _converted(request["converted"], folder, seen) if request["converted"] else native
        function = model.root.signatures[cases.SIGNATURE]
        arrays = _load(request["scoring"])
        sizes = {*request["latency"], request["throughput"] or request["score"], request["score"]}
        feeds = {
            size: {name: tf.identity(tf.constant(_rows(value, size))) for name, value in arrays.items()}
            for size in sizes
        }
        if seen and request["converted"]:
            for size in sorted(sizes):
                _check_served(function, feeds[size], request["engines"], size)
        measured = {"device": seen["name"] if seen else "CPU", "score_batch": request["score"]}
        measured |= _scored(request, _answers(function, arrays, request["score"]))
        functions = [native.root.signatures[cases.SIGNATURE], function]
        measured["latency"] = {
            str(size): _latency(functions, feeds[size], request["repeats"]) for size in request["latency"]
        }
        measured["images_s"] = _images_s(function, feeds, request["throughput"]) if request["throughput"] else None
        measured["kernels"] = _kernels(function, feeds[request["score"]]) if seen else []
    return measured


def _kernels(function, feed):
    """What the GPU runs in a call: the names of TensorRT's kernels tell the arithmetic."""

    def calls():
        for _ in range(_TRACED_CALLS):
            for tensor in function(**feed).values():
                tensor.numpy()

    return _trace.kernels(profiling.events(calls), _TRACED_CALLS)


def _native(path):
    """The original, loaded once a process."""
    from tftrt_tools.models.savedmodel.job import loading

    if path not in _loaded:
        _loaded[path] = loading.load(path)
    return _loaded[path]


def _converted(path, folder, gpu):
    from tftrt_tools.models.execution.job import native_copy
    from tftrt_tools.models.savedmodel.job import loading

    if not gpu:
        native_copy.write(path, pathlib.Path(folder) / "model")
        path = pathlib.Path(folder) / "model"
    return loading.load(path)


def _rows(array, count):
    """`count` rows, from the front, again and again where there are fewer."""
    return np.take(array, np.arange(count) % len(array), axis=0)


def _check_served(function, feed, engines, size):
    with native_log.captured() as log:
        _, counts = profiling.profiled(lambda: [tensor.numpy() for tensor in function(**feed).values()])
    other = {kind: count for kind, count in counts.items() if kind != "engine" and count}
    if other or counts.get("engine", 0) < engines:
        reason = trace.combine(counts, log[0]).reasons
        raise errors.TftrtError(
            f"batch {size}: {counts.get('engine', 0)} of {engines} engines ran, {other or 'nothing else'}",
            reason[0] if reason else "its log is in the output folder",
        )


def _answers(function, arrays, size):
    """{output: answers for all rows}, `size` rows at a time: the last batch is filled up, since engines serve no other."""
    import tensorflow as tf

    rows = len(next(iter(arrays.values())))
    parts = []
    for start in range(0, rows, size):
        feed = {name: tf.constant(_rows(value[start : start + size], size)) for name, value in arrays.items()}
        parts.append({name: tensor.numpy()[: rows - start] for name, tensor in function(**feed).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _scored(request, answers):
    reference, found = _load(request["reference"]), {}
    for name, answer in answers.items():
        found[name] = metrics.Accumulator(cases.SIGNATURE, name)
        found[name].add(reference[name], answer)
    results = {name: one.result() for name, one in found.items()}
    classes = [one.top1 for one in results.values() if one.classes]
    labels = np.load(request["labels"]) if request["labels"] else None
    snr = min(one.snr_db for one in results.values())
    return {
        "rows": len(next(iter(answers.values()))),
        "outputs": [one.to_dict() for one in results.values()],
        "snr_db": "inf" if snr == float("inf") else snr,
        "top1": min(classes) if classes else None,
        "nonfinite": sum(one.nonfinite for one in results.values()),
        "accuracy": _accuracy(labels, next(iter(answers.values()))) if labels is not None else None,
    }


def _accuracy(labels, answer):
    """Share of rows whose largest entry is at the label."""
    measure = Top()
    measure.add(labels, answer)
    return measure.values()["top1"]


def _latency(functions, feed, repeats):
    native, ours = _interleaved(functions, feed, repeats)
    (native_ms, native_mad), (ms, mad) = map(_median, (native, ours))
    return {"native_ms": native_ms, "native_mad_ms": native_mad, "ms": ms, "mad_ms": mad, "calls": len(ours)}


def _interleaved(functions, feed, repeats):
    """Call each function in turn, again and again: what disturbs one disturbs all. Calls to warm up come first and do not count.

    Args: functions: of a loaded model's signature. feed: {input: tensor}. repeats: timed calls of each.
    Returns: for each function a list of seconds, from the call until all of its answers are on the host.
    """
    from tftrt_tools.models.execution.job import timing
    from tftrt_tools.models.savedmodel.job import loading

    calls = [functools.partial(loading.answers, function, feed) for function in functions]
    taken = [[] for _ in calls]
    for turn in range(timing.WARM_UP_CALLS + repeats):
        for call, found in zip(calls, taken, strict=True):
            one = timing.seconds(call)
            if turn >= timing.WARM_UP_CALLS:
                found.append(one)
    return taken


def _median(seconds):
    """(median, median absolute deviation), both in ms."""
    median = statistics.median(seconds)
    return 1e3 * median, 1e3 * statistics.median(abs(one - median) for one in seconds)


def _images_s(function, feeds, size):
    def call():
        return [tensor.numpy() for tensor in function(**feeds[size]).values()]

    return _loop.measure([call] * _CALLERS, size, _THROUGHPUT_SECONDS, least=10)["images_s"]
