"""The development server and more than 100,000 damaged requests: no crash, no hang, no fault of its own, nothing left behind.

The bulk runs in process, through the handlers that the gRPC and REST servers call; some thousands go over real sockets. All are
made from valid requests by seeded mutation, so that a failure can be repeated by its seed and number.
"""

import gc
import http.client
import json
import logging
import os
import pathlib
import random
import socket
import struct
import threading
import time

import grpc
import numpy as np
import pytest

from tests.conformance import address, launch, models
from tests.conformance.test_b4_classify_regress import CLASSIFY, REGRESS, example

pytestmark = pytest.mark.slow

COUNTS = {
    "Predict": 80_000,
    "Classify": 10_000,
    "Regress": 10_000,
    "MultiInference": 10_000,
    "GetModelMetadata": 8_000,
    "GetModelStatus": 8_000,
    "REST": 60_000,
    "tensors": 30_000,
    "plain": 30_000,
}
SOCKETS = {"gRPC": 2_500, "REST": 1_000}
_MESSAGES = {
    "Predict": "predict.PredictRequest",
    "Classify": "classification.ClassificationRequest",
    "Regress": "regression.RegressionRequest",
    "MultiInference": "inference.MultiInferenceRequest",
    "GetModelMetadata": "get_model_metadata.GetModelMetadataRequest",
    "GetModelStatus": "get_model_status.GetModelStatusRequest",
}
_HUGE = 1 << 20  # elements; a request that asks for more in a few bytes is left out, it would only fill the memory
_GROWTH = 96 << 20  # bytes of resident memory; a leak of one request in a hundred, some kilobytes each, would be seen
_TIMEOUT_MS = 5000


# What mutates

_WORDS = [
    b"",
    b"\x00",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f",
    b"serving_default",
    b"inputs",
    b"x",
    b"nobody",
]
_TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"null",
    b"true",
    b"-",
    b"1e999",
    b"-0",
    b"NaN",
    b"Infinity",
    b"1e-400",
    b"18446744073709551616",
    b'{"b64": "AA"}',
    b'"instances"',
    b'"inputs"',
    b'"signature_name"',
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"[" * 600,
    b"\xef\xbb\xbf",
]


