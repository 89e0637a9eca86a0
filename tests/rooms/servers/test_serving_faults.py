"""The development server when clients and the system misbehave: it stays up, answers the others, and leaves nothing behind."""

import collections
import functools
import http.client
import json
import pathlib
import re
import socket
import threading
import time

import grpc
import numpy as np
import pytest

from tests.conformance import address, launch, models

ENDLESS = 10**9
WAIT = 30  # seconds until a test gives up; nothing is measured


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.built_once(tmp_path_factory)


@pytest.fixture(scope="module")
def process(folder, tmp_path_factory):
    with launch.LocalServer(models.flags(folder, False), tmp_path_factory.mktemp("faults") / "log.txt") as process:
        yield process


@pytest.fixture
def server(process):
    """address.Server; after each test it still runs and answers."""
    server = address.Server(process.grpc_address, process.rest_address)
    yield server
    assert _serves(server) and process.process.poll() is None
    server.close()


def _serves(server):
    return list(server.predict("half_plus_two", {"x": [1.0]}).outputs["y"].float_val) == [2.5] and server.rest_predict(
        "half_plus_two", {"instances": [1.0]}
    ).json() == {"predictions": [2.5]}


def _serves_again(server):
    try:
        return _serves(server)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        return False


def _descriptors(process):
    return len(list(pathlib.Path(f"/proc/{process.process.pid}/fd").iterdir()))


def _threads(process):
    return len(list(pathlib.Path(f"/proc/{process.process.pid}/task").iterdir()))


def _until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def _raw(server, method, service="PredictionService"):
    """The RPC from bytes to bytes."""
    return server.channel.unary_unary(f"/tensorflow.serving.{service}/{method}")


def _slow(rows=1):
    return address.predict_request("slow", {"steps": address.tensor([ENDLESS] * rows, np.int64)})


RPCS = [
    ("PredictionService", name) for name in ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")
] + [("ModelService", "GetModelStatus"), ("ModelService", "HandleReloadConfigRequest")]


@pytest.mark.parametrize("service, method", RPCS)
@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x08" + b"\x80" * 20, b"\x0a\x05\x12\x03\xff\xff\xff"]
)
def test_bytes_that_are_no_message_are_an_internal_error(server, service, method, data):
    """gRPC's own answer; the handler is not reached."""
    assert address.refusal(_raw(server, method, service), data)[0] == "INTERNAL"


@pytest.mark.parametrize(
    "method",
    [
        "/tensorflow.serving.PredictionService/Explain",
        "/tensorflow.serving.SessionService/SessionRun",
        "/grpc.health.v1.Health/Check",
        "/x",
    ],
)
def test_a_method_that_is_not_there_is_unimplemented(server, method):
    assert address.refusal(server.channel.unary_unary(method), b"")[0] == "UNIMPLEMENTED"


def test_grpc_clients_that_vanish_leave_nothing_behind(server, process):
    """Their runs end with the deadline that they brought."""
    before = _descriptors(process)
    for _ in range(16):
        channel = grpc.insecure_channel(process.grpc_address, [("grpc.use_local_subchannel_pool", 1)])
        future = channel.unary_unary("/tensorflow.serving.PredictionService/Predict").future(
            _slow().SerializeToString(), timeout=0.5
        )
        grpc.channel_ready_future(channel).result(WAIT)
        channel.close()
        assert future.done()
    _until(lambda: _descriptors(process) <= before + 2)


def test_cancelled_requests_do_not_stop_the_next(server):
    futures = [server.prediction.Predict.future(_slow(), timeout=1.0) for _ in range(20)]
    for future in futures:
        future.cancel()
    assert list(server.predict("slow", {"steps": address.tensor([1], np.int64)}).outputs["done"].float_val) == [1.0]


HALVES = {
    "nothing": b"",
    "half a request line": b"POST /v1/mod",
    "headers and no body": b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
    "half a body": b'POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"instances"',
    "half a chunk": b'POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{"insta',
    "no HTTP": bytes(range(256)) * 8,
    "half of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03",
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", ["gRPC", "REST"])
def test_connections_that_break_off_leave_nothing_behind(server, process, kind, half):
    assert _serves(server)  # its own connections are counted
    before = _descriptors(process)
    port = process.port if kind == "gRPC" else process.rest_port
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), WAIT) as connection:
            connection.sendall(HALVES[half])
    _until(lambda: _descriptors(process) <= before + 2)


