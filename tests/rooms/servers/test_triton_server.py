"""A real tritonserver: the client's calls, what `tftrt publish` wrote for it, and the commands that ask it."""

import concurrent.futures
import functools
import json
import os
import pathlib
import shutil
import signal
import threading
import time
import urllib.request

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from tests.command_line import assert_clear
from tests.conformance.launch import LocalServer
from tests.rooms.servers.test_kserve_messages import DTYPES
from tests.rooms.servers.test_triton_publish import onnx_file, plan_directory
from tests.triton_server import TritonServer, installed, wait_for
from tests.wire_arrays import random, same
from tftrt_tools.base import errors
from tftrt_tools.models.execution import npz
from tftrt_tools.servers.client import AsyncTritonClient, Client, ServingError, SharedMemory, TritonClient
from tftrt_tools.servers.client.kserve import infer_messages
from tftrt_tools.servers.client.kserve.config_messages import ModelConfig
from tftrt_tools.servers.serving.triton import publish as triton_publish

_ECHO = """
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        return [triton.InferenceResponse([triton.Tensor("y" + one.name()[1:], one.as_numpy()) for one in request.inputs()])
                for request in requests]
"""
_SAME = """
import time
import triton_python_backend_utils as triton

class TritonPythonModel:
    slow = SLOW
    def execute(self, requests):
        time.sleep(self.slow)
        self.slow = 0
        return [triton.InferenceResponse([triton.Tensor("y", one.inputs()[0].as_numpy())]) for one in requests]
"""
_HANG = """
import time
import triton_python_backend_utils as triton

class TritonPythonModel:
    answered = 0
    def execute(self, requests):
        self.answered += len(requests)
        # After the answers that are compared, while it is warmed up, however slow the machine is: with a round there would be a result to show.
        time.sleep(1e6 if self.answered > 40 else 0)
        return [triton.InferenceResponse([triton.Tensor("y", one.inputs()[0].as_numpy())]) for one in requests]
"""
_STREAM = """
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        for one in requests:
            one.get_response_sender().send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_REFUSE = """
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        told = triton.TritonError("no such rows", triton.TritonError.UNSUPPORTED)
        return [triton.InferenceResponse(error=told) for one in requests]
"""
# Triton's Python tensors have no bfloat16.
ECHOED = {name: dtype for name, dtype in DTYPES.items() if name != "BF16"}


@pytest.fixture(scope="module")
def digits(onnx_model, tmp_path_factory):
    """The digits as an ONNX file, and with other weights in its last layer: a second version whose answers differ."""
    installed()
    folder = tmp_path_factory.mktemp("onnx")
    shutil.copy(onnx_model("digits_cnn"), folder / "digits.onnx")
    import onnx
    from onnx import numpy_helper

    model = onnx.load(folder / "digits.onnx")
    (last,) = (one for one in model.graph.initializer if len(one.dims) == 2 and one.dims[-1] == 10)
    last.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(last), last.name))
    onnx.save(model, folder / "other.onnx")
    return folder


def publish(tftrt, model, repository, *flags, name="digits"):
    done = tftrt(
        "publish",
        model,
        "--server=triton",
        f"--model_name={name}",
        f"--base_path={repository}",
        "--triton_backend=python",
        *flags,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def repository(digits, tftrt, tmp_path_factory):
    folder = tmp_path_factory.mktemp("triton") / "repository"
    said = publish(
        tftrt,
        digits / "digits.onnx",
        folder,
        "--triton_max_batch_size=8",
        "--triton_queue_delay_us=2000",
        "--triton_instances=2",
    )
    assert "at most 8; Triton joins requests to batches" in said and "2 calls in each instance" in said
    publish(tftrt, digits / "digits.onnx", folder, name="whole")
    publish(tftrt, digits / "other.onnx", folder, "--triton_max_batch_size=8", name="other")
    for name, dtype in (("texts", TensorProto.STRING), ("whole_numbers", TensorProto.INT64)):
        publish(tftrt, onnx_file(digits / f"{name}.onnx", dtype=dtype), folder, "--triton_max_batch_size=4", name=name)
    written(folder, "echo", _ECHO)
    written(folder, "broken", "raise RuntimeError('it is broken')")
    plain(folder, "slow", _SAME.replace("SLOW", "1"), dims="2, 4")
    plain(folder, "open", _SAME.replace("SLOW", "0"), dims="-1, -1")
    plain(folder, "stream", _STREAM, "model_transaction_policy { decoupled: true }")
    plain(folder, "refusing", _REFUSE)
    return folder


def plain(repository, name, code, more="", dims="4"):
    """A model that takes x and gives y, both float32."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text(code)
    x, y = (
        f'{kind} {{ name: "{alias}" data_type: TYPE_FP32 dims: [{dims}] }}'
        for kind, alias in (("input", "x"), ("output", "y"))
    )
    (repository / name / "config.pbtxt").write_text(f'name: "{name}" backend: "python" {x} {y} {more}')