def _mutated(data, rng, others, words):
    """`data` after one to four random changes. others: what to splice with; words: byte strings to put in."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 4, 16))]
        elif kind == 3:
            data[at:at] = rng.choice(words)
        elif kind == 4:
            data[at : at + rng.choice((1, 4))] = rng.choice(words)
        elif kind == 5:
            data[at:at] = data[at : at + rng.choice((1, 8, 64))]
        elif kind == 6:
            del data[at:]
        else:
            other = rng.choice(others)
            data[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(data)


def _fields(data):
    """[(field number, wire type, value)] of protobuf bytes, or None where they are none."""
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = (tag or 0) & 7
        if not tag or tag < 8 or kind not in (0, 1, 2, 5):
            return None
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(data, at)
            value = None if size is None else data[at : at + size]
            if value is None or len(value) < size:
                return None
            at += size
        if value is None:
            return None
        found.append((tag >> 3, kind, value))
    return found


def _varint(data, at):
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value & (2**64 - 1), at
    return None, at


def _one_varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _written(fields):
    return b"".join(
        _one_varint(number << 3 | kind)
        + (_one_varint(value) if kind == 0 else _one_varint(len(value)) + value if kind == 2 else value)
        for number, kind, value in fields
    )


def _refielded(data, rng, words):
    """`data`, protobuf bytes, with one field changed, dropped, doubled or moved, at any depth: lengths stay right, mostly a message."""
    fields = _fields(data)
    if not fields:
        return rng.choice(words)
    at = rng.randrange(len(fields))
    number, kind, value = fields[at]
    choice = rng.randrange(10)
    if choice < 5 and kind == 2:
        inner = _refielded(value, rng, words) if value and rng.random() < 0.8 else rng.choice(words)
        fields[at] = number, kind, inner
    elif choice < 6 and kind == 0:
        fields[at] = number, kind, rng.choice((0, 1, 2, 3, 7, 19, 127, 2**31, 2**63, 2**64 - 1))
    elif choice == 6:
        del fields[at]
    elif choice == 7:
        fields.insert(rng.randrange(len(fields) + 1), fields[at])
    elif choice == 8:
        fields[at] = rng.choice((1, 2, 3, 4, 5, 8, 13, 100)), kind, value
    else:
        rng.shuffle(fields)
    return _written(fields)


def _shuffled(request, rng):
    """A copy of a PredictRequest with some of its fields changed, so that it stays a message."""
    request = type(request).FromString(request.SerializeToString())
    for _ in range(rng.choice((1, 1, 2, 3))):
        aliases = sorted(request.inputs)
        proto = request.inputs[rng.choice(aliases)] if aliases else request.inputs["x"]
        kind = rng.randrange(12)
        if kind == 0:
            proto.dtype = rng.choice((*range(26), 101, 107, 7777))
        elif kind == 1 and proto.tensor_shape.dim:
            rng.choice(proto.tensor_shape.dim).size = rng.choice((-1, 0, 1, 2, 3, 5, 1000, 2**31, 2**62, -(2**63)))
        elif kind == 2:
            proto.tensor_shape.dim.add(size=rng.choice((0, 1, 2, 2**40)))
        elif kind == 3:
            del proto.tensor_shape.dim[: rng.randrange(3)]
        elif kind == 4:
            proto.tensor_content = rng.randbytes(rng.choice((0, 1, 4, 8, 24, 100)))
        elif kind == 5:
            name = rng.choice(
                (
                    "float_val",
                    "int_val",
                    "string_val",
                    "half_val",
                    "int64_val",
                    "bool_val",
                    "scomplex_val",
                    "uint64_val",
                )
            )
            value = {"string_val": b"a", "bool_val": True}.get(name, rng.choice((0, 1, 3)))
            getattr(proto, name).extend([value] * rng.randrange(5))
        elif kind == 6:
            request.model_spec.signature_name = rng.choice(
                ("", "serving_default", "nosuch", "int32", "string", "half", "complex64", "ü" * 700)
            )
        elif kind == 7:
            request.model_spec.name = rng.choice(
                ("", "several", "dtypes", "texts", "fragile", "examples", "uneven", "defaults", "reduced")
            )
        elif kind == 8:
            request.output_filter.append(rng.choice(("y", "sum", "", "nosuch")))
        elif kind == 9 and aliases:
            del request.inputs[rng.choice(aliases)]
        elif kind == 10:
            request.inputs[rng.choice(("a", "b", "c", "x", "index", "inputs", ""))].CopyFrom(proto)
        else:
            request.model_spec.version.value = rng.choice((0, 1, 2, -1, 2**63 - 1))
    return request


def _asks_for_too_much(proto):
    """Whether a TensorProto's few bytes stand for an array that fills the memory."""
    count = np.prod([float(dim.size) for dim in proto.tensor_shape.dim])
    return _HUGE < count <= 2.0**40 and not proto.tensor_content


# Valid requests to start from


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.built_once(tmp_path_factory)


def _corpus():
    """{RPC: [valid requests]}."""
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        regression_pb2,
    )

    tensor, spec = address.tensor, address.spec
    several = {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]], "c": tensor([5], np.int32)}
    predict = [
        address.predict_request("half_plus_two", {"x": [1.0, 2.0]}),
        address.predict_request("half_plus_two", {"x": np.ones((2, 3), np.float32)}),
        address.predict_request("several", several),
        address.predict_request("several", several, output_filter=["sum", "count"]),
        address.predict_request("several", {"a": [[1, 2]], "b": [[3, 4]]}, signature="only_sum"),
        address.predict_request("texts", {"x": tensor([b"a", b"\xff"], object)}),
        address.predict_request("versions", {"x": [1.0]}, label="stable"),
        address.predict_request("versions", {"x": [1.0]}, version=1),
        address.predict_request("fragile", {"index": tensor([0, 2], np.int32)}),
        address.predict_request("defaults", {"a": [1.0]}),
        address.predict_request("examples", {"inputs": tensor([b""], object)}),
        address.predict_request("uneven", {"x": [1.0]}),
        address.predict_request("reduced", {"x": [1.0]}),
    ]
    for name, dtype in models.DTYPES.items():
        value = np.array([b"a"], object) if name == "string" else tensor_values(dtype)
        predict.append(address.predict_request("dtypes", {"x": tensor(value)}, signature=name))
    examples = [example(0.25), example()]
    classify = [
        classification_pb2.ClassificationRequest(model_spec=spec("examples", signature=name))
        for name in ("", "classes_only", "scores_only", "predict_like_classify", "classify_vector")
    ]
    regress = [
        regression_pb2.RegressionRequest(model_spec=spec("examples", signature=name))
        for name in ("regress", "regress_vector")
    ]
    multi = inference_pb2.MultiInferenceRequest()
    for signature, method in (("regress", REGRESS), ("", CLASSIFY)):
        multi.tasks.add(model_spec=spec("examples", signature=signature), method_name=method)
    for request in (*classify, *regress, multi):
        request.input.example_list.examples.extend(examples)
    context = classification_pb2.ClassificationRequest(model_spec=spec("examples"))
    context.input.example_list_with_context.examples.extend(examples)
    context.input.example_list_with_context.context.CopyFrom(example(0.5))
    specs = [
        spec("versions"),
        spec("versions", 1),
        spec("versions", label="canary"),
        spec("nobody"),
        spec("several", 1, signature="x"),
    ]
    return {
        "Predict": predict,
        "Classify": [*classify, context],
        "Regress": regress,
        "MultiInference": [multi],
        "GetModelMetadata": [
            get_model_metadata_pb2.GetModelMetadataRequest(model_spec=each, metadata_field=["signature_def"])
            for each in specs
        ],
        "GetModelStatus": [get_model_status_pb2.GetModelStatusRequest(model_spec=each) for each in specs],
    }