def test_connections_that_stay_silent_do_not_stop_the_others(server, process):
    silent = [
        socket.create_connection(("127.0.0.1", port), WAIT)
        for port in (process.port, process.rest_port)
        for _ in range(100)
    ]
    for connection in silent[::2]:
        connection.sendall(HALVES["half a body"])
    assert _serves(server)
    for connection in silent:
        connection.close()


def test_a_rest_client_that_does_not_wait_for_its_answer_is_no_matter(server, process):
    """Its run lasts until the REST timeout, and so does that of each of ten; then all threads are free again."""
    body = json.dumps({"instances": [ENDLESS]})
    for _ in range(10):
        connection = http.client.HTTPConnection(process.rest_address, timeout=WAIT)
        connection.request("POST", "/v1/models/slow:predict", body)
        connection.close()
    request = json.dumps({"instances": [1.0]})
    _until(lambda: server.rest_predict("half_plus_two", request).status == 200)


def test_a_rest_client_that_reads_slowly_gets_all_of_it(server, process):
    count = 300_000
    body = ('{"inputs": [' + ",".join(["0.125"] * count) + "]}").encode()
    with socket.create_connection(("127.0.0.1", process.rest_port), WAIT) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.sendall(
            b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        assert _serves(server)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.read().count(b"2.0625") == count


def test_an_answer_larger_than_the_clients_own_limit_is_refused_by_the_client(process, server):
    """4 MiB unless the client says otherwise; the server has sent it and goes on."""
    with grpc.insecure_channel(process.grpc_address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        request = address.predict_request("half_plus_two", {"x": np.zeros((5 << 20) // 4, np.float32)})
        code, text = address.refusal(call, request.SerializeToString())
    assert code == "RESOURCE_EXHAUSTED"
    assert re.search(r"Received message larger than max \(\d+ vs\. 4194304\)", text), text


def test_a_shape_that_no_memory_holds_is_refused(server):
    """A terabyte of zeros in 20 bytes. TensorFlow does not get the memory either, and its reading of the tensor fails."""
    proto = address.tensor(np.zeros(1, np.float32))
    proto.tensor_content = b""
    proto.tensor_shape.dim[0].size = 1 << 38
    address.assert_refused(
        server.prediction.Predict,
        address.predict_request("half_plus_two", {"x": proto}),
        "INVALID_ARGUMENT",
        "tensor parsing error: x",
    )


def test_a_request_of_64_megabytes_is_taken(server):
    value = np.ones(16 << 20, np.float32)
    assert list(server.predict("reduced", {"x": value}, timeout=120).outputs["total"].float_val) == [float(16 << 20)]


def test_a_rest_request_of_64_megabytes_is_taken(server):
    body = b'{"signature_name": "string", "inputs": [' + b",".join([b'"' + b"x" * (1 << 20) + b'"'] * 64) + b"]}"
    answer = server.rest_predict("dtypes", body, timeout=120)
    assert answer.status == 200 and answer.body.count(b"x") == 64 << 20


def test_200_clients_at_once_get_their_own_answers(server, process):
    """Each with a connection of its own, five requests each; what finds no thread free is sent again."""
    assert _serves(server)
    before = _descriptors(process), _threads(process)
    channels = [
        grpc.insecure_channel(process.grpc_address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(200)
    ]
    futures = []
    for number, channel in enumerate(channels):
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        for turn in range(5):
            request = address.predict_request("half_plus_two", {"x": [float(number), float(turn)]})
            data = request.SerializeToString()
            futures.append(
                (number, turn, call.future(data, timeout=120), functools.partial(call.future, data, timeout=120))
            )
    for number, turn, future, again in futures:
        while (error := future.exception()) is not None and error.details() == "Server Threadpool Exhausted":
            future = again()
        assert _values(future.result()) == [number / 2 + 2, turn / 2 + 2]
    for channel in channels:
        channel.close()
    _until(lambda: _descriptors(process) <= before[0] + 2)
    assert _threads(process) <= before[1] + 64  # pools may have grown to their size, not with the clients


def test_200_rest_clients_at_once_get_their_own_answers(server, process):
    assert _serves(server)
    before = _descriptors(process)
    connections = [http.client.HTTPConnection(process.rest_address, timeout=WAIT) for _ in range(200)]
    for number, connection in enumerate(connections):
        connection.request("POST", "/v1/models/half_plus_two:predict", json.dumps({"instances": [number]}))
    for number, connection in enumerate(connections):
        answer = address.RestAnswer(200, {}, connection.getresponse().read()).json()
        assert answer == {"predictions": [number / 2 + 2]}
        connection.close()
    _until(lambda: _descriptors(process) <= before + 2)


def _values(data):
    from tensorflow_serving.apis import predict_pb2

    return list(predict_pb2.PredictResponse.FromString(data).outputs["y"].float_val)


@pytest.mark.slow
def test_a_killed_server_loses_only_what_was_in_flight_and_serves_again_after_a_restart(folder, tmp_path):
    """SIGKILL under load, on the same ports: every request is answered or refused, and each refused one met the time without a server."""
    process = launch.LocalServer(models.flags(folder, False), tmp_path / "log.txt").start()
    server = address.Server(process.grpc_address, process.rest_address)
    stop, outcomes = threading.Event(), collections.deque()

    def load(kind):
        number = 0
        while not stop.is_set():
            number += 1
            begin = time.monotonic()
            try:
                if kind == "gRPC":
                    got = list(
                        server.predict("half_plus_two", {"x": [float(number)]}, timeout=5).outputs["y"].float_val
                    )[0]
                else:
                    got = server.rest_predict("half_plus_two", {"instances": [number]}, timeout=5).json()[
                        "predictions"
                    ][0]
                error = None
            except (grpc.RpcError, OSError, http.client.HTTPException) as failure:
                got, error = None, failure
            outcomes.append((begin, time.monotonic(), got == number / 2 + 2, error))

    threads = [threading.Thread(target=load, args=(kind,)) for kind in ("gRPC", "gRPC", "REST", "REST")]
    try:
        for thread in threads:
            thread.start()
        downs = []
        for _ in range(2):
            served = len(outcomes)
            _until(lambda served=served: sum(good for _, _, good, _ in list(outcomes)[served:]) > 50)
            killed = time.monotonic()
            process.kill()
            process.start()
            # A channel waits a little before it connects again.
            address.grpc.channel_ready_future(server.channel).result(WAIT)
            downs.append((killed, time.monotonic()))
        served = len(outcomes)
        _until(lambda: sum(good for _, _, good, _ in list(outcomes)[served:]) > 50)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT)
        process.stop()
        server.close()
    assert not any(thread.is_alive() for thread in threads)
    failed = [(begin, end, error) for begin, end, good, error in outcomes if not good]
    assert failed and all(error is not None for _, _, error in failed), "a wrong answer"
    for begin, end, error in failed:
        assert any(begin <= up and end >= down for down, up in downs), f"failed while the server was up: {error!r}"


@pytest.mark.parametrize("transport", [[], ["--grpc_channel_arguments=grpc.http2.bdp_probe=1"]])
def test_a_call_more_than_there_are_threads_is_refused(folder, tmp_path, transport):
    """As the real server refuses it: its last thread has to wait for the next call."""
    from tensorflow_serving.apis import get_model_status_pb2

    ask = get_model_status_pb2.GetModelStatusRequest(model_spec=address.spec("half_plus_two"))
    with launch.LocalServer(
        [*models.flags(folder, False), "--grpc_max_threads=4", *transport], tmp_path / "log.txt"
    ) as process:
        server = address.Server(process.grpc_address, process.rest_address)
        running = [server.prediction.Predict.future(_slow(), timeout=3) for _ in range(3)]
        until = time.monotonic() + 2
        while True:
            try:
                server.model.GetModelStatus(ask)
            except grpc.RpcError as error:
                assert (error.code(), error.details()) == (
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    "Server Threadpool Exhausted",
                )
                break
            assert time.monotonic() < until
        assert all(future.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED for future in running)
        _until(lambda: _serves_again(server))
        server.close()


@pytest.mark.slow
def test_a_server_that_is_told_to_end_under_load_ends(folder, tmp_path):
    """SIGTERM with requests in flight, one of them without a deadline: it does not wait for clients for ever, and its exit is its own."""
    with launch.LocalServer(models.flags(folder, False), tmp_path / "log.txt") as process:
        server = address.Server(process.grpc_address, process.rest_address)
        assert _serves(server)
        # On two cores the two others take both of TensorFlow's threads, as in the real server: no model answers from now on.
        futures = [server.prediction.Predict.future(_slow(), timeout=timeout) for timeout in (1, 60, None)]
        assert futures[0].exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED and not any(
            future.done() for future in futures[1:]
        )
        assert process.stop(timeout=WAIT) in (0, -15)
        assert all(future.exception() is not None for future in futures)
        server.close()
