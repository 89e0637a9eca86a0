"""Requests and answers as bytes: tftrt_tools.client against tensorflow-serving-api with make_tensor_proto, and against float_val lists.

All ways take turns, round by round, so that other load on the machine meets all of them; ratios are of the same round, their median is
shown. Arrays are float32. Each way of writing gives a PredictRequest's bytes from an array; each way of reading gives an array from a
PredictResponse's bytes, in the form that TensorFlow Serving 2.14.1 answers in (float_val) and in tensor_content. What is read is checked.
"""

import argparse
import functools
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks import _models, _report, _stats

NEEDS_GPU = False
SIZES = {"1 KB": 1 << 10, "16 KB": 1 << 14, "256 KB": 1 << 18, "4 MB": 1 << 22, "16 MB": 1 << 24, "64 MB": 1 << 26}
_WRITE = [
    ("size", "written"),
    ("client_ms", "client ms"),
    ("client_typed_ms", "client, float_val ms"),
    ("usual_ms", "make_tensor_proto ms"),
    ("list_ms", "float_val list ms"),
    ("usual_ratio", "make_tensor_proto / client"),
    ("list_ratio", "list / client"),
]
_READ = [
    ("size", "read"),
    ("form", "answer in"),
    ("client_ms", "client ms"),
    ("client_copy_ms", "client, copied ms"),
    ("usual_ms", "make_ndarray ms"),
    ("list_ms", "float_val list ms"),
    ("usual_ratio", "make_ndarray / client"),
    ("usual_copy_ratio", "make_ndarray / copied"),
    ("list_ratio", "list / client"),
]


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_encoding", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=300, help="for the small sizes; the large ones get fewer, at least 9"
    )
    parser.add_argument("--largest", type=int, default=1 << 26, help="bytes")
    parser.add_argument("--json", type=pathlib.Path, default=_models.ROOT / "build/bench/client_encoding.json")
    options = parser.parse_args(argv)
    results = _report.Results(options.json, "client_encoding")
    for size, count in SIZES.items():
        if count <= options.largest:
            rounds = max(9, min(options.rounds, options.rounds * (1 << 18) // count))
            array = np.random.default_rng(0).standard_normal((1, count // 4)).astype(np.float32)
            results.add(**_row("write", size, _times(_writers(array), rounds, _same_request(array))))
            for content in (False, True):
                times = _times(
                    _readers(_answer(array, content), content), rounds, functools.partial(np.array_equal, array)
                )
                results.add(**_row("read", size, times, form="tensor_content" if content else "float_val"))
    for kind, columns in (("write", _WRITE), ("read", _READ)):
        print("\n" + _report.table(columns, [row for row in results.rows if row["kind"] == kind]))
    return 0


def _writers(array):
    """{name: function that gives a PredictRequest's bytes}."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.servers import client

    def request():
        message = predict_pb2.PredictRequest()
        message.model_spec.name = "model"
        return message

    def usual():
        message = request()
        message.inputs["x"].CopyFrom(tf.make_tensor_proto(array))
        return message.SerializeToString()

    def by_list():
        message = request()
        proto = message.inputs["x"]
        proto.dtype = 1
        for size in array.shape:
            proto.tensor_shape.dim.add(size=size)
        proto.float_val.extend(array.ravel().tolist())
        return message.SerializeToString()

    return {
        "client": lambda: client.request_bytes("model", {"x": array}),
        "client_typed": lambda: client.request_bytes("model", {"x": array}, content=False),
        "usual": usual,
        "list": by_list,
    }


def _same_request(array):
    """A function that tells whether a PredictRequest's bytes hold the array."""
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.base.wire import tensor

    return lambda raw: np.array_equal(tensor.decode(predict_pb2.PredictRequest.FromString(raw).inputs["x"]), array)


def _answer(array, content):
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.base.wire import tensor

    answer = predict_pb2.PredictResponse()
    answer.model_spec.name = "model"
    answer.outputs["y"].ParseFromString(b"".join(tensor.encode(array, content)))
    return answer.SerializeToString()


def _readers(raw, content):
    """{name: function that gives the array}."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    from tftrt_tools.servers import client

    def by_list():
        proto = predict_pb2.PredictResponse.FromString(raw).outputs["y"]
        return np.array([value for value in proto.float_val], np.float32).reshape(
            [dim.size for dim in proto.tensor_shape.dim]
        )

    found = {
        "client": lambda: client.response_arrays(raw)[1]["y"],
        "client_copy": lambda: client.response_arrays(raw)[1]["y"].copy(),
        "usual": lambda: tf.make_ndarray(predict_pb2.PredictResponse.FromString(raw).outputs["y"]),
    }
    return found if content else {**found, "list": by_list}


def _times(ways, rounds, right):
    """{name: [seconds of each round]}. Raises: SystemExit where a way gives something else."""
    for name, way in ways.items():
        if not right(way()):
            raise SystemExit(f"{name} gives something else")
    times = {name: [] for name in ways}
    for number in range(rounds):
        order = list(ways.items())
        for name, way in order if number % 2 else reversed(order):
            start = time.perf_counter()
            kept = way()
            times[name].append(time.perf_counter() - start)
            del kept
    return times


def _row(kind, size, times, **more):
    row = {"kind": kind, "size": size, **more, "rounds": len(times["client"])}
    row |= {f"{name}_ms": 1e3 * _stats.quantile(seconds, 0.5) for name, seconds in times.items()}
    pairs = {
        "usual_ratio": ("usual", "client"),
        "usual_copy_ratio": ("usual", "client_copy"),
        "list_ratio": ("list", "client"),
    }
    return row | {
        key: _stats.ratios(times[one], times[other])["median"]
        for key, (one, other) in pairs.items()
        if one in times and other in times
    }


if __name__ == "__main__":
    sys.exit(main())