def tensor_values(dtype):
    """Two values of a numeric dtype, by TensorFlow's name for it."""
    import tensorflow as tf

    return np.array([1, 0], tf.dtypes.as_dtype(dtype).as_numpy_dtype)


_BODIES = [
    ("half_plus_two:predict", {"instances": [1.0, 2.0]}),
    ("half_plus_two:predict", {"inputs": {"x": [[1.0]]}}),
    ("half_plus_two/versions/1:predict", {"instances": [[1, 2], [3, 4]]}),
    ("versions/labels/stable:predict", {"inputs": [1]}),
    ("several:predict", {"instances": [{"a": [1, 2], "b": [3, 4], "c": 5}]}),
    ("several:predict", {"signature_name": "only_sum", "inputs": {"a": [[1, 2]], "b": [[3, 4]]}}),
    ("texts:predict", {"instances": ["a", {"b64": "AAE="}, "\u00fc"]}),
    ("dtypes:predict", {"signature_name": "uint64", "inputs": [2**64 - 1]}),
    ("dtypes:predict", {"signature_name": "bool", "instances": [True, False]}),
    ("dtypes:predict", {"signature_name": "half", "inputs": [1.5]}),
    ("dtypes:predict", {"signature_name": "int8", "inputs": [1, -1]}),
    ("uneven:predict", {"instances": [1.0]}),
    ("fragile:predict", {"instances": [0, 2]}),
    ("examples:classify", {"examples": [{"x": 0.25}, {"x": [1.0]}, {}]}),
    (
        "examples:regress",
        {"signature_name": "regress", "context": {"x": 1.0}, "examples": [{}, {"y": ["a", {"b64": "AA=="}]}]},
    ),
]


# In process


