"""The TensorFlow side of engine_efficiency and latency, one section in one process: python -m benchmarks._tf_worker REQUEST

REQUEST is JSON: {"section", "model", "label", "json", "benchmark", "batches", "seconds", "workers", "size", "answers"}.
"""

import contextlib
import json
import pathlib
import sys
import time

import numpy as np

from benchmarks import _loop, _report, _stats
from tftrt_tools.models.execution import kernels as kernel_names

SIGNATURE = "serving_default"
_LOOP_CALLS = 50
_TRACED_CALLS = 20


def images(batch, size, seed=0):
    """The images that every section answers."""
    return np.random.default_rng(seed).uniform(-1, 1, (batch, size, size, 3)).astype(np.float32)


def device():
    """The device that holds inputs: the GPU, or the CPU where a script is only tried out."""
    import tensorflow as tf

    return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"


class Model:
    """A loaded SavedModel with one input and one output, and the ways of calling it that are timed."""

    def __init__(self, path):
        import tensorflow as tf

        self._root = tf.saved_model.load(str(path))  # the engines live as long as this object
        self.function = self._root.signatures[SIGNATURE]
        (self._input,) = self.function.structured_input_signature[1]
        (self._output,) = self.function.structured_outputs
        self.device = device()

    def on_device(self, array):
        """`array` as a tensor where the model runs."""
        import tensorflow as tf

        with tf.device(self.device):
            return tf.identity(tf.constant(array))

    def numpy_call(self, array):
        """Signature, NumPy in, NumPy out: what a user writes first."""
        import tensorflow as tf

        return lambda: self.function(**{self._input: tf.constant(array)})[self._output].numpy()

    def device_call(self, array):
        """Signature, input on the GPU, answer copied to the host."""
        tensor = self.on_device(array)
        return lambda: self.function(**{self._input: tensor})[self._output].numpy()

    def flat_call(self, array):
        """As device_call, past the checks of the signature wrapper (a private way in)."""
        tensor = self.on_device(array)
        inner, captured = self.function._inference_function, list(self.function.captured_inputs)
        # TensorFlow 2.17 calls it otherwise.
        call = inner.flat_call if hasattr(inner, "flat_call") else inner.call_preflattened
        return lambda: call([tensor, *captured])[self._output].numpy()

    def dispatch_seconds(self, array, repeats):
        """Seconds until the signature call returns, the answer not awaited; the wait is not counted."""
        tensor, times = self.on_device(array), []
        for _ in range(repeats):
            start = time.perf_counter()
            answer = self.function(**{self._input: tensor})[self._output]
            times.append(time.perf_counter() - start)
            answer.numpy()
        return times

    def empty_call(self, array):
        """A tf.function that does next to nothing with the same input: what TensorFlow costs around any function."""
        import tensorflow as tf

        tensor = self.on_device(array)
        function = tf.function(lambda image: image[:, 0, :, 0]).get_concrete_function(tensor)
        return lambda: function(tensor).numpy()

    def loop_call(self, array):
        """50 calls in a while loop inside one tf.function: no Python between calls. Its time is divided by 50."""
        import tensorflow as tf

        both = self.on_device(np.stack([array, array[::-1]]))

        @tf.function
        def looped(pair):
            def body(index, total):
                # Two inputs in turn, and a sum of the answers: nothing here can be computed once for all rounds.
                return index + 1, total + self.function(**{self._input: pair[index % 2]})[self._output]

            first = self.function(**{self._input: pair[0]})[self._output]
            shapes = tf.TensorShape([]), tf.TensorShape([None, None])
            return tf.while_loop(
                lambda index, _: index < _LOOP_CALLS, body, (tf.constant(1), first), shapes, parallel_iterations=1
            )[1]

        function = looped.get_concrete_function(both)
        return lambda: function(both).numpy()


class Session:
    """The same model in a TF1 session, which is how TensorFlow Serving runs it."""

    def __init__(self, path):
        import tensorflow as tf

        config = tf.compat.v1.ConfigProto()
        config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        meta = tf.compat.v1.saved_model.loader.load(self._session, ["serve"], str(path))
        signature = meta.signature_def[SIGNATURE]
        (feed,), (fetch,) = signature.inputs.values(), signature.outputs.values()
        self._callable = self._session.make_callable(fetch.name, feed_list=[feed.name])

    def numpy_call(self, array):
        return lambda: self._callable(array)


def main(request):
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    if request.get("inter_op"):
        tf.config.threading.set_inter_op_parallelism_threads(request["inter_op"])
    _SECTIONS[request["section"]](request)