def written(repository, name, code):
    """A model that gives each of its inputs back, one of each type."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text(code)
    tensors = [
        f'{kind} {{ name: "{letter}_{one}" data_type: TYPE_{one} dims: [-1] }}'
        for one in (*ECHOED, "STRING")
        for kind, letter in (("input", "x"), ("output", "y"))
    ]
    (repository / name / "config.pbtxt").write_text(f'name: "{name}" backend: "python" {" ".join(tensors)}')


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with TritonServer(repository, tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture
def client(server):
    with TritonClient(server.address, timeout=30) as one:
        yield one


def answers(path, images):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"image": images})[0]


def images(rows, seed=0):
    return np.random.default_rng(seed).random((rows, 8, 8, 1), np.float32)


# The client


@pytest.mark.parametrize("count", [7, 0])
def test_every_dtype_comes_back_as_it_went(client, count):
    sent = {name: random(dtype, (count,), 3) for name, dtype in ECHOED.items()}
    texts = np.array(["ä", "", "b"])[:count]
    found = client.predict("echo", {**{f"x_{name}": array for name, array in sent.items()}, "x_STRING": texts})
    assert len(found) == len(sent) + 1 and all(same(found[f"y_{name}"], array) for name, array in sent.items())
    assert found["y_STRING"].tolist() == [one.encode() for one in texts.tolist()]


def test_a_published_model_answers_like_onnx_runtime(client, digits):
    for model, file in (("digits", "digits.onnx"), ("whole", "digits.onnx"), ("other", "other.onnx")):
        found = client.predict(model, {"image": images(3)})
        np.testing.assert_allclose(found["probabilities"], answers(digits / file, images(3)), atol=1e-6)
        assert found.model.version == 1


def test_requests_that_triton_joins_get_each_its_own_answer(client, digits):
    asked = [images(1 + number % 3, number) for number in range(48)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda one: client.predict("digits", {"image": one})["probabilities"], asked))
    for one, answer in zip(asked, found, strict=True):
        np.testing.assert_allclose(answer, answers(digits / "digits.onnx", one), atol=1e-6)


def test_metadata_readiness_and_the_index(client):
    one = client.metadata("digits")
    assert one.model.version == 1 and one["serving_default"].method == "python"
    assert one["serving_default"].inputs["image"].text() == "float32[?,8,8,1]"
    assert client.ready("digits") and not client.ready("no_such") and not client.ready("broken")
    assert not client.ready(), "a model failed"
    (broken,) = client.status("broken")
    assert broken.failed and "it is broken" in broken.error
    assert {"digits", "whole", "broken"} <= {one.name for one in client.repository()}


async def _asked(address):
    async with AsyncTritonClient(address) as client:
        return (await client.predict("digits", {"image": images(2)}))["probabilities"].shape, await client.ready(
            "digits"
        )


def test_the_asyncio_client_has_the_same_methods(server):
    import asyncio

    assert asyncio.run(_asked(server.address)) == ((2, 10), True)


def test_tensors_of_batch_alone_are_batched_as_batch_by_one(tftrt, tmp_path):
    file = tmp_path / "sums.onnx"
    value = functools.partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    nodes = [
        onnx.helper.make_node("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
        onnx.helper.make_node("Add", ["s", "v"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value("x", shape=["batch", 4]), value("v", shape=["batch"])],
        [value("y", shape=["batch"])],
        [onnx.numpy_helper.from_array(np.array([1]), "axis")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), file)
    publish(tftrt, file, tmp_path / "models", "--triton_max_batch_size=8", name="sums")
    assert (tmp_path / "models/sums/config.pbtxt").read_text().count("reshape { shape: [] }") == 2
    x, v = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([[1], [2], [3]], np.float32)
    with TritonServer(tmp_path / "models", tmp_path) as running, TritonClient(running.address) as client:
        np.testing.assert_array_equal(client.predict("sums", {"x": x, "v": v})["y"], x.sum(1, keepdims=True) + v)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # joined
            answers = list(
                pool.map(
                    lambda row: client.predict("sums", {"x": x[row : row + 1], "v": v[row : row + 1]})["y"],
                    [0, 1, 2] * 8,
                )
            )
        for row, answer in zip([0, 1, 2] * 8, answers, strict=True):
            np.testing.assert_array_equal(answer, x[row : row + 1].sum(1, keepdims=True) + v[row : row + 1])


def test_texts_and_whole_numbers_of_an_onnx_file(client):
    assert (
        client.predict("texts", {"x": [["ä", "", "c", "d"]] * 2})["y"].tolist() == [["ä".encode(), b"", b"c", b"d"]] * 2
    )
    assert client.predict("whole_numbers", {"x": [[1, -2, 2**62, 0]]})["y"].tolist() == [[1, -2, 2**62, 0]]
    with pytest.raises(ServingError, match="decode") as caught:
        client.predict("texts", {"x": np.array([[b"\xff", b"", b"", b""]], object)})
    assert "\n" not in str(caught.value)


# Errors


@pytest.mark.parametrize(
    "call, code, told",
    [
        (lambda client: client.predict("no_such", {"image": images(1)}), "NOT_FOUND", "unknown model: 'no_such'"),
        (lambda client: client.predict("digits", {"image": images(1)}, version=7), "NOT_FOUND", "'digits' version 7"),
        (lambda client: client.metadata("digits", 7), "NOT_FOUND", "'digits' version 7"),
        (lambda client: client.predict("digits", {"image": images(9)}), "INVALID_ARGUMENT", "batch-size must be <= 8"),
        (
            lambda client: client.predict("digits", {"image": images(1)[:, :7]}),
            "INVALID_ARGUMENT",
            r"Expected \[-1,8,8,1\], got \[1,7,8,1\]",
        ),
        (
            lambda client: client.predict("digits", {"image": images(1).astype(int)}),
            "INVALID_ARGUMENT",
            "'image' data-type is 'INT64'",
        ),
        (
            lambda client: client.predict("digits", {"x": images(1)}),
            "INVALID_ARGUMENT",
            "unexpected inference input 'x'",
        ),
        (
            lambda client: client.predict("digits", {"image": images(1)}, outputs="y"),
            "INVALID_ARGUMENT",
            "unexpected inference output 'y'",
        ),
        (lambda client: client.status("no_such"), "NOT_FOUND", "its models: .*digits"),
        (
            lambda client: client.status("digits", 7),
            "NOT_FOUND",
            "no version 7 of model 'digits'; its versions: 1 AVAILABLE",
        ),
        (
            lambda client: client.predict("stream", {"x": np.zeros(4, np.float32)}),
            "UNIMPLEMENTED",
            "the model is decoupled",
        ),
        (
            lambda client: client.predict("refusing", {"x": np.zeros(4, np.float32)}),
            "UNIMPLEMENTED",
            "says UNIMPLEMENTED: no such rows",
        ),
        (lambda client: client.load("digits"), "UNAVAILABLE", "loads models by itself"),
    ],
)
def test_what_triton_refuses_is_one_clear_line(client, call, code, told):
    with pytest.raises(ServingError, match=told) as caught:
        call(client)
    assert caught.value.code == code and "\n" not in str(caught.value) and "id_unknown" not in str(caught.value)


def test_the_configuration_that_triton_completed(client):
    assert (
        client.config("digits") == ModelConfig(backend="python", kinds=("KIND_CPU",)) and client.config("digits").on_cpu
    )
    assert client.config("stream").decoupled and client.metadata("stream").model.version == 1


@pytest.mark.parametrize("command", ["smoke", "bench"])
def test_a_model_that_cannot_be_asked_is_told_with_the_reason(server, tftrt, command):
    """A model that failed to load, with Triton's reason; a version that is not there; a model whose answers are a stream."""
    for flags, says, mend in (
        (("--model_name=broken",), "serves no model 'broken'", "RuntimeError: it is broken); fix that version"),
        (("--model_name=digits", "--model_version=7"), "serves no model 'digits', version 7", "version 1 AVAILABLE\n"),
        (("--model_name=stream",), "model 'stream' is decoupled", "ModelStreamInfer"),
    ):
        done = tftrt(command, server.address, *flags)
        assert_clear(done, 2, says)
        assert mend in done.stderr, done.stderr


