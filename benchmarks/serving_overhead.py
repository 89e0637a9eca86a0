"""What the development server adds to the model: the time of a call through gRPC less that of the same Session::Run in process.

Both in turn, request by request, so that other load on the machine meets both. Requests are serialized before, answers are left as
bytes: the client's own work is as little as it can be. `echo` hands its input back; its time in process is next to nothing.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import numpy as np

from benchmarks import _models, _report
from tests.conformance.launch import LocalServer

NEEDS_GPU = False
TARGET_MS = 1.0
MODEL = "echo"


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_overhead", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="of each small request; large ones less")
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/serving_overhead.json")
    options = parser.parse_args(argv)
    results = _report.Results(options.json, "serving_overhead")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_echo(folder / "echo/1")
        with LocalServer(["--model_name=echo", f"--model_base_path={folder / 'echo'}"], folder / "log.txt") as server:
            for size, content in ((64, True), (64, False), (150_528, True), (150_528, False), (16_000_000, True), (16_000_000, False)):
                calls = max(20, min(options.calls, options.calls * 1000 // size))
                results.add(**_measure(server.grpc_address, folder / "echo/1", size, content, calls))
    small = max(row["added_p50_ms"] for row in results.rows if row["floats"] == 64)
    print(f"added at p50 for a small request: {small:.2f} ms (target: at most {TARGET_MS:.0f} ms)")
    return 0 if small <= TARGET_MS else 1


def save_echo(path):
    import tensorflow as tf

    class Echo(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
        def serve(self, x):
            return {"y": x + 0.0}

    module = Echo()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})


def _measure(address, path, size, content, calls):
    import grpc
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.serving.local.session import Session
    from tftrt_tools.wire import tensor

    array = np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "echo"
    request.inputs["x"].ParseFromString(b"".join(tensor.encode(array, content)))
    raw = request.SerializeToString()
    session = Session(path)
    signature = session.signatures["serving_default"]
    feeds, fetches = {signature.inputs["x"].name: array}, [signature.outputs["y"].name]
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, limits) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        answer = predict_pb2.PredictResponse.FromString(call(raw)).outputs["y"]
        assert np.array_equal(tensor.decode(answer), array)
        for _ in range(20):
            call(raw)
            session.run(feeds, fetches)
        times = np.empty((2, calls))
        for number in range(calls):
            for row, run in enumerate((lambda: call(raw), lambda: session.run(feeds, fetches))):
                start = time.perf_counter()
                run()
                times[row, number] = time.perf_counter() - start
    session.close()
    served, inside = np.percentile(times, [50, 99], axis=1).T * 1e3
    return {"floats": size, "sent_as": "tensor_content" if content else "float_val", "calls": calls,
            "in_process_p50_ms": round(inside[0], 3), "served_p50_ms": round(served[0], 3), "served_p99_ms": round(served[1], 3),
            "added_p50_ms": round(served[0] - inside[0], 3)}


if __name__ == "__main__":
    sys.exit(main())
