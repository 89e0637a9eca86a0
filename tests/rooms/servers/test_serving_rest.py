"""The REST server over real sockets."""

import asyncio
import contextlib
import errno
import gzip
import http.client
import json
import random
import re
import socket
import threading
import time

import numpy as np
import pytest

from tests import rest_model
from tftrt_tools.base import errors
from tftrt_tools.servers.serving.local.rest import rest_server, routes

PREDICT = f"/v1/models/{rest_model.NAME}:predict"


@contextlib.contextmanager
def serving(backend, **options):
    rest = rest_server.RestServer(backend, "127.0.0.1", 0, **options)
    port = rest.start()
    try:
        yield port
    finally:
        rest.stop()


@pytest.fixture(scope="module")
def backend():
    return rest_model.Backend()


@pytest.fixture(scope="module")
def port(backend):
    with serving(backend) as port:
        yield port


def call(port, verb, path, body=None, headers=None):
    """Returns: (status, body as text, headers)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(verb, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def error(port, verb, path, body=None, headers=None):
    """Returns: (status, message) of a JSON error."""
    status, text, _ = call(port, verb, path, body, headers)
    return status, json.loads(text)["error"]


def raw(port, data):
    """Send bytes as they are and keep the connection open. Returns: the answer to them, up to where its first part ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(data)
        return connection.recv(1 << 20)


@pytest.mark.parametrize(
    "path",
    [
        PREDICT,
        f"/V1/Models/{rest_model.NAME}/VERSIONS/7:predict",
        "/v1/models/demo/labels/stable:predict",
        "/v1/models/%64emo/versions/0000000000000000000000007:predict",
    ],
)
def test_predict_answers_in_row_form(port, path):
    status, text, headers = call(port, "POST", path, {"instances": [1.0, 2.0, 5.0]})
    assert (status, text) == (200, '{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}')
    assert headers["Content-Type"] == "application/json"


def test_predict_answers_in_column_form_and_by_the_named_signature(port):
    assert json.loads(call(port, "POST", PREDICT, {"inputs": [[1], [3]]})[1]) == {"outputs": [[2.5], [3.5]]}
    found = call(port, "POST", PREDICT, {"signature_name": "pair", "inputs": {"a": [2], "b": [3]}})[1]
    assert json.loads(found) == {"outputs": {"product": [6.0], "sum": [5.0]}}
    found = call(port, "POST", PREDICT, {"signature_name": "pair", "instances": [{"a": 2, "b": 3}, {"a": 1, "b": 1}]})[
        1
    ]
    assert json.loads(found) == {"predictions": [{"product": 6.0, "sum": 5.0}, {"product": 1.0, "sum": 2.0}]}