class _Faults(logging.Handler):
    """Keeps what the server logs with a traceback: faults of its own, whatever it answers."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.found = []

    def emit(self, record):
        if record.exc_info:
            self.found.append(logging.Formatter().format(record)[-3000:])


@pytest.fixture(scope="module")
def core(folder):
    """core.Core of the models, as server.Server makes it."""
    from tftrt_tools.servers.serving.local import core, loader, manager, metrics_page

    counted = metrics_page.Metrics()
    shared = core.Core(counted, monitored=True)
    shared.manager = manager.Manager(
        loader.Loader(loader.LoadSettings(), shared.services(), None, counted), manager.ManagerSettings()
    )
    config = models.config(folder, {})
    kept = [
        entry for entry in config.model_config_list.config if entry.name != "slow"
    ]  # a damaged number of steps would last for ever
    del config.model_config_list.config[:]
    config.model_config_list.config.extend(kept)
    shared.manager.start(config)
    yield shared
    shared.manager.stop()


@pytest.fixture
def faults():
    """Fails the test where the server logged a fault of its own."""
    handler = _Faults()
    logger = logging.getLogger("tftrt")
    others = logging.getLogger("tftrt_tools")
    for each in (logger, others):
        each.addHandler(handler)
    yield handler.found
    for each in (logger, others):
        each.removeHandler(handler)
    assert not handler.found, f"{len(handler.found)} faults, the first:\n{handler.found[0]}"


@pytest.fixture
def nothing_left():
    """This process has as many descriptors and threads afterwards, and little more memory."""
    gc.collect()
    before = _used("self")
    yield
    gc.collect()
    _assert_little_more(before, _used("self"))


def _used(pid):
    process = pathlib.Path(f"/proc/{pid}")
    return {
        "fds": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "memory": int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


def _assert_little_more(before, after):
    assert after["fds"] <= before["fds"] + 4 and after["threads"] <= before["threads"] + 40, (before, after)
    assert after["memory"] <= before["memory"] + _GROWTH, (before, after)


def _method(core, rpc):
    """The function (bytes, milliseconds) -> parts of bytes that the gRPC server calls."""
    from tftrt_tools.servers.serving.local import grpc_methods

    service = "ModelService" if rpc == "GetModelStatus" else "PredictionService"
    return grpc_methods.table(core, 1)[f"/tensorflow.serving.{service}/{rpc}"]


def _message(rpc):
    import importlib

    module, name = _MESSAGES[rpc].split(".")
    return getattr(importlib.import_module(f"tensorflow_serving.apis.{module}_pb2"), name)


def _requests(rpc, count, seed):
    """`count` damaged requests as bytes: a quarter bytewise, the others field by field, Predict's also by names and tensors."""
    from google.protobuf.message import DecodeError

    rng, corpus = random.Random(f"{rpc}-{seed}"), _corpus()[rpc]
    raw = [request.SerializeToString() for request in corpus]
    request_class = _message(rpc)
    made = 0
    while made < count:
        way = rng.random()
        if way < 0.25:
            data = _mutated(rng.choice(raw), rng, raw, _WORDS)
        elif rpc == "Predict" and way < 0.65:
            data = _shuffled(rng.choice(corpus), rng).SerializeToString()
        else:
            data = rng.choice(raw)
            for _ in range(rng.choice((1, 1, 2, 3))):
                data = _refielded(data, rng, _WORDS)
        if rpc == "Predict":
            try:
                if any(map(_asks_for_too_much, request_class.FromString(data).inputs.values())):
                    continue
            except DecodeError:
                pass
        made += 1
        yield data


def _answers(method, data):
    """The code of the answer; what comes back without an error has to be a message."""
    from tftrt_tools.servers.serving.local import failure

    try:
        return "OK", b"".join(method(data, _TIMEOUT_MS))
    except failure.Failure as error:
        assert isinstance(error.code, grpc.StatusCode) and isinstance(error.grpc_message, str)
        assert len(error.grpc_message) <= 1024 + len("...TRUNCATED")
        return error.code.name, error.grpc_message


@pytest.mark.parametrize("rpc", _MESSAGES)
def test_damaged_requests_are_answered_or_refused(core, faults, nothing_left, rpc):
    method = _method(core, rpc)
    for data in (
        request.SerializeToString() for request in _corpus()[rpc]
    ):  # grows the pools before memory is compared
        _answers(method, data)
    codes = {}
    for number, data in enumerate(_requests(rpc, COUNTS[rpc], 0)):
        code, answer = _answers(method, data)
        codes[code] = codes.get(code, 0) + 1
        assert not faults, f"number {number}: {data!r}"
        assert code != "INTERNAL" or answer.startswith("Failed to parse"), (number, data, answer)
    # The mutations are neither harmless nor all nonsense.
    assert {"OK", "INTERNAL"} <= set(codes) and len(codes) > 2 and codes["INTERNAL"] < COUNTS[rpc] // 2, codes


def test_a_plain_request_is_what_protobuf_reads():
    """Large requests are read without protobuf where they have the usual form."""
    from google.protobuf.message import DecodeError

    from tftrt_tools.base.wire import tensor
    from tftrt_tools.servers.serving.local import plain_request

    plain = 0
    for number, data in enumerate(_requests("Predict", COUNTS["plain"], 1)):
        found = plain_request.read(data)
        if found is None:
            continue
        try:
            message = _message("Predict").FromString(data)
            expected = {alias: tensor.decode(one) for alias, one in message.inputs.items()}
        except (DecodeError, ValueError) as error:
            raise AssertionError((number, data)) from error
        assert found.model_spec == message.model_spec and list(found.output_filter) == list(message.output_filter), (
            number,
            data,
        )
        assert found.inputs.keys() == expected.keys(), (number, data)
        for alias, array in expected.items():
            assert found.inputs[alias].dtype == array.dtype and found.inputs[alias].shape == array.shape, (number, data)
            assert found.inputs[alias].tobytes() == array.tobytes(), (number, data)
        plain += 1
    assert plain > COUNTS["plain"] / 10, plain


