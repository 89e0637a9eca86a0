"""Ready is said once each address answers: gRPC, TLS, REST, the metrics and the UNIX socket, each of which may come late."""

import contextlib
import http.server
import pathlib
import socket
import threading
import time

import grpc
import pytest

from tests.tls import pems  # noqa: F401
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.servers.serving.launch import binary, ending, readiness, serve, serve_plan
from tftrt_tools.servers.serving.local import grpc_server

_LOADED = b"\x0a\x04\x08\x07\x10\x1e"  # version 7 is AVAILABLE
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


@contextlib.contextmanager
def grpc_at(*addresses, credentials=None):
    server = grpc_server.GrpcServer({_STATUS: lambda _, __: [_LOADED]}, 2, (), credentials)
    ports = [server.listen(address) for address in addresses]
    server.start()
    yield ports
    server.stop(1)


@contextlib.contextmanager
def rest(port, pages):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(pages.get(self.path, 404))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def watch(port, rest_port=0, **more):
    one = readiness.Watch(readiness.Probe(host="127.0.0.1", port=port, rest_port=rest_port, models=("m",), **more))
    yield one
    one.close()


def test_rest_and_the_metrics_have_to_answer():
    rest_port = free_port()
    with grpc_at("127.0.0.1:0") as (port,), watch(port, rest_port, metrics_path="/metrics") as one:
        assert one.ask() is None, "REST does not listen"
        with rest(rest_port, {}):
            assert one.ask() is None, "REST answers, the metrics do not"
        with rest(rest_port, {"/metrics": 200}):
            assert one.ask() == readiness.Ready(f"127.0.0.1:{port}", f"127.0.0.1:{rest_port}", (("m", (7,)),))


def test_a_rest_port_that_takes_connections_and_says_nothing_is_not_ready(monkeypatch):
    """As the proxy of Docker does it before the server listens."""
    monkeypatch.setattr(readiness, "_SECONDS", 0.3)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        grpc_at("127.0.0.1:0") as (port,),
        watch(port, silent.getsockname()[1]) as one,
    ):
        assert one.ask() is None


def test_the_unix_socket_has_to_answer(tmp_path):
    path = str(tmp_path / "socket")
    with grpc_at("127.0.0.1:0") as (port,), watch(port, socket_path=path) as one:
        assert one.ask() is None
        with grpc_at(f"unix:{path}"):
            until = time.monotonic() + 20  # gRPC's client pauses between two attempts
            while (ready := one.ask()) is None and time.monotonic() < until:
                time.sleep(0.05)
            assert ready


def test_tls_is_ready_after_a_handshake_whatever_the_log_says(pems):  # noqa: F811
    certificate, key = (pathlib.Path(path).read_bytes() for path in pems["localhost"])
    root = pathlib.Path(pems["root"][0]).read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as silent, watch(silent.getsockname()[1], tls=True) as one:
        silent.close()
        assert one.ask() is None
    with grpc_at("127.0.0.1:0") as (port,), watch(port, tls=True) as one:
        assert one.ask() is None, "no TLS there"
    with (
        grpc_at("127.0.0.1:0", credentials=grpc.ssl_server_credentials([(key, certificate)], root, True)) as (port,),
        watch(port, tls=True) as one,
    ):
        assert one.ask() == readiness.Ready(f"127.0.0.1:{port}", "", (("m", ()),))


@pytest.mark.parametrize(
    "text, path",
    [
        ("prometheus_config { enable: true }", "/monitoring/prometheus/metrics"),
        ('prometheus_config { enable: true path: "/m" }', "/m"),
        ("prometheus_config { }", ""),
    ],
)
def test_the_plan_knows_where_the_metrics_are(tmp_path, text, path):
    (tmp_path / "monitoring").write_text(text)
    values = {
        **server_flags.DEFAULTS,
        "model_base_path": str(tmp_path),
        "rest_api_port": 8501,
        "monitoring_config_file": str(tmp_path / "monitoring"),
    }
    assert serve_plan.read(values).probe("0.0.0.0").metrics_path == path


@pytest.mark.parametrize("level", ["0", "1", "3"])
def test_the_servers_log_is_whole_and_what_the_user_wants_of_it_is_shown(tmp_path, monkeypatch, level):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    command = binary.Binary().command(serve_plan.read({**server_flags.DEFAULTS, "model_base_path": str(tmp_path)}))
    assert command.env == {"TF_CPP_MIN_LOG_LEVEL": "0"}
    lines = [
        f"2026-11-25 10:11:12.386455: {one} tensorflow_serving/model_servers/server.cc:440] text" for one in "IWEF"
    ]
    assert [serve._wanted(line, level) for line in lines] == [number >= int(level) for number in range(4)]
    assert serve._wanted("no head", level) and serve._wanted(lines[0], "") and serve._wanted(lines[0], "much")


@pytest.mark.parametrize(
    "line, said",
    [
        (
            "2026-11-25 10:11:12.386455: F ./tensorflow/core/util/tensor_format.h:428] Check failed: index >= 0 && index < num_total_dims Invalid index "
            "from the dimension: 3, 0, C",
            "another number of dimensions",
        ),
        (
            "2026-11-25 10:11:12.386455: F tensorflow/core/framework/tensor.cc:1003] Check failed: limit <= dim0_size (1 vs. 0)",
            "without rows",
        ),
        ("2026-11-25 10:11:12.386455: F tensorflow/core/x.cc:1] Check failed: something else", ""),
    ],
)
def test_a_request_that_ended_the_server_is_named_where_it_did(line, said):
    problem = ending.read(-6, [line], ["digits"])
    assert said in problem.cause and "SIGABRT" in problem.cause
    assert ("carries TensorRT engines" in problem.mend) == (not said)
