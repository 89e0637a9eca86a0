"""The client against a running server: dtypes, versions, deadlines, a server that goes and comes back, TLS, and 50 calls at once."""

import asyncio
import concurrent.futures
import inspect
import threading
import time

import grpc
import numpy as np
import pytest

from tests.command_line import assert_clear
from tests.conformance import launch, models
from tests.tls import pems, ssl_config  # noqa: F401
from tests.wire_arrays import random, same
from tftrt_tools.base import errors
from tftrt_tools.servers.client import (
    AsyncClient,
    Client,
    ModelSpec,
    ServingError,
    TensorSpec,
    Tls,
    TritonClient,
    request_bytes,
    response_arrays,
)

ENDLESS_STEPS = 10**9  # of the model `slow`: longer than any deadline here


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.built_once(tmp_path_factory)


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    with launch.LocalServer(models.flags(folder, False), tmp_path_factory.mktemp("server") / "log.txt") as one:
        yield one


@pytest.fixture
def client(server):
    with Client(server.grpc_address) as one:
        yield one


@pytest.mark.parametrize("content", [True, False], ids=["tensor_content", "typed"])
@pytest.mark.parametrize("name, dtype", models.DTYPES.items())
def test_every_dtype_comes_back_as_it_went(client, name, dtype, content):
    array = random(dtype, (7,), 3)
    arrays = client.predict("dtypes", {"x": array}, signature=name, content=content)
    assert same(arrays["y"], array)
    assert arrays.model == ModelSpec("dtypes", 1, "", name)


def test_a_tensorflow_serving_that_is_asked_as_a_triton_is_told(server, tftrt):
    with (
        pytest.raises(ServingError, match="is no Triton: it has no ModelMetadata") as caught,
        TritonClient(server.grpc_address) as triton,
    ):
        triton.metadata("versions")
    assert "without triton://" in caught.value.mend
    with (
        pytest.raises(ServingError, match="is no Triton: it has no ModelInfer"),
        TritonClient(server.grpc_address) as triton,
    ):
        triton.predict("versions", {"x": np.zeros(2, np.float32)})
    for command in ("bench", "smoke"):
        assert_clear(tftrt(command, f"triton://{server.grpc_address}", "--model_name=versions"), 1, "is no Triton")
    assert_clear(tftrt("versions", f"triton://{server.grpc_address}"), 1, "is no Triton")


def test_versions_and_labels_choose_what_answers(client):
    x = np.zeros(2, np.float32)
    for wanted, choice in (
        (2, {}),
        (1, {"version": 1}),
        (2, {"version": 2}),
        (1, {"label": "stable"}),
        (2, {"label": "canary"}),
    ):
        arrays = client.predict("versions", {"x": x}, **choice)
        assert arrays["y"].tolist() == [wanted, wanted] and arrays.model.version == wanted


def test_bytes_of_a_request_give_bytes_of_an_answer(server, client):
    x = np.zeros(2, np.float32)
    asked = request_bytes("versions", {"x": x}, version=1)
    model, arrays = response_arrays(client.predict_bytes(asked))
    assert (model.version, arrays["y"].tolist()) == (1, [1, 1])

    async def awaited():
        async with AsyncClient(server.grpc_address) as one:
            return await one.predict_bytes(asked)

    assert response_arrays(asyncio.run(awaited()))[0].version == 1
    with pytest.raises(ServingError) as caught:
        client.predict_bytes(request_bytes("versions", {"x": x}, version=9))
    assert caught.value.code == "NOT_FOUND"


def test_what_to_do_may_be_in_the_callers_own_words(server):
    with Client(server.grpc_address, mends={"NOT_FOUND": "--model_name names another"}) as one:
        with pytest.raises(ServingError) as caught:
            one.metadata("nobody")
    assert caught.value.mend == "--model_name names another" and caught.value.line in str(caught.value)


def test_the_methods_tell_their_arguments():
    for kind in (Client, AsyncClient):
        told = inspect.signature(kind.predict)
        assert list(told.parameters)[:4] == [
            "self",
            "model",
            "inputs",
            "signature",
        ] and told.return_annotation.startswith("Answered[")
        assert "Run a signature." in inspect.getdoc(kind.predict)


def test_only_the_wanted_outputs_come(client):
    inputs = {"a": np.ones((3, 2), np.float32), "b": np.ones((3, 2), np.float32), "c": np.arange(3, dtype=np.int32)}
    assert sorted(client.predict("several", inputs)) == ["count", "scaled", "sum"]
    assert list(client.predict("several", inputs, outputs="count")) == ["count"]
    assert list(client.predict("several", inputs, outputs=("sum", "count"))) == ["count", "sum"]
    assert client.predict("several", inputs, outputs=["count"])["count"].tolist() == [1, 2, 3]