def test_damaged_tensors_are_read_as_tensorflow_reads_them(faults):
    """The same values, or both refuse. TensorFlow's own parser is asked."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import tensor_pb2

    from tftrt_tools.base.wire import tensor as wire

    rng = random.Random("tensors")
    corpus = [next(iter(request.inputs.values())) for request in _corpus()["Predict"]]
    # In the typed fields as well.
    corpus += [tensor_pb2.TensorProto.FromString(b"".join(wire.encode(tf.make_ndarray(proto)))) for proto in corpus]
    raw = [proto.SerializeToString() for proto in corpus]
    ways = (lambda data: _mutated(data, rng, raw, _WORDS), lambda data: _refielded(data, rng, _WORDS))
    same = refused = 0
    for number in range(COUNTS["tensors"]):
        if rng.random() < 0.5:
            request = address.predict_request("", {})
            request.inputs["x"].CopyFrom(rng.choice(corpus))
            proto = _shuffled(request, rng).inputs["x"]
        else:
            try:
                proto = tensor_pb2.TensorProto.FromString(rng.choice(ways)(rng.choice(raw)))
            except DecodeError:
                continue
        sizes = [float(dim.size) for dim in proto.tensor_shape.dim]
        if (
            proto.dtype not in wire._KINDS
            or len(sizes) > 32
            or 0 in sizes
            and np.prod([size or 1 for size in sizes]) > 2.0**40
        ):
            continue  # NumPy has no such shape
        if np.prod(sizes) > _HUGE:  # TensorFlow looks for the memory for ten seconds
            if not _asks_for_too_much(proto):
                with pytest.raises(ValueError):
                    wire.decode(proto)
            continue
        try:
            theirs = tf.io.parse_tensor(proto.SerializeToString(), tf.dtypes.as_dtype(proto.dtype)).numpy()
        except tf.errors.InvalidArgumentError:
            theirs = None
        try:
            ours = wire.decode(proto)
        except ValueError:
            ours = None
        assert (ours is None) == (theirs is None), (number, proto, ours, theirs)
        if ours is None:
            refused += 1
            continue
        same += 1
        theirs = np.asarray(theirs, object if proto.dtype == 7 else None)
        assert ours.shape == theirs.shape, (number, proto)
        assert list(ours.ravel()) == list(theirs.ravel()) if proto.dtype == 7 else ours.tobytes() == theirs.tobytes(), (
            number,
            proto,
            ours,
            theirs,
        )
    assert same > COUNTS["tensors"] // 10 and refused > COUNTS["tensors"] // 10


def test_damaged_rest_requests_are_answered_or_refused(core, faults, nothing_left):
    from tftrt_tools.servers.serving.local.rest import handler

    rest = handler.Handler(core, _TIMEOUT_MS)
    rng = random.Random("rest")
    bodies = [(path, json.dumps(body).encode()) for path, body in _BODIES]
    for path, body in bodies:
        assert rest.answer("POST", f"/v1/models/{path}", "", body).status in (200, 400, 501), path
    raw, statuses = [body for _, body in bodies], {}
    paths = [f"/v1/models/{path}".encode() for path, _ in bodies]
    for number in range(COUNTS["REST"]):
        path, body = rng.choice(bodies)
        target = f"/v1/models/{path}".encode()
        if rng.random() < 0.1:
            target = _mutated(
                target, rng, paths, [b"/", b":", b"%41", b"%", b"?", b"metadata", b"\xff", b"versions/2", b"labels/x"]
            )
        if rng.random() < 0.95:
            body = _mutated(body, rng, raw, _TOKENS)
        encoding = "gzip" if rng.random() < 0.02 else ""
        verb = rng.choice(("POST",) * 20 + ("GET", "PUT", "HEAD", "DELETE"))
        answer = rest.answer(verb, target.decode("utf-8", "surrogateescape"), encoding, body)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        assert not faults and answer.status != 500, (number, verb, target, body, answer)
        if answer.content_type == "application/json" and answer.body:
            text = answer.body.decode("utf-8", "replace")
            assert answer.status == 200 or "error" in json.loads(text, strict=False), (
                number,
                verb,
                target,
                body,
                answer,
            )
    assert {200, 400, 404} <= set(statuses), statuses


# Over sockets


@pytest.fixture(scope="module")
def process(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz")
    config = models.config(folder, {})
    for entry in list(config.model_config_list.config):
        if entry.name == "slow":
            config.model_config_list.config.remove(entry)
    (path / "models.config").write_text(str(config))
    with launch.LocalServer([f"--model_config_file={path / 'models.config'}"], path / "log.txt") as process:
        yield process


@pytest.fixture
def unharmed(process):
    """The server runs and answers afterwards, and uses no more than before; its log has no traceback."""
    server = address.Server(process.grpc_address, process.rest_address)
    for _ in range(100):  # as many as its threads, so that these are there
        server.predict("half_plus_two", {"x": [1.0]})
        server.rest_predict("half_plus_two", {"instances": [1.0]})
    time.sleep(1)
    before = _used(process.process.pid)
    yield server
    assert list(server.predict("half_plus_two", {"x": [1.0]}).outputs["y"].float_val) == [2.5]
    assert server.rest_predict("half_plus_two", {"instances": [1.0]}).json() == {"predictions": [2.5]}
    deadline = time.monotonic() + 20
    while (after := _used(process.process.pid))["fds"] > before["fds"] + 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    _assert_little_more(before, after)
    assert "Traceback" not in process.log.read_text(errors="replace")
    server.close()


def test_damaged_requests_over_grpc(process, unharmed):
    """From four clients at once."""
    problems = []

    def send(rpc, count, seed):
        service = "ModelService" if rpc == "GetModelStatus" else "PredictionService"
        with grpc.insecure_channel(process.grpc_address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.unary_unary(f"/tensorflow.serving.{service}/{rpc}")
            for data in _requests(rpc, count, seed):
                try:
                    call(data, timeout=10)
                except grpc.RpcError as error:
                    if error.code().name in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "UNKNOWN"):
                        problems.append((rpc, data, error.code(), error.details()))

    share = SOCKETS["gRPC"] // 5
    threads = [
        threading.Thread(target=send, args=(rpc, share, 1))
        for rpc in ("Predict", "Classify", "MultiInference", "GetModelMetadata")
    ]
    threads.append(threading.Thread(target=send, args=("Predict", share, 2)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads) and not problems, problems[:3]


def test_damaged_http_requests(process, unharmed):
    """Whole requests, the request line and headers included; each on a connection that is then closed."""
    rng = random.Random("http")
    whole = []
    for path, body in _BODIES:
        body = json.dumps(body).encode()
        whole.append(
            f"POST /v1/models/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
    words = [
        b"\r\n",
        b"\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"HTTP/1.0",
        b"Content-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
        b" ",
        b"\x00",
        b"A" * 5000,
    ]
    answered = 0
    for _ in range(SOCKETS["REST"] // 200):
        sent = []
        for _ in range(200):
            data = _mutated(rng.choice(whole), rng, whole, [*words, *_TOKENS])
            connection = socket.create_connection(("127.0.0.1", process.rest_port), 10)
            connection.sendall(data)
            sent.append((data, connection))
        deadline = time.monotonic() + 1.5  # some wait for more of a body than was sent
        for data, connection in sent:
            answered += _is_answered(data, connection, deadline)
            connection.close()
    assert answered > SOCKETS["REST"] // 3


def _is_answered(data, connection, deadline):
    try:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status != 500, data
        answer.read()
    except (http.client.HTTPException, OSError):
        return False  # no request at all to the server, or half of one
    return True


def test_damaged_http2_frames(process, unharmed):
    """What gRPC itself has to stand, as a client of 100 broken connections."""
    rng = random.Random("http2")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">HBBBI", 0, 0, 4, 0, 0)
    for _ in range(100):
        frames = b"".join(
            struct.pack(">HBBBI", 0, rng.randrange(64), rng.randrange(12), rng.randrange(256), rng.randrange(2**31))
            + rng.randbytes(rng.randrange(64))
            for _ in range(rng.randrange(6))
        )
        with socket.create_connection(("127.0.0.1", process.port), 10) as connection:
            connection.sendall(
                _mutated(preface + frames, rng, [preface], _WORDS) if rng.random() < 0.5 else preface + frames
            )


def test_there_are_more_than_a_hundred_thousand():
    assert sum(COUNTS.values()) + sum(SOCKETS.values()) > 100_000
