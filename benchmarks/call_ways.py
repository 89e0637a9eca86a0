"""What calling costs: the same model by TensorFlow's ways of calling, in turns in one process, as ratios to the eager call.

  signature        the signature function, eagerly: what `root.signatures[name]` and the toolkit's in-process runner do
  past the wrapper the same, past the checks of the signature wrapper (a private way in)
  callable         tf_private.session_callable: Session::RunCallable in C++, reached from Python
  Session.run      tf.compat.v1.Session.run: Session::Run by names, reached from Python
  C Session::Run   TF_SessionRun, as the toolkit's development server runs a model; TensorFlow Serving calls the same in C++
  empty            a tf.function that next to nothing is in, eagerly

"held": the input lies on the device (a tensor; in a session a variable that the graph reads, because Python's way to RunCallable and Run
takes arrays of the host alone). "NumPy": the input comes from the host. All answers go to the host, and are compared before anything is
timed.

Without a GPU engine ops run as their native segments: then the differences between the ways are overhead of calling, and no time of the
engine is in them.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time

import numpy as np

from benchmarks import _models, _report, _stats

NEEDS_GPU = False
FIRST = "signature, held"
COLUMNS = [
    ("model", "model"),
    ("batch", "batch"),
    ("way", "way"),
    ("p50_ms", "p50 ms"),
    ("less_ms", "less than the first, ms"),
    ("ratio", "share of the first"),
    ("ratio_min", "least"),
    ("ratio_max", "most"),
    ("n", "calls"),
    ("only", ""),
]


def main(argv=None):
    options = _options(argv)
    results = _report.Results(options.json, "call_ways")
    end = time.monotonic() + options.budget
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        models = options.model or {"small": save_small(folder / "small")}
        for name, path in models.items():
            for batch in options.batches:
                if time.monotonic() > end:
                    print(f"the time is up before {name}, batch {batch}")
                    break
                for row in measured(name, path, batch, options, folder, end):
                    results.add(**row)
    print(_report.table(COLUMNS, results.rows))
    return 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.call_ways", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        type=lambda text: tuple(text.split("=", 1)),
        action="append",
        help="NAME=DIR, a SavedModel with one input and one output, converted or not; repeatable. By default a small network",
    )
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")], default=[1])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=20, help="of each way in each round")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which no round begins")
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/call_ways.json")
    options = parser.parse_args(argv)
    if wrong := [one for one in options.model or () if len(one) != 2]:
        parser.error(f"--model={wrong[0][0]}: give NAME=DIR")
    options.model = dict(options.model or ())
    return options


def save_small(path):
    """Two layers of 64: what is timed is the calling."""
    import tensorflow as tf

    class Small(tf.Module):
        def __init__(self):
            self.weights = [tf.Variable(tf.random.stateless_normal((64, 64), [1, n]) / 8) for n in range(2)]

        @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, name="x")])
        def serve(self, x):
            for weights in self.weights:
                x = tf.nn.relu(tf.matmul(x, weights))
            return {"y": x}

    module = Small()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


class Sessions:
    """A SavedModel in sessions, and the ways of calling it there."""

    def __init__(self, path, array, device):
        import tensorflow as tf

        from tftrt_tools.base import tf_private
        from tftrt_tools.servers.serving.local.session import Session

        v1, self._array = tf.compat.v1, array
        config = v1.ConfigProto()
        config.gpu_options.allow_growth = True
        self._session = v1.Session(graph=tf.Graph(), config=config)
        meta = v1.saved_model.loader.load(self._session, ["serve"], str(path))
        (feed,), (fetch,) = (list(part.values()) for part in _ends(meta.signature_def["serving_default"]))
        self._feed, self._fetch = feed.name, fetch.name
        self._given = tf_private.session_callable(self._session, [feed.name], [fetch.name])
        self._holding = v1.Session(graph=tf.Graph(), config=config)
        with self._holding.graph.as_default():
            with tf.device(device):
                value = v1.placeholder(array.dtype, array.shape)
                held = v1.get_variable("held_input", initializer=value, use_resource=True, trainable=False)
            v1.saved_model.loader.load(self._holding, ["serve"], str(path), input_map={feed.name: held.read_value()})
            self._holding.run(held.initializer, {value: array})
            self._held = tf_private.session_callable(self._holding, [], [fetch.name])
        self._direct = Session(path, config=config.SerializeToString())

    def ways(self):
        """{way: function}."""
        array, feeds = self._array, {self._feed: self._array}
        return {
            "callable, held": lambda: self._held()[0],
            "callable, NumPy": lambda: self._given(array)[0],
            "Session.run, NumPy": lambda: self._session.run(self._fetch, feeds),
            "C Session::Run, NumPy": lambda: self._direct.run(feeds, [self._fetch])[0],
        }

    def close(self):
        self._session.close()
        self._holding.close()
        self._direct.close()


def _ends(signature):
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        raise SystemExit("this benchmark calls models of one input and one output")
    return signature.inputs, signature.outputs


def measured(name, path, batch, options, folder, end):
    """Rows of one model, one for each way."""
    import tensorflow as tf

    from benchmarks import _tf_worker
    from tftrt_tools.models.execution.job import native_copy

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    if not on_gpu and native_copy.write(str(path), str(folder / f"native-{name}-{batch}")):
        path = folder / f"native-{name}-{batch}"
    model = _tf_worker.Model(path)
    (spec,) = model.function.structured_input_signature[1].values()
    shape = [batch if size is None else size for size in spec.shape]
    array = np.random.default_rng(0).uniform(-1, 1, shape).astype(spec.dtype.as_numpy_dtype)
    sessions = Sessions(path, array, model.device)
    ways = {
        FIRST: model.device_call(array),
        "past the wrapper, held": model.flat_call(array),
        "signature, NumPy": model.numpy_call(array),
        **sessions.ways(),
        "empty, held": _empty(model.on_device(array)),
    }
    check(ways)
    times = in_turns(ways, options.rounds, options.calls, end)
    sessions.close()
    for way, row in rows(times).items():
        yield {
            "model": name,
            "batch": batch,
            "way": way,
            **row,
            "device": model.device,
            "only": "" if on_gpu else "CPU: overhead alone",
        }


def _empty(tensor):
    import tensorflow as tf

    function = tf.function(lambda x: tf.reshape(x, [-1])[:1]).get_concrete_function(tensor)
    return lambda: function(tensor).numpy()


def check(ways):
    """Raise SystemExit where a way answers otherwise than the first one."""
    expected = ways[FIRST]()
    for way, call in ways.items():
        if not way.startswith("empty") and not np.allclose(call(), expected, rtol=1e-2, atol=1e-3):
            raise SystemExit(f"{way} answers otherwise than {FIRST}")


def in_turns(ways, rounds, calls, end):
    """{way: one list of seconds for each round}. The order goes round, so that no way is always behind the same one. Args: end: of
    time.monotonic, after which no round begins; one round is made in any case."""
    for call in ways.values():
        for _ in range(calls):
            call()
    times = {way: [] for way in ways}
    names = list(ways)
    for number in range(rounds):
        if number and time.monotonic() > end:
            break
        turn = number % len(names)
        for way in names[turn:] + names[:turn]:
            own, call = [], ways[way]
            for _ in range(calls):
                start = time.perf_counter()
                call()
                own.append(time.perf_counter() - start)
            times[way].append(own)
    return times


def rows(times):
    """{way: its figures}. Ratios are of the medians of the same round."""
    medians = {way: [_stats.quantile(own, 0.5) for own in rounds] for way, rounds in times.items()}
    first = _stats.quantile([one for own in times[FIRST] for one in own], 0.5)
    found = {}
    for way, rounds in times.items():
        p50 = _stats.quantile([one for own in rounds for one in own], 0.5)
        ratio = _stats.ratios(medians[way], medians[FIRST])
        found[way] = {
            "p50_ms": round(p50 * 1e3, 4),
            "less_ms": round((first - p50) * 1e3, 4),
            "ratio": round(ratio["median"], 3),
            "ratio_min": round(ratio["min"], 3),
            "ratio_max": round(ratio["max"], 3),
            "n": sum(map(len, rounds)),
        }
    return found


if __name__ == "__main__":
    sys.exit(main())