def test_a_copy_is_writable_and_the_rest_is_not(client):
    x = np.ones((2, 2), np.float32)
    assert not client.predict("half_plus_two", {"x": x})["y"].flags.writeable
    own = client.predict("half_plus_two", {"x": x}, copy=True)["y"]
    own += 1
    assert own.tolist() == [[3.5, 3.5], [3.5, 3.5]]


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_requests_larger_than_grpcs_own_limit_come_through_compressed_or_not(server, client, compression):
    x = np.zeros((3, 1 << 20), np.float32)
    with Client(server.grpc_address, compression=compression) as packed:
        for one in (client, packed):
            assert one.predict("half_plus_two", {"x": x})["y"].shape == x.shape


def test_what_the_server_refuses_is_a_serving_error_with_its_text(client):
    for call, code, message in (
        (lambda: client.predict("nobody", {"x": [1.0]}), "NOT_FOUND", "Servable not found for request: Latest(nobody)"),
        (
            lambda: client.predict("versions", {"x": [1.0]}, version=9),
            "NOT_FOUND",
            "Servable not found for request: Specific(versions, 9)",
        ),
        (
            lambda: client.predict("versions", {"x": [1.0]}, label="no"),
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: no",
        ),
        (lambda: client.metadata("nobody"), "NOT_FOUND", "Servable not found for request: Latest(nobody)"),
        (lambda: client.status("nobody"), "NOT_FOUND", "Could not find any versions of model nobody"),
    ):
        with pytest.raises(ServingError) as caught:
            call()
        assert (caught.value.code, caught.value.message) == (code, message)
        assert str(caught.value) == f"{client.address} says {code}: {message}"


def test_the_rest_port_and_no_host_are_told(server):
    for address, told in (
        (server.rest_address, f"{server.rest_address} speaks HTTP, not gRPC"),
        ("no-such-host.invalid:1", "no server at no-such"),
    ):
        with Client(address, retries=0) as client, pytest.raises(ServingError) as caught:
            client.predict("versions", {"x": [1.0]})
        assert str(caught.value).startswith(told)


def test_a_deadline_ends_a_call_and_the_client_goes_on(client):
    with pytest.raises(ServingError) as caught:
        client.predict("slow", {"steps": np.array([ENDLESS_STEPS])}, timeout=0.3)
    assert (
        caught.value.code == "DEADLINE_EXCEEDED"
        and str(caught.value) == f"no answer from {client.address} within 0.3 s"
    )
    assert client.predict("slow", {"steps": np.array([3])})["done"].tolist() == [1.75]


def test_metadata_gives_typed_signatures(client):
    found = client.metadata("versions", label="stable")
    assert found.model.version == 1
    assert found["serving_default"].inputs == {"x": TensorSpec("float32", (None,), "serving_default_x:0")}
    assert client.metadata("half_plus_two")["serving_default"].inputs["x"].shape is None
    types = {name: one.inputs["x"].dtype for name, one in client.metadata("dtypes").items() if name in models.DTYPES}
    assert types == models.DTYPES


def test_status_lists_versions(client):
    assert [(one.version, one.state) for one in client.status("versions")] == [(2, "AVAILABLE"), (1, "AVAILABLE")]
    assert [one.version for one in client.status("versions", version=1)] == [1]


def test_reload_moves_a_label_by_message_text_and_file(client, folder, tmp_path):
    def answering():
        return client.predict("versions", {"x": [np.float32(0)]}, label="stable").model.version

    try:
        client.reload(models.config(folder, {"stable": 2}))
        assert answering() == 2
        client.reload(models.config_text(folder, {"stable": 1}))
        assert answering() == 1
        (tmp_path / "models.config").write_text(models.config_text(folder, {"stable": 2}))
        client.reload(tmp_path / "models.config")
        assert answering() == 2
        (tmp_path / "models.config").write_text(models.config_text(folder, {"stable": 1}))
        client.reload(str(tmp_path / "models.config"))
        assert answering() == 1
    finally:
        client.reload(folder / "models.config")
    with pytest.raises(ServingError) as caught:
        client.reload("model_config_list { config { name: 'm' base_path: 'relative' model_platform: 'tensorflow' } }")
    assert caught.value.code == "INVALID_ARGUMENT" and "absolute path" in caught.value.message