def test_a_model_that_is_not_loaded_is_told_with_what_loads_it(digits, tftrt, tmp_path):
    publish(tftrt, digits / "digits.onnx", tmp_path / "repository")
    with (
        TritonServer(tmp_path / "repository", tmp_path, "--model-control-mode=explicit") as server,
        TritonClient(server.address) as client,
    ):
        done = tftrt("bench", server.address, "--model_name=digits")
        assert_clear(done, 2, "serves no model 'digits'")
        assert "--load-model=digits" in done.stderr
        client.load("digits")
        client.unload("digits")
        wait_for(lambda: client.status("digits")[0].state == "END")
        done = tftrt("smoke", server.address, "--model_name=digits")
        assert "it was unloaded: client.load('digits')" in done.stderr
        with pytest.raises(ServingError) as caught:
            client.predict("digits", {"image": images(1)})
        assert "say why it is not loaded" in caught.value.mend


def test_a_server_of_the_other_protocol_is_told(server, tftrt):
    bare = server.address.removeprefix("triton://")
    with pytest.raises(ServingError, match="is no TensorFlow Serving") as caught, Client(bare) as client:
        client.metadata("digits")
    assert "triton://HOST:8001" in caught.value.mend
    assert_clear(tftrt("bench", bare, "--model_name=digits"), 1, "is no TensorFlow Serving")
    assert_clear(tftrt("smoke", bare, "--model_name=digits"), 1, "is no TensorFlow Serving")
    with (
        pytest.raises(ServingError, match="127.0.0.1") as caught,
        TritonClient(f"127.0.0.1:{server.http_port}", retries=0) as client,
    ):
        client.metadata("digits")
    assert "8001" in caught.value.mend


def test_no_server_and_no_model_are_told(server, tftrt):
    assert_clear(tftrt("bench", "triton://localhost:1", "--model_name=digits"), 1, "no server at localhost:1")
    done = tftrt("bench", server.address, "--model_name=dogits")
    assert_clear(done, 2, "serves no model 'dogits'")
    assert "digits" in done.stderr
    assert_clear(tftrt("smoke", server.address, "--model_name=dogits"), 2, "serves no model 'dogits'")
    assert_clear(
        tftrt("bench", server.address, "--model_name=digits", "--version_label=stable"), 2, "no version labels"
    )
    assert_clear(
        tftrt("bench", server.address, "--model_name=digits", "--rest=localhost:8000"),
        2,
        "--rest reads the counters of a TensorFlow",
    )


