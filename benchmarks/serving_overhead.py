"""What the development server adds to the model: the time of a call through gRPC less that of the same Session::Run in process.

All in turn, request by request, so that other load on the machine meets all; with --before also the server of another checkout. The client
is gRPC's own for Python. Requests are serialized before, answers are left as bytes: the client's own work is as little as it can be.
`echo` hands its input back, `first` only its first value; their time in process is next to nothing. The client's processor time is part
of each call: with large messages it is most of it.
"""

import argparse
import contextlib
import functools
import pathlib
import sys
import tempfile
import time

import numpy as np

from benchmarks import _models, _report
from tests.conformance.launch import LocalServer

NEEDS_GPU = False
MODEL, ECHO, FIRST = "echo", "serving_default", "first"
# Floats of a request, whether they are tensor_content, the signature that answers.
CASES = (
    (64, True, ECHO),
    (64, False, ECHO),
    (150_528, True, ECHO),
    (150_528, False, ECHO),
    (16_000_000, True, FIRST),
    (16_000_000, False, FIRST),
    (16_000_000, True, ECHO),
    (16_000_000, False, ECHO),
)
COLUMNS = [
    ("floats", "floats"),
    ("sent_as", "sent as"),
    ("signature", "signature"),
    ("server", "server"),
    ("in_process_p50_ms", "in process, p50 ms"),
    ("served_p50_ms", "served, p50 ms"),
    ("served_p99_ms", "p99 ms"),
    ("added_p50_ms", "added, p50 ms"),
    ("client_cpu_ms", "client CPU ms"),
]


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_overhead", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="of each small request; large ones less")
    parser.add_argument("--before", type=pathlib.Path, help="a checkout of the project, whose server is asked too")
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/serving_overhead.json")
    options = parser.parse_args(argv)
    results = _report.Results(options.json, "serving_overhead")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        save_echo(folder / MODEL / "1")
        flags = [f"--model_name={MODEL}", f"--model_base_path={folder / MODEL}"]
        path = f"unix:{folder / 'socket'}"
        now = LocalServer([*flags, f"--grpc_socket_path={folder / 'socket'}"], folder / "now.txt")
        addresses = {"now": stack.enter_context(now).grpc_address, "now, by a path": path}
        if options.before:
            before = LocalServer(flags, folder / "before.txt", root=options.before.absolute())
            addresses["before"] = stack.enter_context(before).grpc_address
        for size, content, signature in CASES:
            calls = max(20, min(options.calls, options.calls * 1000 // size))
            for row in _measure(addresses, folder / MODEL / "1", size, content, signature, calls):
                results.add(**row)
    print(_report.table(COLUMNS, results.rows))
    small = max(row["added_p50_ms"] for row in results.rows if row["floats"] == 64 and row["server"] == "now")
    print(f"added at p50 for a small request: {small:.2f} ms")
    return 0


def save_echo(path):
    import tensorflow as tf

    class Echo(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
        def serve(self, x):
            return {"y": x + 0.0}

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
        def first(self, x):
            return {"y": x[:, :1] + 0.0}

    module = Echo()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve, "first": module.first})


def _measure(addresses, path, size, content, signature, calls):
    """Rows, one for each server."""
    import grpc
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.base.wire import tensor
    from tftrt_tools.servers.serving.local.session import Session

    array = np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = MODEL, signature
    request.inputs["x"].ParseFromString(b"".join(tensor.encode(array, content)))
    raw = request.SerializeToString()
    session = Session(path)
    described = session.signatures[signature]
    feeds, fetches = {described.inputs["x"].name: array}, [described.outputs["y"].name]
    ways = {"in process": lambda: session.run(feeds, fetches)}
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with contextlib.ExitStack() as stack:
        for name, address in addresses.items():
            call = stack.enter_context(grpc.insecure_channel(address, limits)).unary_unary(
                "/tensorflow.serving.PredictionService/Predict"
            )
            answer = predict_pb2.PredictResponse.FromString(call(raw)).outputs["y"]
            assert np.array_equal(tensor.decode(answer), array if signature == ECHO else array[:, :1])
            ways[name] = functools.partial(call, raw)
        for _ in range(20 if size < 1_000_000 else 3):
            for run in ways.values():
                run()
        times, used = np.empty((len(ways), calls)), np.zeros(len(ways))
        for number in range(calls):
            for row, run in enumerate(ways.values()):
                own, start = time.process_time(), time.perf_counter()
                run()
                times[row, number] = time.perf_counter() - start
                used[row] += time.process_time() - own
    session.close()
    inside = float(np.percentile(times[0], 50)) * 1e3
    for name, own, spent in list(zip(ways, times, used, strict=True))[1:]:
        p50, p99 = np.percentile(own, [50, 99]) * 1e3
        yield {
            "server": name,
            "floats": size,
            "sent_as": "tensor_content" if content else "float_val",
            "signature": signature,
            "calls": calls,
            "in_process_p50_ms": round(inside, 3),
            "served_p50_ms": round(p50, 3),
            "served_p99_ms": round(p99, 3),
            "added_p50_ms": round(p50 - inside, 3),
            "client_cpu_ms": round(1e3 * spent / calls, 3),
        }


if __name__ == "__main__":
    sys.exit(main())