def test_threads_share_a_client(client):
    def call(number):
        return client.predict("half_plus_two", {"x": np.full((50, 50), number, np.float32)})["y"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for number, array in enumerate(pool.map(call, range(200))):
            assert (array == number / 2 + 2).all()


def test_async_client_answers_50_calls_at_once(server):
    async def main():
        async with AsyncClient(server.grpc_address) as client:
            calls = (client.predict("half_plus_two", {"x": np.full(100, number, np.float32)}) for number in range(50))
            found = await asyncio.gather(*calls)
            assert [array["y"][0] for array in found] == [number / 2 + 2 for number in range(50)]
            assert found[0].model.version == 1
            assert (await client.metadata("texts"))["serving_default"].inputs["x"].dtype == "string"
            assert [one.version for one in await client.status("versions")] == [2, 1]
            with pytest.raises(ServingError) as caught:
                await client.predict("slow", {"steps": np.array([ENDLESS_STEPS])}, timeout=0.3)
            assert caught.value.code == "DEADLINE_EXCEEDED"
            task = asyncio.ensure_future(client.predict("slow", {"steps": np.array([ENDLESS_STEPS])}, timeout=1))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return client

    client = asyncio.run(main())

    async def later():
        with pytest.raises(errors.UsageError, match="the client is closed"):
            await client.status("versions")

    asyncio.run(later())


def test_close_during_a_call_is_an_error_of_the_call_and_not_the_task_s_cancellation(server):
    asked = ("slow", {"steps": np.array([ENDLESS_STEPS])})

    async def main():
        client = AsyncClient(server.grpc_address)
        task, gone = (asyncio.ensure_future(client.predict(*asked, timeout=30)) for _ in range(2))
        await asyncio.sleep(0.2)
        gone.cancel()
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await gone
        with pytest.raises(ServingError) as caught:
            await task
        return caught.value

    with Client(server.grpc_address) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.predict, *asked, timeout=30)
        time.sleep(0.3)
        client.close()
        with pytest.raises(ServingError) as caught:
            running.result(10)
    for error in (asyncio.run(main()), caught.value):
        assert (error.code, str(error)) == (
            "CANCELLED",
            f"the client of {server.grpc_address} was closed during the call",
        )


def test_an_async_client_belongs_to_one_loop(server):
    client = AsyncClient(server.grpc_address)

    async def ask():
        return [one.version for one in await client.status("versions")]

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert first.run_until_complete(ask()) == [2, 1]
    with pytest.raises(errors.UsageError, match="two event loops"):
        second.run_until_complete(ask())
    first.run_until_complete(client.close())
    first.close()
    second.close()


# Servers that fail


class Counted(grpc.GenericRpcHandler):
    """A real gRPC server's handler that answers the first calls of each method with `code`, then with an empty message."""

    def __init__(self, failing, code=grpc.StatusCode.UNAVAILABLE):
        self.failing, self.code, self.seen, self.headers = failing, code, [], []

    def service(self, details):
        def answer(raw, context):
            self.seen.append((details.method.rpartition("/")[2], len(raw)))
            self.headers.append(dict(context.invocation_metadata()))
            if len(self.seen) <= self.failing:
                context.abort(self.code, "the queue is full")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def counted():
    """A function (failing calls, code) -> (address, Counted)."""
    servers = []

    def start(failing, code=grpc.StatusCode.UNAVAILABLE):
        handler = Counted(failing, code)
        one = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
        one.add_generic_rpc_handlers([handler])
        port = one.add_insecure_port("127.0.0.1:0")
        one.start()
        servers.append(one)
        return f"127.0.0.1:{port}", handler

    yield start
    for one in servers:
        one.stop(None)


X = {"x": np.zeros(1_000_000, np.float32)}  # more than gRPC itself would keep for another attempt


@pytest.mark.parametrize("method", ["predict", "metadata", "status"])
def test_what_changes_nothing_is_sent_again_when_unavailable(counted, method):
    address, handler = counted(2)
    with Client(address) as client:
        getattr(client, method)("m", *([X] if method == "predict" else []))
    assert len(handler.seen) == 3 and len(set(handler.seen)) == 1


def test_retries_end_and_the_servers_text_is_told(counted):
    address, handler = counted(99)
    with Client(address, retries=2) as client, pytest.raises(ServingError, match="says UNAVAILABLE: the queue is full"):
        client.status("m")
    assert len(handler.seen) == 3