def test_strings_go_both_ways(port):
    body = {"signature_name": "text", "instances": ["é", {"b64": "/w=="}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", PREDICT, json.dumps(body))
    found = connection.getresponse().read()
    connection.close()
    assert b'"t": "\xc3\xa9"' in found and b'"t": "\xff"' in found
    assert re.findall(rb'"b64": "(.*)"', found) == [b"w6k=", b"/w=="]


ERRORS = [
    ("POST", "/v1/models/none:predict", '{"instances": [1]}', 404, "Servable not found for request: Latest(none)"),
    (
        "POST",
        "/v1/models/demo/versions/9:predict",
        '{"instances": [1]}',
        404,
        "Servable not found for request: Specific(demo, 9)",
    ),
    ("POST", "/v1/models/none/labels/x:predict", '{"instances": [1]}', 400, "Unrecognized servable version label: x"),
    ("POST", "/v1/models/none:predict", "", 400, "JSON Parse error: The document is empty"),
    ("POST", PREDICT, "{", 400, "JSON Parse error: Missing a name for object member. at offset: 1"),
    ("POST", PREDICT, "{}", 400, "Missing 'inputs' or 'instances' key"),
    (
        "POST",
        PREDICT,
        '{"signature_name": "none", "instances": [1]}',
        400,
        'Serving signature name: "none" not found in signature def',
    ),
    (
        "POST",
        PREDICT,
        '{"signature_name": "empty", "instances": [1]}',
        400,
        "Failed to get input map for signature: empty",
    ),
    ("POST", PREDICT, '{"signature_name": "half", "inputs": [1]}', 501, "Conversion of JSON Value: 1 to type: half"),
    (
        "POST",
        PREDICT,
        '{"signature_name": "default", "inputs": {"x": [1]}}',
        400,
        "Missing named input: k in 'inputs' object.",
    ),
    (
        "POST",
        PREDICT,
        '{"signature_name": "default", "instances": [{"x": 1}]}',
        400,
        "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"x\": 1\n} keys must be equal to: k,x",
    ),
    (
        "POST",
        PREDICT,
        '{"signature_name": "uneven", "instances": [1, 2]}',
        400,
        "Tensor name: q has inconsistent batch size: 1 expecting: 2",
    ),
    (
        "POST",
        PREDICT,
        '{"signature_name": "total", "instances": [1, 2]}',
        400,
        "Tensor name: y has no shape information ",
    ),
    (
        "POST",
        PREDICT,
        '{"signature_name": "to_half", "inputs": [1]}',
        400,
        "Failed to write JSON value for tensor type: half",
    ),
    ("POST", "/v1/models/demo:PREDICT", '{"instances": [1]}', 400, "Malformed request: POST /v1/models/demo:PREDICT"),
    (
        "POST",
        "/v1/models/demo:predict?x=1",
        '{"instances": [1]}',
        400,
        "Malformed request: POST /v1/models/demo:predict?x=1",
    ),
    ("GET", PREDICT, None, 400, f"Malformed request: GET {PREDICT}"),
    ("PUT", "/v1/models/demo", "", 400, "Malformed request: PUT /v1/models/demo"),
    ("GET", "/v1/", None, 400, "Malformed request: GET /v1/"),
    ("GET", "/v1/models/demo/versions/x", None, 400, "Malformed request: GET /v1/models/demo/versions/x"),
    ("GET", "/v1/models", None, 400, "Missing model name in request."),
    ("GET", "/v1/models/versions/1/metadata", None, 400, "Missing model name in request."),
    ("GET", "/v1/models/none", None, 404, "Could not find any versions of model none"),
    ("GET", "/v1/models/demo?x", None, 404, "Could not find any versions of model demo?x"),
    ("GET", "/v1/models/demo/versions/2", None, 404, "Could not find version 2 of model demo"),
    ("GET", "/v1/models/none/metadata", None, 404, "Servable not found for request: Latest(none)"),
]


@pytest.mark.parametrize("verb, path, body, status, message", ERRORS)
def test_errors_have_the_servers_status_and_words(port, verb, path, body, status, message):
    assert error(port, verb, path, body) == (status, message)


def test_errors_are_laid_out_as_rapidjson_does(port):
    assert call(port, "GET", "/v1/models")[1] == '{\n    "error": "Missing model name in request."\n}'


@pytest.mark.parametrize(
    "path", ["/v1/models/demo/versions/9223372036854775808", "/v1/models/demo/versions/" + "9" * 5000]
)
def test_a_version_beyond_64_bits_is_refused_without_a_word(port, path):
    assert call(port, "GET", path)[:2] == (400, "")
    assert call(port, "POST", path + ":predict", "{}")[:2] == (400, "")
    with pytest.raises(routes.Unwritten, match="Failed to convert version: 9+[0-9]* to numeric."):
        routes.find("GET", path)


@pytest.mark.parametrize(
    "verb, path, status",
    [
        ("GET", "/", 404),
        ("GET", "/v2/models/demo", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/models/a[b", 400),
        ("TRACE", "/v1/models/demo", 501),
    ],
)
def test_what_is_not_of_the_api_gets_a_page(port, verb, path, status):
    found, text, headers = call(port, verb, path)
    assert found == status and headers["Content-Type"] == "text/html" and headers["Connection"] == "close"
    assert f"<TITLE>{status} " in text


def test_a_request_line_may_name_the_host_and_head_has_no_body(port):
    answer = raw(port, b"GET http://x:1/v1/models/demo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b'"AVAILABLE"' in answer
    assert call(port, "HEAD", "/v1/models/demo")[:2] == (400, "")


def test_status_is_printed_as_protobuf_prints_it(port):
    expected = (
        '{\n "model_version_status": [\n  {\n   "version": "7",\n   "state": "AVAILABLE",\n   "status": {\n    "error_code": "OK",\n'
        '    "error_message": ""\n   }\n  }\n ]\n}\n'
    )
    for path in (
        "/v1/models/demo",
        "/v1/models/demo/versions/7",
        "/V1/MODELS/demo/labels/any",
        "/v1/models/demo/METADATA",
    ):
        assert call(port, "GET", path)[:2] == (200, expected)


def test_metadata_is_printed_as_protobuf_prints_it(port):
    tensor = (
        '{\n     "dtype": "DT_FLOAT",\n     "tensor_shape": {\n      "dim": [\n       {\n        "size": "-1",\n        "name": ""\n'
        '       }\n      ],\n      "unknown_rank": false\n     },\n     "name": "%s:0"\n    }'
    )
    expected = (
        '{\n"model_spec":{\n "name": "demo",\n "signature_name": "",\n "version": "7"\n}\n,\n"metadata": {"signature_def": {\n'
        ' "signature_def": {\n  "serving_default": {\n   "inputs": {\n    "x": '
        + tensor
        % "x"
        + '\n   },\n   "outputs": {\n'
        '    "y": '
        + tensor % "y"
        + '\n   },\n   "method_name": "tensorflow/serving/predict",\n   "defaults": {}\n  }\n }\n}\n}\n}\n'
    )
    assert call(port, "GET", "/v1/models/demo/metadata")[:2] == (200, expected)
    assert json.loads(expected)["metadata"]["signature_def"]["signature_def"]["serving_default"]["method_name"]


def test_classify_and_regress(port):
    body = {"examples": [{"x": 0.25}, {"x": [0.5], "tag": ["a", {"b64": "/w=="}], "n": [1, True], "none": []}]}
    status, text, _ = call(port, "POST", "/v1/models/demo:classify", body)
    assert (status, text) == (
        200,
        '{\n    "results": [[["low", 0.75], ["high", 0.25]], [["low", 0.5], ["high", 0.5]]\n    ]\n}',
    )
    assert call(port, "POST", "/v1/models/demo:regress", body)[:2] == (200, '{\n    "results": [0.5, 1.0]\n}')
    body = {"context": {"x": 1.5}, "examples": [{}, {"x": 2.5}]}
    assert call(port, "POST", "/v1/models/demo:regress", body)[:2] == (200, '{\n    "results": [3.0, 5.0]\n}')


@pytest.mark.parametrize(
    "body, message",
    [
        ("{}", "JSON Value: {} When method is classify, key 'examples' is expected and was not found"),
        ('{"examples": 1}', "JSON Value: {\n    \"examples\": 1\n} Expecting 'examples' value to be an list/array"),
        ('{"examples": []}', "JSON Value: {\n    \"examples\": []\n} 'examples' value is an empty array"),
        ('{"examples": [1]}', "Example must be JSON object but got JSON Number"),
        ('{"context": [], "examples": [{}]}', "Example must be JSON object but got JSON Array"),
        ('{"examples": [{"x": null}]}', "Feature: x has element with unexpected JSON type: Null"),
        ('{"examples": [{"x": [[1]]}]}', "Feature: x has element with unexpected JSON type: Array"),
        ('{"examples": [{"x": {"a": 1}}]}', "Feature: x has element with unexpected JSON type: Object"),
        ('{"examples": [{"x": [1, 2.5]}]}', "Unexpected element type in feature: x expecting type: int64"),
        ('{"examples": [{"x": ["a", 1]}]}', "Unexpected element type in feature: x expecting type: bytes"),
        ('{"examples": [{"x": 9223372036854775808}]}', "Feature: x has uint64_t element. Only int64_t is supported."),
        ('{"examples": [{}]}', "Feature: x (data type: float) is required but could not be found."),
    ],
)
def test_examples_that_do_not_fit_are_refused_in_the_servers_words(port, body, message):
    for method in ("classify", "regress"):
        assert error(port, "POST", f"/v1/models/demo:{method}", body) == (400, message)


def test_metrics_stand_under_their_own_path(port, backend):
    path = "/monitoring/prometheus/metrics"
    status, text, headers = call(port, "GET", path)
    assert (status, text, headers["Content-Type"]) == (200, backend.metrics_text, "text/plain")
    assert call(port, "GET", path + "?a")[:2] == (400, f"Unexpected path: {path}?a. Should be {path}")
    quiet = rest_model.Backend()
    quiet.metrics_text = None
    with serving(quiet) as other:
        assert call(other, "GET", path)[0] == 404


def test_gzip_bodies_are_decoded(port):
    body = gzip.compress(b'{"instances": [1.0]}')
    assert call(port, "POST", PREDICT, body, {"Content-Encoding": "gzip"})[0] == 200
    assert (
        error(port, "POST", PREDICT, body[:-12], {"Content-Encoding": "gzip"})[1]
        == "JSON Parse error: The document is empty"
    )
    assert (
        error(port, "POST", PREDICT, b'{"instances": [1.0]}', {"Content-Encoding": "gzip"})[1]
        == "JSON Parse error: The document is empty"
    )
    bomb = gzip.compress(bytes(101 << 20), 1)
    assert (
        error(port, "POST", PREDICT, bomb, {"Content-Encoding": "gzip"})[1] == "JSON Parse error: The document is empty"
    )


def test_a_run_past_the_timeout_is_a_gateway_timeout(backend):
    with serving(backend, timeout_ms=500) as port:
        body = {"signature_name": "slow", "instances": [0.6]}
        assert error(port, "POST", PREDICT, body) == (504, "Timed out waiting for notification")
        assert call(port, "POST", PREDICT, {"instances": [0.2]})[0] == 200


def test_a_fault_of_the_server_itself_is_one_line(port, backend, caplog):
    status, message = error(port, "POST", PREDICT, {"signature_name": "broken", "instances": [1]})
    assert status == 500 and "no_such_method" in message and "Traceback" not in message
    assert "Traceback" in caplog.text and backend.in_flight == 0


def test_one_connection_serves_many_requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    ends = set()
    for value in range(20):
        connection.request("POST", PREDICT, json.dumps({"instances": [value]}))
        ends.add(connection.sock.getsockname())
        assert json.loads(connection.getresponse().read()) == {"predictions": [value / 2 + 2]}
    connection.close()
    assert len(ends) == 1


def test_requests_run_side_by_side(backend):
    # The model lets nobody through before three have come.
    with serving(backend, threads=3) as port:
        answers = []
        body = {"signature_name": "meet", "instances": [1.0]}
        threads = [
            threading.Thread(target=lambda: answers.append(call(port, "POST", PREDICT, body)[0])) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [200] * 3


def test_a_large_body_passes_with_expect_continue(port):
    body = json.dumps({"inputs": np.zeros((40, 224, 224)).tolist()}).encode()
    assert len(body) > 8 << 20
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        answer = b""
        while part := connection.recv(1 << 20):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.count(b"2.0") >= 40 * 224 * 224


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET\r\n\r\n",
        b"GET /v1/models/demo HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /v1/models/demo HTTP/1.1\r\nbad header\r\n\r\n",
        b"\r\nnonsense\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
    ],
)
def test_malformed_http_is_refused_and_harms_nobody(port, data):
    answer = raw(port, data)
    assert re.match(rb"HTTP/1\.[01] 400 ", answer) and b"Traceback" not in answer
    assert call(port, "POST", PREDICT, {"instances": [1]})[0] == 200


def test_clients_that_vanish_or_dawdle_hold_up_nobody(backend):
    with serving(backend, threads=1) as port:
        idle = []
        for sent in (
            b"",
            b"POST ",
            f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode(),
        ) * 4:
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            idle[-1].sendall(sent)
        for _ in range(4):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as gone:
                body = b'{"signature_name": "slow", "instances": [0.1]}'
                gone.sendall(
                    f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                )
        assert call(port, "POST", PREDICT, {"instances": [1]})[0] == 200
        for connection in idle:
            connection.close()
        assert call(port, "POST", PREDICT, {"instances": [1]})[0] == 200
    assert backend.in_flight == 0


def test_a_port_that_is_taken_is_one_clear_line(port):
    with pytest.raises(errors.TftrtError, match=f"cannot listen on 127.0.0.1:{port}: "):
        rest_server.RestServer(rest_model.Backend(), "127.0.0.1", port).start()


def test_a_stopped_server_no_longer_listens():
    rest = rest_server.RestServer(rest_model.Backend(), "127.0.0.1", 0)
    port = rest.start()
    assert call(port, "GET", "/v1/models/demo")[0] == 200
    rest.stop()
    rest.stop()
    with pytest.raises(ConnectionRefusedError):
        call(port, "GET", "/v1/models/demo")


BODIES = [
    b'{"instances": [1.0, 2.5, -3e7]}',
    b'{"inputs": [[1, 2], [3, 4]]}',
    b'{"signature_name": "pair", "instances": [{"a": 1, "b": [2]}]}',
    b'{"signature_name": "text", "instances": ["\xc3\xa9\\u00e9", {"b64": "aGk="}]}',
    b'{"signature_name": "int64", "inputs": {"x": [9007199254740993]}}',
    b'{"signature_name": "bool", "instances": [true, [false]]}',
    b'{"context": {"x": 0.5}, "examples": [{"x": [0.25], "t": {"b64": "/w=="}}]}',
]
LINES = [
    b"POST /v1/models/demo:predict HTTP/1.1",
    b"POST /v1/models/demo/versions/7:predict HTTP/1.1",
    b"POST /v1/models/demo:classify HTTP/1.1",
    b"POST /v1/models/demo/labels/stable:regress HTTP/1.1",
    b"GET /v1/models/demo/metadata HTTP/1.1",
    b"GET /v1/models/demo HTTP/1.1",
]
PIECES = [
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b",",
    b":",
    b"NaN",
    b"null",
    b"1e400",
    b"-",
    b"\\u",
    b"\\ud800",
    b"\x00",
    b"\xff",
    b"[[[[[[[[",
    b'{"b64":"',
    b"%",
    b"/",
    b" ",
    b"\r\n",
    b"18446744073709551616",
    b"\t",
    b":predict",
    b"0" * 40,
]


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        choice = rng.randrange(5)
        if choice == 0:
            data[at:at] = rng.choice(PIECES)
        elif choice == 1 and end - at < 12:
            del data[at:end]
        elif choice == 2 and at < len(data):
            data[at] = rng.randrange(256)
        elif choice == 3:
            data[at:at] = data[at:end] * rng.randrange(1, 4)
        else:
            data[at : at + 3] = rng.choice(PIECES)
    return bytes(data)


def test_thousands_of_broken_requests_leave_the_server_well():
    rng = random.Random(20141)
    statuses = set()
    backend = rest_model.Backend()
    with serving(backend) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for i in range(6000):
            body = rng.choice(BODIES)
            method = "classify" if body.startswith(b'{"context') else "predict"
            connection.request("POST", f"/v1/models/demo:{method}", mutated(body, rng))
            response = connection.getresponse()
            answer = response.read()
            statuses.add(response.status)
            assert response.status in (200, 400, 404, 501), (i, answer)
        connection.close()
        for _ in range(1500):
            body = rng.choice(BODIES)
            line = mutated(rng.choice(LINES), rng)
            answer = raw(port, line + b"\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert re.match(rb"HTTP/\d\.\d (200|400|404|501) ", answer) and b"Traceback" not in answer, (line, answer)
        assert call(port, "POST", PREDICT, {"instances": [1.0]})[:2] == (200, '{\n    "predictions": [2.5\n    ]\n}')
    assert {200, 400} <= statuses and backend.in_flight == 0


def test_connections_bodies_and_patience_have_bounds(monkeypatch):
    monkeypatch.setattr(rest_server, "_MOST_CONNECTIONS", 3)
    monkeypatch.setattr(rest_server, "_LARGEST", 1000)
    server = rest_server.RestServer(rest_model.Backend(), "127.0.0.1", 0, patience_s=0.5)
    port = server.start()
    try:
        assert call(port, "POST", "/v1/models/demo:predict", b"x" * 1001)[0] == 413
        half = b"POST /v1/models/demo:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        for sent, said in ((b"", b""), (b"GET /v1", b""), (half, b"408")):
            with socket.create_connection(("127.0.0.1", port), 20) as silent:
                silent.sendall(sent)
                assert said in silent.recv(1 << 16)
        kept = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", port), 20) as one_more:
            assert one_more.recv(1) == b"", "it is closed at once"
        for one in kept:
            one.close()
        until = time.monotonic() + 20
        while True:  # those that have gone make room
            try:
                assert call(port, "GET", "/v1/models/demo")[0] == 200
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
    finally:
        server.stop()


def test_nothing_is_logged_where_no_descriptor_is_left(caplog):
    loop = asyncio.new_event_loop()
    rest_server._without_descriptor(
        loop,
        {
            "message": "socket.accept() out of system resource",
            "exception": OSError(errno.EMFILE, "Too many open files"),
        },
    )
    assert not caplog.records
    rest_server._without_descriptor(loop, {"message": "something else", "exception": ValueError("x")})
    assert caplog.records
    loop.close()