def _add(results, request, batch, way, measured):
    results.add(section=request["section"], model=request["label"], batch=batch, way=way, **measured)


def _tftrt(request):
    """Every way of calling, one caller and several."""
    results, model = _started(request)
    for batch in request["batches"]:
        array = images(batch, request["size"])
        for way, measured in _ways(model, array, request):
            _add(results, request, batch, way, measured)
        for workers in request["workers"]:
            if workers > 1:
                for way, make in (
                    ("NumPy to NumPy", model.numpy_call),
                    ("input on GPU, answer to host", model.device_call),
                ):
                    _add(
                        results,
                        request,
                        batch,
                        way,
                        _loop.measure([make(array) for _ in range(workers)], batch, request["seconds"]),
                    )
    for batch in request["batches"]:
        # Last: an executor that hardly anyone uses may refuse the model, or hang.
        call = _single_threaded(model.device_call(images(batch, request["size"])))
        measured = _attempt(_loop.measure, [call], batch, request["seconds"])
        _add(results, request, batch, "input on GPU, single-threaded executor", measured)


def _ways(model, array, request):
    batch, seconds = len(array), request["seconds"]

    def closed(call, repeated=1):
        measured = _loop.measure([call], batch * repeated, seconds, least=5 if repeated > 1 else 50)
        return {
            key: value / repeated if key.endswith("_ms") and value is not None else value
            for key, value in measured.items()
        }

    yield "NumPy to NumPy", closed(model.numpy_call(array))
    yield "input on GPU, answer to host", closed(model.device_call(array))
    yield "the same past the signature wrapper", closed(model.flat_call(array))
    dispatch = _stats.summary(model.dispatch_seconds(array, 200))
    yield "until the call returns, not awaited", {"workers": 1, **dispatch}
    yield "50 calls in a loop on the device", _attempt(lambda: closed(model.loop_call(array), _LOOP_CALLS))
    yield "a tf.function that does nothing", closed(model.empty_call(array))


def _single_threaded(call):
    """`call` under TensorFlow's other executor, which is chosen for each thread: so inside the call."""
    import tensorflow as tf

    def inside():
        with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
            return call()

    return inside


def _attempt(measure, *arguments):
    try:
        return measure(*arguments)
    except Exception as error:  # a variant that this TensorFlow refuses is a finding, not the end of the run
        return {"error": " ".join(str(error).split())[:200]}


def _native(request):
    results, model = _started(request)
    for batch in request["batches"]:
        array = images(batch, request["size"])
        for way, make in (("NumPy to NumPy", model.numpy_call), ("input on GPU, answer to host", model.device_call)):
            _add(results, request, batch, way, _loop.measure([make(array)], batch, request["seconds"]))


def _variant(request):
    """The two plain ways under other settings, which the environment or `request` chose."""
    results, model = _started(request, answer=False)
    for batch in request["batches"]:
        array = images(batch, request["size"])
        for workers in sorted({1, max(request["workers"])}):
            for way, make in (
                ("NumPy to NumPy", model.numpy_call),
                ("input on GPU, answer to host", model.device_call),
            ):
                _add(
                    results,
                    request,
                    batch,
                    way,
                    _loop.measure([make(array) for _ in range(workers)], batch, request["seconds"]),
                )


def _session(request):
    results = _report.Results(request["json"], request["benchmark"], resume=True)
    session = Session(request["model"])
    for batch in request["batches"]:
        array = images(batch, request["size"])
        for workers in request["workers"]:
            measured = _loop.measure([session.numpy_call(array) for _ in range(workers)], batch, request["seconds"])
            _add(results, request, batch, "NumPy to NumPy", measured)


def _process(request):
    """One of several processes: says READY, waits for a line, measures, prints what it measured."""
    model = Model(request["model"])
    batch = request["batches"][0]
    call = model.device_call(images(batch, request["size"]))
    call()
    print("READY", flush=True)
    sys.stdin.readline()
    print(json.dumps(_loop.measure([call], batch, request["seconds"])), flush=True)


def _started(request, answer=True):
    results = _report.Results(request["json"], request["benchmark"], resume=True)
    start = time.perf_counter()
    model = Model(request["model"])
    loaded = time.perf_counter()
    first = model.numpy_call(images(request["batches"][0], request["size"]))()[:1]
    results.note(
        f"{request['label']} / {request['section']}",
        {
            "device": model.device,
            "load_s": round(loaded - start, 2),
            "first_call_s": round(time.perf_counter() - loaded, 2),
            "nodes": len(model.function.graph.as_graph_def().node),
        },
    )
    if answer and request.get("answers"):
        np.save(pathlib.Path(request["answers"]) / f"answer-{request['section']}.npy", first)
    return results, model