@pytest.mark.parametrize(
    "call, retries, code",
    [
        (lambda client: client.reload("model_config_list {}"), 3, grpc.StatusCode.UNAVAILABLE),
        (lambda client: client.predict("m", X), 0, grpc.StatusCode.UNAVAILABLE),
        (lambda client: client.predict("m", X), 3, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (lambda client: client.predict("m", X), 3, grpc.StatusCode.INTERNAL),
    ],
    ids=["reload", "no retries", "RESOURCE_EXHAUSTED", "INTERNAL"],
)
def test_the_rest_is_sent_once(counted, call, retries, code):
    address, handler = counted(99, code)
    with Client(address, retries=retries) as client, pytest.raises(ServingError) as caught:
        call(client)
    assert caught.value.code == code.name and len(handler.seen) == 1


def test_the_async_client_retries_too(counted):
    address, handler = counted(2)

    async def main():
        async with AsyncClient(address) as client:
            return await client.predict("m", X)

    assert asyncio.run(main()) == {} and len(handler.seen) == 3


def test_headers_go_with_each_call(counted):
    address, handler = counted(0)
    with Client(address, headers={"authorization": "Bearer abc"}) as client:
        client.status("m")
    assert handler.headers[0]["authorization"] == "Bearer abc"


def test_an_answer_that_cannot_be_read_is_a_serving_error(counted, monkeypatch):
    address, _ = counted(0)
    monkeypatch.setattr(
        Counted, "service", lambda self, details: grpc.unary_unary_rpc_method_handler(lambda raw, context: b"\xff\xff")
    )
    with Client(address) as client:
        for call in (
            lambda: client.predict("m", X),
            lambda: client.metadata("m"),
            lambda: client.status("m"),
            lambda: client.reload(""),
        ):
            with pytest.raises(ServingError, match="cannot be read") as caught:
                call()
            assert caught.value.code == "INTERNAL"


def small(folder, log, *flags):
    return launch.LocalServer(
        ["--model_name=half_plus_two", f"--model_base_path={folder / 'half_plus_two'}", *flags], log
    )


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back(folder, tmp_path):
    x = {"x": np.ones(3, np.float32)}
    with (
        small(folder, tmp_path / "log.txt") as server,
        Client(server.grpc_address) as client,
        Client(server.grpc_address, wait_for_ready=True) as patient,
    ):
        assert (
            client.predict("half_plus_two", x)["y"].tolist()
            == patient.predict("half_plus_two", x)["y"].tolist()
            == [2.5] * 3
        )
        server.kill()
        with pytest.raises(
            ServingError, match=f"no server at {server.grpc_address}: Connection refused|the connection to .* was lost"
        ):
            client.predict("half_plus_two", x)
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(patient.predict("half_plus_two", x)["y"].tolist()))
        waiting.start()
        server.start()
        waiting.join(60)
        assert answers == [[2.5] * 3]
        # The first call after it is back: the connection is made anew between its attempts.
        assert client.predict("half_plus_two", x)["y"].tolist() == [2.5] * 3


# TLS


def test_tls_with_a_root_and_a_client_certificate(folder, tmp_path, pems):  # noqa: F811
    own = {"certificate": pems["client"][0], "key": pems["client"][1]}
    x = {"x": np.ones(3, np.float32)}
    with small(folder, tmp_path / "log.txt", ssl_config(tmp_path / "ssl.config", pems, "localhost", True)) as server:
        address = f"localhost:{server.port}"
        with Client(address, tls=Tls(root=pems["root"][0], **own)) as client:
            assert client.predict("half_plus_two", x)["y"].tolist() == [2.5] * 3

        async def main():
            async with AsyncClient(address, tls=Tls(root=pems["root"][0], **own)) as client:
                return (await client.predict("half_plus_two", x))["y"].tolist()

        assert asyncio.run(main()) == [2.5] * 3
        unknown = f"no TLS with {address}: CERTIFICATE_VERIFY_FAILED: "
        closed = f"{address} closes the connection at once: "
        for tls, told in (
            (Tls(root=pems["root"][0]), closed),
            (Tls(root=pems["stranger"][0], **own), unknown),
            (Tls(**own), unknown),
            (True, unknown),
            (None, closed),
        ):
            with Client(address, tls=tls, retries=0) as client, pytest.raises(ServingError) as caught:
                client.predict("half_plus_two", x)
            assert caught.value.code == "UNAVAILABLE" and str(caught.value).startswith(told), tls
            assert "\n" not in str(caught.value) and not str(caught.value).endswith("OK")


def test_tls_with_a_certificate_of_another_name(folder, tmp_path, pems):  # noqa: F811
    with small(
        folder, tmp_path / "log.txt", ssl_config(tmp_path / "ssl.config", pems, "other.example", False)
    ) as server:
        address = f"localhost:{server.port}"
        with Client(address, tls=Tls(root=pems["root"][0], server_name="other.example")) as client:
            assert client.status("half_plus_two")[0].state == "AVAILABLE"
        with (
            Client(address, tls=Tls(root=pems["root"][0]), retries=0) as client,
            pytest.raises(ServingError, match="no TLS with localhost"),
        ):
            client.status("half_plus_two")