# Commands


def test_smoke_compares_the_answers_with_the_originals(server, tftrt, zoo_model, tmp_path):
    done = tftrt(
        "smoke",
        server.address,
        "--model_name=digits",
        f"--original={zoo_model('digits_cnn')}",
        "--requests=3",
        "--shapes=image:1x8x8x1,8x8x8x1",
        f"--json={tmp_path / 'smoke.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((tmp_path / "smoke.json").read_text())
    assert said["address"] == server.address and said["rightness_judged"]
    assert (said["engines"]["answer"], said["engines"]["certainty"]) == (
        "no",
        "likely",
    ) and "--model_dir" not in done.stdout
    assert any("platform for this model is python" in one["seen"] for one in said["engines"]["evidence"])
    wrong = tftrt(
        "smoke", server.address, "--model_name=other", f"--original={zoo_model('digits_cnn')}", "--requests=3"
    )
    assert wrong.returncode == 3 and "FAILED" in wrong.stdout


def test_smoke_of_a_model_on_the_cpu_says_no_engine_ran_however_long_its_first_request_took(server, tftrt, tmp_path):
    done = tftrt("smoke", server.address, "--model_name=slow", "--requests=3", f"--json={tmp_path / 'smoke.json'}")
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((tmp_path / "smoke.json").read_text())
    (first,) = (one for one in said["engines"]["evidence"] if one["source"] == "first request")
    assert first["speaks"] == "nothing" and "engine" not in first["seen"] and said["engines"]["answer"] == "no"
    assert (
        said["shapes_from"] == {"serving_default": "the only ones that the signature allows"} and "x 2x4" in done.stdout
    )
    assert "batch 1" not in done.stdout


def test_smoke_advises_only_what_it_takes_of_a_triton(server, tftrt):
    done = tftrt("smoke", server.address, "--model_name=open")
    assert_clear(done, 2, "unknown dimensions")
    assert "--shapes" in done.stderr and "--model_dir" not in done.stderr
    for flag in ("--model_dir=.", f"--server_pid={server.process.pid}"):
        assert_clear(tftrt("smoke", server.address, "--model_name=digits", flag), 2, flag.partition("=")[0])


def test_smoke_waits_no_longer_than_it_was_told(server, tftrt):
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        assert_clear(
            tftrt("smoke", server.address, "--model_name=digits", "--timeout_seconds=0.5"),
            1,
            "for the model's metadata within 0.5 s",
        )
        assert time.monotonic() - begun < 8
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def test_bench_measures_and_compares(server, tftrt, zoo_model, tmp_path):
    flags = ("--duration_seconds=0.3", "--warmup_seconds=0.2", "--batch_size=2", f"--json={tmp_path / 'bench.json'}")
    done = tftrt(
        "bench",
        server.address,
        "--model_name=digits",
        "--concurrency=1,4",
        f"--original={zoo_model('digits_cnn')}",
        *flags,
        f"--html={tmp_path / 'bench.html'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert len(rows) == 2 and all(row["answered"] > 0 and not row["failed"] and not row["wrong"] for row in rows)
    for row in rows:
        seen = row["server"]
        # Triton counts a request after it has answered, and its rows apart from it: the last of each caller may be missing.
        counted, last = seen["requests"]["OK"], row["point"]["concurrency"]
        assert counted >= row["answered"] - last
        assert (
            seen["input_rows"] == pytest.approx(2, abs=2 * last / counted)
            and 0 < seen["runtime_ms"] < seen["request_ms"]
        )
        assert seen["processed_rows"] >= 2 and sum(seen["batches"].values()) == seen["graph_runs"] > 0
    assert "What the server saw" in (tmp_path / "bench.html").read_text() and "the server counted" in done.stdout
    wrong = tftrt("bench", server.address, "--model_name=other", f"--original={zoo_model('digits_cnn')}", *flags[:2])
    assert_clear(wrong, 3, "not like the original's")


def test_bench_measures_the_onnx_file_beside_the_server(server, tftrt, digits, tmp_path):
    done = tftrt(
        "bench",
        server.address,
        "--model_name=digits",
        f"--in_process={digits / 'digits.onnx'}",
        "--duration_seconds=0.3",
        "--warmup_seconds=0.2",
        f"--json={tmp_path / 'bench.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["target"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]} == {
        "server",
        "in process",
    }


def meanwhile(tftrt, client, happens, *arguments):
    """What `tftrt bench` of the digits ended with, while something happened after it had sent 300 requests."""
    before = client.statistics("digits")[0].success.count

    def watch():
        wait_for(lambda: client.statistics("digits")[0].success.count >= before + 300)
        happens()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        done = tftrt(
            "bench", client.protocol.scheme + client.address, "--model_name=digits", "--warmup_seconds=0", *arguments
        )
        watching.result()
    return done


def test_bench_of_a_model_or_a_server_that_is_gone_at_the_end_is_not_complete(digits, tftrt, tmp_path):
    repository = tmp_path / "repository"
    publish(tftrt, digits / "digits.onnx", repository)
    flags = ("--load-model=digits", "--model-control-mode=explicit")
    with TritonServer(repository, tmp_path, *flags) as server, TritonClient(server.address, timeout=30) as client:
        done = meanwhile(
            tftrt, client, lambda: client.unload("digits"), "--duration_seconds=3", f"--json={tmp_path / 'bench.json'}"
        )
        assert done.returncode == 1 and "NOT COMPLETE: the server answered no more for the last" in done.stdout, (
            done.stdout + done.stderr
        )
        said = json.loads((tmp_path / "bench.json").read_text())
        assert not said["complete"] and "NOT_FOUND" in said["ended"] and said["rows"][0]["answered"] >= 250
        client.load("digits")
        # A version that gives way to another one, and fails a few requests, is not gone.
        done = meanwhile(
            tftrt, client, lambda: (client.unload("digits"), client.load("digits")), "--duration_seconds=8"
        )
        assert done.returncode == 0 and "NOT COMPLETE" not in done.stdout, done.stdout + done.stderr
        try:
            done = meanwhile(
                tftrt,
                client,
                lambda: os.kill(server.process.pid, signal.SIGSTOP),
                "--duration_seconds=3",
                "--timeout_seconds=1",
            )
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        assert done.returncode == 1 and "NOT COMPLETE" in done.stdout, done.stdout + done.stderr
        assert "within 1 s" in done.stdout


def test_bench_of_a_model_that_hangs_is_not_complete(tftrt, tmp_path):
    plain(tmp_path / "repository", "hanging", _HANG)
    with TritonServer(tmp_path / "repository", tmp_path) as server:
        done = tftrt(
            "bench",
            server.address,
            "--model_name=hanging",
            "--timeout_seconds=1",
            "--warmup_seconds=0",
            "--duration_seconds=2",
        )
        assert done.returncode == 1 and "the model hangs; fix it, and restart the server" in done.stdout, (
            done.stdout + done.stderr
        )
        server.process.kill()


def test_regress_compares_two_models_of_one_triton(server, tftrt, tmp_path):
    flags = ("--rounds=20", "--max_rounds=20", "--requests=2", "--metrics=p50", f"--server={server.address}")
    done = tftrt("regress", "--native=digits", "--candidate=whole", *flags, f"--json={tmp_path / 'same.json'}")
    assert done.returncode in (0, 3, 4), done.stderr
    assert not json.loads((tmp_path / "same.json").read_text())["answers"]["problems"]
    wrong = tftrt("regress", "--native=digits", "--candidate=other", *flags)
    assert wrong.returncode == 3 and "probabilities" in wrong.stdout, wrong.stdout + wrong.stderr


@pytest.mark.parametrize("native, candidate", [("well", "hanging"), ("hanging", "well")])
def test_regress_of_a_model_that_hangs_ends_soon(native, candidate, tftrt, tmp_path):
    plain(tmp_path / "repository", "well", _SAME.replace("SLOW", "0"))
    plain(tmp_path / "repository", "hanging", _HANG)
    with TritonServer(tmp_path / "repository", tmp_path) as server:
        begun = time.monotonic()
        done = tftrt(
            "regress",
            f"--address={server.address}",
            f"--native={native}",
            f"--candidate={candidate}",
            "--timeout_seconds=2",  # on a busy machine the model that is well takes more than half a second now and then
            *QUICK,
        )
        # It hangs from some request on; whether one of the first block is answered before that is a matter of time.
        which = "native" if native == "hanging" else "candidate"
        said = next((one for one in ("answers no more", "answered none of") if one in done.stderr), "nothing")
        assert_clear(done, 1, f"the {which} model {said}")
        assert time.monotonic() - begun < 40
        server.process.kill()


@pytest.fixture(scope="module")
def before(zoo_model, tmp_path_factory):
    """The address of a TensorFlow Serving (the development server) that has the digits as a SavedModel."""
    folder = tmp_path_factory.mktemp("before")
    shutil.copytree(zoo_model("digits_cnn"), folder / "digits/1")
    with LocalServer(
        ["--model_name=digits", f"--model_base_path={folder / 'digits'}"], folder / "log", looked_at=True
    ) as one:
        yield one.grpc_address


QUICK = ("--rounds=12", "--max_rounds=12", "--requests=8", "--metrics=p50")


def test_regress_compares_servers_of_two_kinds(server, before, zoo_model, tftrt, tmp_path):
    two = (f"--native_address={before}", f"--candidate_address={server.address}", "--native=digits", *QUICK)
    done = tftrt(
        "regress",
        *two,
        "--candidate=digits",
        "--allow_worse",
        f"--json={tmp_path / 'r.json'}",
        f"--html={tmp_path / 'r.html'}",
        f"--native_dir={zoo_model('digits_cnn')}",
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr
    said = json.loads((tmp_path / "r.json").read_text())
    assert said["server"]["address"] == f"{before} (native) and {server.address} (candidate)"
    assert said["workload"]["backend"] == "two servers that ran before: TensorFlow Serving and Triton"
    assert any("the verdict is on each model together with its server" in one for one in said["notes"])
    assert (
        not said["answers"]["problems"]
        and said["failed"] == {"native": 0, "candidate": 0}
        and len(said["rounds"]["candidate_p50"]) == 12
    )
    assert server.address in (tmp_path / "r.html").read_text() and said["native"]["digest"]
    # The same model under the same name and version on both, and the other way round.
    turned = tftrt(
        "regress",
        f"--address={server.address}",
        f"--candidate_address={before}",
        "--native=digits",
        "--candidate=digits",
        *QUICK,
        "--allow_worse",
    )
    assert turned.returncode in (0, 4) and f"{server.address} (native) and {before} (candidate)" in turned.stdout, (
        turned.stdout + turned.stderr
    )


def test_other_answers_of_the_other_server_fail_the_comparison(server, before, tftrt):
    done = tftrt(
        "regress",
        f"--native_address={before}",
        f"--candidate_address={server.address}",
        "--native=digits",
        "--candidate=other",
        *QUICK,
        "--allow_worse",
    )
    assert done.returncode == 3 and "probabilities" in done.stdout, done.stdout + done.stderr


def test_a_request_that_the_other_server_refuses_is_a_failure_and_a_model_that_it_has_not_is_named(
    server, before, tftrt
):
    two = (f"--native_address={before}", f"--candidate_address={server.address}", "--native=digits", *QUICK)
    done = tftrt("regress", *two, "--candidate=digits", "--shapes=image:9x8x8x1")
    assert done.returncode == 3 and "refuses a request" in done.stdout + done.stderr, done.stdout + done.stderr
    assert_clear(tftrt("regress", *two, "--candidate=nothing"), 2, "serves no model 'nothing'")
    assert_clear(tftrt("regress", *two, "--candidate=digits", "--candidate_label=stable"), 2, "label")


def test_versions_lists_the_repository(server, tftrt):
    done = tftrt("versions", server.address)
    assert done.returncode == 0 and "digits" in done.stdout and "it is broken" in done.stdout, done.stdout + done.stderr


# Shared memory


def unregistered(client, memory):
    """Whether Triton let go of the memory. On a busy machine it holds it for a moment after an answer."""
    try:
        client.unregister(memory)
    except ServingError as error:
        assert "currently in use" in str(error)
        return False
    return True


def test_inputs_in_shared_memory_are_not_sent_and_answers_are_right(client):
    with SharedMemory(1 << 20) as memory:
        client.register(memory)
        floats, wholes = memory.array((500,), np.float32), memory.array((3,), np.int64)
        floats[...], wholes[...] = np.arange(500), (7, 8, 9)
        sent = {"x_FP32": floats, "x_INT64": wholes, "x_STRING": np.array(["ä"])}
        apart = {name: np.array(array) for name, array in sent.items()}
        sizes = [len(infer_messages.request_bytes("echo", one, regions=client.regions)) for one in (sent, apart)]
        assert sizes[0] < 400 and sizes[1] - sizes[0] > 1500
        rest = {f"x_{name}": random(dtype, (2,), 3) for name, dtype in ECHOED.items() if name not in ("FP32", "INT64")}
        for turn in range(3):
            floats[...] = turn
            found = client.predict("echo", {**rest, **sent})
            assert (
                (found["y_FP32"] == turn).all()
                and found["y_FP32"].shape == (500,)
                and found["y_INT64"].tolist() == [7, 8, 9]
            )
            assert found["y_STRING"].tolist() == ["ä".encode()] and all(
                same(found["y" + name[1:]], array) for name, array in rest.items()
            )
        # A part in one piece lies there too; every second value does not, and is sent.
        assert client.predict("echo", {**rest, **sent, "x_FP32": floats[100:200]})["y_FP32"].shape == (100,)
        assert client.predict("echo", {**rest, **sent, "x_FP32": floats[::2]})["y_FP32"].shape == (250,)
        wait_for(lambda: unregistered(client, memory))
        assert client.regions == () and (client.predict("echo", {**rest, **sent})["y_FP32"] == 2).all(), "sent again"


def test_a_server_that_has_forgotten_a_region_says_so(client):
    with SharedMemory(1 << 12) as memory:
        client.register(memory)
        regions = client.regions
        client.unregister(memory)
        client.regions = regions
        array = memory.array((2, 8, 8, 1), np.float32)
        with pytest.raises(ServingError, match="Unable to find shared memory region"):
            client.predict("digits", {"image": array})
        client.regions = ()


def test_shared_memory_that_cannot_be_is_told(tmp_path, monkeypatch):
    with SharedMemory(1000) as memory:
        memory.array((100,), np.float32)
        with pytest.raises(errors.UsageError, match="1000 bytes, and 1048 are needed"):
            memory.array((150,), np.float32)
        memory.clear()
        assert memory.offset(memory.array((150,), np.float32)) == 0 and memory.offset(np.zeros(3)) is None
        with pytest.raises(errors.UsageError, match="texts"):
            memory.array((1,), "U5")
        assert pathlib.Path("/dev/shm", memory.name).stat().st_mode & 0o777 == 0o600
    assert not pathlib.Path("/dev/shm", memory.name).exists()
    with pytest.raises(errors.UsageError, match="holds nothing"):
        SharedMemory(0)
    before = set(os.listdir("/dev/shm"))
    with pytest.raises(OSError, match="."):
        SharedMemory(1 << 50)
    assert set(os.listdir("/dev/shm")) == before, "nothing is left of a region that there is no place for"


# Versions


def test_a_new_version_takes_over_without_a_failed_request(digits, tftrt, tmp_path):
    repository = tmp_path / "repository"
    publish(tftrt, digits / "digits.onnx", repository, "--triton_max_batch_size=8")
    asked = images(2)
    expected = {1: answers(digits / "digits.onnx", asked), 2: answers(digits / "other.onnx", asked)}
    with (
        TritonServer(repository, tmp_path, "--model-control-mode=poll", "--repository-poll-secs=1") as server,
        TritonClient(server.address, timeout=30, retries=0) as client,
    ):
        stop, seen = threading.Event(), []

        def ask():
            while not stop.is_set():
                answer = client.predict("digits", {"image": asked})
                seen.append(answer.model.version)
                np.testing.assert_allclose(answer["probabilities"], expected[answer.model.version], atol=1e-6)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = [pool.submit(ask) for _ in range(2)]
            try:
                said = publish(tftrt, digits / "other.onnx", repository, "--triton_max_batch_size=8")
                assert "config.pbtxt, which was there" in said
                wait_for(lambda: seen[-1:] == [2] or any(one.done() for one in running))
            finally:
                stop.set()
            for one in running:
                one.result()
        assert {1, 2} == set(seen)
        wait_for(
            lambda: [(one.version, one.state) for one in client.status("digits")] == [(2, "AVAILABLE"), (1, "END")]
        )
    assert loads(server) == ["digits:1", "digits:2"]


def loads(server):
    """The versions that a server loaded, in order. Fails where it saw anything of a publisher."""
    log = server.log.read_text()
    assert "publish" not in log, log
    # A look at a changed directory says "loading" too, and then changes settings alone: no instance starts.
    return [line.rsplit(" ", 1)[1].strip('"') for line in log.splitlines() if '"loading: ' in line]


def next_look(server):
    """Until a server with --log-verbose has looked at the repository once more."""

    def looks():
        return server.log.read_text().count('"Polling model repository"')

    before = looks()
    wait_for(lambda: looks() > before)


@pytest.mark.parametrize("there", [True, False], ids=["a later version", "a new model"])
def test_a_triton_that_polls_takes_no_notice_of_what_grows(digits, tftrt, tmp_path, monkeypatch, there):
    """In the model's directory it would load the served version again at each look, and warn."""
    repository = tmp_path / "repository"
    publish(tftrt, digits / "digits.onnx", repository)
    name = "digits" if there else "new"
    with (
        TritonServer(
            repository, tmp_path, "--model-control-mode=poll", "--repository-poll-secs=1", "--log-verbose=1"
        ) as server,
        TritonClient(server.address, timeout=30) as client,
    ):
        fill, looks = triton_publish._fill, []

        def slow(stage, *arguments):
            fill(stage, *arguments)
            for number in range(3):
                (stage / f"part{number}").write_text("it grows")
                next_look(server)
            looks.append(loads(server))

        monkeypatch.setattr(triton_publish, "_fill", slow)
        triton_publish.publish(
            str(digits / "other.onnx"), name, str(repository), triton_publish.Options(backend="python")
        )
        assert looks == [["digits:1"]]
        wait_for(lambda: (2 if there else 1, "AVAILABLE") in [(one.version, one.state) for one in client.status(name)])
        assert loads(server) == ["digits:1", f"{name}:{2 if there else 1}"]


# A model for each kind of GPU


def of_kinds(folder, onnx_path, **capabilities):
    """A folder with a plan directory for each kind. Only the ONNX file runs here; of the plan a few bytes are there."""
    folder.mkdir()
    for kind, capability in capabilities.items():
        plan_directory(folder / kind, verified=False, compute_capability=capability)
        shutil.copy(onnx_path, folder / kind / "model.onnx")
    return folder


_ON_A_GPU = """

class OnAGpu(TritonPythonModel):
    def initialize(self, args):
        super().initialize({**args, "model_instance_kind": "GPU"})

TritonPythonModel = OnAGpu
_capability = lambda: "8.6"
"""


def test_one_version_for_several_kinds_answers_beside_one_of_one_model(tftrt, tmp_path):
    """On a CPU that is the ONNX file of the first kind. config.pbtxt is the same for both versions."""
    file = onnx_file(tmp_path / "m.onnx")
    built = of_kinds(tmp_path / "built", file, T4="7.5", L4="8.9")
    repository = tmp_path / "repository"
    publish(tftrt, built, repository, "--unverified", "--triton_versions=2", name="m")
    assert "which was there" in publish(tftrt, built / "T4", repository, "--unverified", name="m")
    with TritonServer(repository, tmp_path) as server, TritonClient(server.address, timeout=30) as client:
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        for version in (1, 2):
            np.testing.assert_array_equal(client.predict("m", {"x": x}, version=version)["y"], x)
    log = server.log.read_text()
    assert "tftrt: m version 1 runs L4/model.onnx in ONNX Runtime on the CPU" in log
    assert "tftrt: m version 2 runs model.onnx in ONNX Runtime on the CPU" in log


def test_a_plan_directory_in_a_plan_directory_does_not_run_in_its_place(tftrt, tmp_path):
    """y = x outside, y = x + x in the folder."""
    plan_directory(tmp_path / "plan", verified=False)
    plan_directory(tmp_path / "plan/old", verified=False)
    for place, node in (("plan", ("Identity", ["x"], ["y"])), ("plan/old", ("Add", ["x", "x"], ["y"]))):
        path = tmp_path / place / "model.onnx"
        model = onnx.load(path)
        model.graph.node[0].CopyFrom(onnx.helper.make_node(*node))
        onnx.save(model, path)
    publish(tftrt, tmp_path / "plan", tmp_path / "repository", "--unverified", name="m")
    assert (tmp_path / "repository/m/1/old/model.onnx").is_file()
    with TritonServer(tmp_path / "repository", tmp_path) as server, TritonClient(server.address, timeout=30) as client:
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        np.testing.assert_array_equal(client.predict("m", {"x": x})["y"], x)
    assert "tftrt: m version 1 runs model.onnx in ONNX Runtime on the CPU" in server.log.read_text()


def test_versions_that_triton_serves_load_all_or_none(tftrt, tmp_path):
    """So `publish` refuses a config.pbtxt that such a version does not fit."""
    file, repository = onnx_file(tmp_path / "m.onnx"), tmp_path / "repository"
    publish(tftrt, file, repository, name="m")
    publish(tftrt, file, repository, "--triton_replace_config", "--triton_versions=2", name="m")
    (repository / "m/1/model.onnx").unlink()
    with TritonServer(repository, tmp_path) as server, TritonClient(server.address, timeout=30) as client:
        states = client.status("m")
        assert states and not any(state.state == "AVAILABLE" for state in states), states
    assert "tftrt: m version 2 runs model.onnx" in server.log.read_text(), "it could be loaded"
    # A version without model.py ends there after a minute.
    (repository / "m/1/model.py").unlink()
    flags = ("--server=triton", "--model_name=m", f"--base_path={repository}", "--triton_backend=python")
    done = tftrt("publish", file, *flags, "--triton_replace_config", "--triton_versions=3")
    assert_clear(done, 2, "version 1 does not fit the new config.pbtxt: no model.py there")


def test_a_gpu_of_no_kind_ends_the_instance_with_one_line_of_triton(tftrt, tmp_path):
    """model.py as it is published, but for the kind of the instance and the GPU, which this server does not have."""
    built = of_kinds(tmp_path / "built", onnx_file(tmp_path / "m.onnx"), T4="7.5", L4="8.9")
    publish(tftrt, built, tmp_path / "repository", "--unverified", name="m")
    program = tmp_path / "repository/m/1/model.py"
    program.write_text(program.read_text() + _ON_A_GPU)
    with TritonServer(tmp_path / "repository", tmp_path) as server, TritonClient(server.address, timeout=30) as client:
        (state,) = client.status("m")
        told = "m version 1 has no model for GPU 0, of compute capability 8.6: L4 is for 8.9, T4 is for 7.5; build it"
        assert state.failed and told in state.error
        done = tftrt("smoke", server.address, "--model_name=m")
        assert_clear(done, 2, "serves no model 'm'")
        assert told in done.stderr


def test_triton_reads_which_file_is_for_which_gpu(tftrt, tmp_path):
    """It has no backend `tensorrt` here; the map of such a config.pbtxt is what it has read, and what is not named is empty."""
    file = onnx_file(tmp_path / "m.onnx")
    built = of_kinds(tmp_path / "built", file, T4="7.5", L4="8.9")
    publish(tftrt, built, tmp_path / "repository", "--unverified", name="m")
    flags = ("--server=triton", "--model_name=m", f"--base_path={tmp_path / 'plans'}", "--unverified")
    assert tftrt("publish", built, *flags).returncode == 0
    said = (tmp_path / "plans/m/config.pbtxt").read_text()
    assert 'platform: "tensorrt_plan"' in said
    (tmp_path / "repository/m/config.pbtxt").write_text(said.replace('platform: "tensorrt_plan"', 'backend: "python"'))
    with TritonServer(tmp_path / "repository", tmp_path) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2/models/m/config", timeout=30) as answer:
            read = json.load(answer)
    assert read["cc_model_filenames"] == {"7.5": "T4/model.plan", "8.9": "L4/model.plan"}
    assert read["default_model_filename"] in ("", "model.py")


def test_a_version_that_is_loaded_by_a_call(digits, tftrt, tmp_path):
    repository = tmp_path / "repository"
    publish(tftrt, digits / "digits.onnx", repository)
    with (
        TritonServer(repository, tmp_path, "--model-control-mode=explicit") as server,
        TritonClient(server.address, timeout=30) as client,
    ):
        assert not client.ready("digits")
        client.load("digits")
        assert client.ready("digits") and client.metadata("digits").model.version == 1
        publish(tftrt, digits / "other.onnx", repository)
        client.load("digits")
        assert client.metadata("digits").model.version == 2
        client.unload("digits")
        wait_for(lambda: not client.ready("digits"))


def test_npz_rows_are_asked(server, tftrt, tmp_path):
    """--data goes to Triton as it goes to TensorFlow Serving."""
    npz.save(tmp_path / "rows.npz", {"image": images(5)})
    done = tftrt(
        "smoke",
        server.address,
        "--model_name=whole",
        f"--data={tmp_path / 'rows.npz'}",
        "--batch_size=5",
        "--requests=2",
    )
    assert done.returncode == 0, done.stdout + done.stderr