def _profile(request):
    """Where the time of a call goes, by TensorFlow's profiler: kernels on the GPU, and what the host does meanwhile."""
    results, model = _started(request, answer=False)
    for batch in request["batches"]:
        call = model.device_call(images(batch, request["size"]))
        plain = _loop.measure([call], batch, request["seconds"])["p50_ms"]
        results.note(f"profile, batch {batch}", {"untraced_p50_ms": plain, **_traced(call)})


def _traced(call):
    times = []

    def calls():
        for _ in range(_TRACED_CALLS):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)

    from tftrt_tools.models.execution.job import profiling

    found = {}
    for plane, events in profiling.events(calls).items():
        if kernel_names.is_gpu(plane) and events:
            found |= _gpu_shares(events, len(times))
        elif plane.startswith("/host:CPU"):
            found["host_ms_per_call"] = _host_shares(events, len(times))
    return {
        "calls": len(times),
        "traced_p50_ms": _stats.summary(times)["p50_ms"],
        **(found or {"error": "the trace holds no events"}),
    }


def _gpu_shares(events, calls):
    """Milliseconds for each call: some kernel runs, some copy runs, and from first start to last end (median)."""
    kernels = [event[1:] for event in events if not kernel_names.is_copy(event[0])]
    copies = [event[1:] for event in events if kernel_names.is_copy(event[0])]
    windows = []
    ends = sorted(end for name, _, end in events if "d2h" in name.lower())
    for before, end in zip([0.0, *ends], ends, strict=False):
        inside = [event for event in events if before < event[2] <= end]
        windows.append(end - min(start for _, start, _ in inside))
    per_call = 1e3 / calls
    return {
        "gpu_kernels_ms_per_call": per_call * _stats.union_seconds(kernels),
        "gpu_kernels_per_call": len(kernels) / calls,
        "gpu_copies_ms_per_call": per_call * _stats.union_seconds(copies),
        "gpu_first_to_last_ms": _stats.summary(windows)["p50_ms"] if windows else None,
    }


def _host_shares(events, calls, top=25):
    """{event: milliseconds a call} of the longest; they nest, so they do not add up."""
    totals = {}
    for name, start, end in events:
        totals[name] = totals.get(name, 0.0) + end - start
    longest = sorted(totals.items(), key=lambda item: -item[1])[:top]
    return {name: round(1e3 * seconds / calls, 4) for name, seconds in longest}


def _latency(request):
    """Models side by side: a few calls of each in turn, again and again, so that drift hits all of them alike."""
    results = _report.Results(request["json"], request["benchmark"], resume=True)
    models = {}
    for label, path in request["models"].items():
        start = time.perf_counter()
        models[label] = Model(path)
        results.note(f"load {label}", round(time.perf_counter() - start, 2))
    for batch in request["batches"]:
        _side_by_side(results, models, batch, request)


def _side_by_side(results, models, batch, request):
    array = images(batch, request["size"])
    calls = {label: model.device_call(array) for label, model in models.items()}
    answers = {}
    for label, call in calls.items():
        start = time.perf_counter()
        answers[label] = call()
        results.note(f"first call of {label}, batch {batch}", round(time.perf_counter() - start, 3))
        _loop.warm(call, 1.0)
    times = {label: [] for label in calls}
    for _ in range(request["rounds"]):
        for label, call in calls.items():
            call()  # the first one after another model's finds cold caches
            for _ in range(request["calls"]):
                start = time.perf_counter()
                call()
                times[label].append(time.perf_counter() - start)
    base = next(iter(answers))
    for label, seconds in times.items():
        wrong = float(np.abs(answers[label] - answers[base]).max()) if label != base else 0.0
        median = _stats.summary(seconds)["p50_ms"]
        results.add(
            section="latency",
            model=label,
            batch=batch,
            **_stats.summary(seconds),
            images_s=batch / median * 1e3,
            speedup=_stats.summary(times[base])["p50_ms"] / median,
            largest_difference=wrong,
        )


_SECTIONS = {
    "tftrt": _tftrt,
    "native": _native,
    "variant": _variant,
    "session": _session,
    "process": _process,
    "profile": _profile,
    "latency": _latency,
}

if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(json.loads(sys.argv[1]))
