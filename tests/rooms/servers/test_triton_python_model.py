"""model.py of Triton's Python backend with a plan, on a GPU of host memory. With ONNX Runtime a real tritonserver runs it
(test_triton_server.py), with a plan on a GPU one does (test_gpu_triton.py)."""

import json
import os
import shutil
import sys
import types

import numpy as np
import pytest

pytest.importorskip("tensorrt")
from onnx import helper

from tests import onnx_files
from tests.plan_device import Device, Engine
from tftrt_tools.models.execution.job import device
from tftrt_tools.models.kinds.plan import runner_job
from tftrt_tools.servers.serving.triton import python_model


class Tensor:
    def __init__(self, name, array):
        self.name, self.array = name, array

    def as_numpy(self):
        return self.array


class ModelException(Exception):
    pass


class Response:
    def __init__(self, tensors=(), error=None):
        self.tensors, self.error = tensors, error


@pytest.fixture
def model(monkeypatch, tmp_path):
    """model(device=…, kind=…) gives (TritonPythonModel, Engine), initialized as Triton does it."""
    backend = types.SimpleNamespace(
        Tensor=Tensor,
        InferenceResponse=Response,
        TritonError=str,
        TritonModelException=ModelException,
        triton_string_to_numpy=lambda name: np.float32,
        get_input_tensor_by_name=lambda request, name: Tensor(name, request[name]),
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    # The model writes it. Set first, it is at the end what it was.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/plan.json").write_text("{}")

    def made(device=0, kind="GPU", **facts):
        engine = Engine(**facts)

        def opened(path):
            engine.path = path
            return engine

        monkeypatch.setattr(runner_job, "Engine", opened)
        monkeypatch.setattr(runner_job, "Cuda", Device)
        space = {}
        exec(compile(python_model.text(), "model.py", "exec"), space)
        one = space["TritonPythonModel"]()
        config = {"input": [{"name": "x"}], "output": [{"name": "y", "data_type": "TYPE_FP32"}], "max_batch_size": 64}
        one.initialize(
            {
                "model_config": json.dumps(config),
                "model_repository": str(tmp_path / "m"),
                "model_version": "1",
                "model_name": "m",
                "model_instance_kind": kind,
                "model_instance_device_id": str(device),
            }
        )
        return one, engine

    return made


def rows(batch, seed=0):
    return {"x": np.random.default_rng(seed).random((batch, 3), np.float32)}


def test_joined_requests_are_one_call_and_get_their_own_rows(model, capfd):
    one, engine = model()
    for turn in range(3):
        requests = [rows(batch, 10 * turn + batch) for batch in (1, 5, 2)]
        answers = one.execute(requests)
        assert all(
            np.array_equal(answer.tensors[0].array, 2 * asked["x"] + 1)
            for answer, asked in zip(answers, requests, strict=True)
        )
    assert len(engine.contexts) == 1 and engine.contexts[0]._shape == (8, 3)
    assert "m version 1 runs model.plan on GPU 0" in capfd.readouterr().out


@pytest.mark.parametrize(
    "answer",
    [lambda x: x.sum(0, keepdims=True), lambda x: x[x.sum(1) > 3], lambda x: x.sum()],
    ids=["a sum", "a choice of rows", "a number"],
)
def test_outputs_that_are_not_of_the_inputs_rows_are_of_one_request_each(model, answer):
    one, _ = model()
    one._run = lambda inputs: {"y": np.asarray(answer(inputs["x"]), np.float32)}
    requests = [{"x": np.full((2, 3), value, np.float32)} for value in (1, 2, 3)]
    for response, asked in zip(one.execute(requests), requests, strict=True):
        np.testing.assert_array_equal(response.tensors[0].array, answer(asked["x"]))


def test_a_bad_request_fails_alone(model):
    one, _ = model()
    good, bad = one.execute([rows(2), rows(65)])
    assert np.array_equal(good.tensors[0].array, 2 * rows(2)["x"] + 1) and "65" in bad.error and "\n" not in bad.error


@pytest.mark.parametrize(
    ("visible", "device", "used"),
    [(None, 0, "0"), (None, 1, "1"), ("", 1, "1"), ("GPU-a,GPU-b", 1, "GPU-b"), ("3", 0, "3")],
)
def test_an_instance_takes_the_gpu_that_triton_gave_it(model, monkeypatch, visible, device, used):
    """tftrt-tools takes the first that CUDA sees, and Triton counts those that it sees itself."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    model(device)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == used


@pytest.mark.parametrize("graphs", ["0", "1"])
def test_calls_are_graphs_where_the_environment_says_so(model, monkeypatch, graphs):
    monkeypatch.setenv("TFTRT_PLAN_CUDA_GRAPH", graphs)
    one, _ = model()
    one.execute([rows(2)])
    assert one._run.__self__.pool.captured == int(graphs)


@pytest.mark.parametrize(("kind", "own"), [("GPU", "plan.json"), ("GPU", "model.onnx"), ("CPU", "model.onnx")])
def test_one_model_runs_itself_whatever_its_folders_hold(model, tmp_path, capfd, kind, own):
    """Of a plan directory in a plan directory: y = x outside, y = x + x in the folder."""
    outside, inside = tmp_path / "m/1", tmp_path / "m/1/old"
    inside.mkdir()
    (inside / "plan.json").write_text(json.dumps({"compute_capability": "9.0"}))
    values = [[onnx_files.values((name, "float32", ["batch", 3]))[0]] for name in ("x", "y")]
    onnx_files.write(outside / "model.onnx", [helper.make_node("Identity", ["x"], ["y"])], *values)
    onnx_files.write(inside / "model.onnx", [helper.make_node("Add", ["x", "x"], ["y"])], *values)
    if own == "model.onnx":
        (outside / "plan.json").unlink()
    one, engine = model(kind=kind)
    planned = kind == "GPU" and own == "plan.json"
    assert f"runs {'model.plan' if planned else 'model.onnx'} " in capfd.readouterr().out
    if planned:
        assert engine.path == str(outside) + "/"
    else:
        assert np.array_equal(one.execute([rows(2)])[0].tensors[0].array, rows(2)["x"])


@pytest.fixture
def kinds(model, monkeypatch, tmp_path):
    """kinds(capability, …) is as `model`, of a version with a folder for each of two kinds, on such a GPU; None for a process without one."""
    (tmp_path / "m/1/plan.json").unlink()
    for kind, capability in (("L4", "8.9"), ("T4", "7.5")):
        (tmp_path / "m/1" / kind).mkdir()
        (tmp_path / "m/1" / kind / "plan.json").write_text(json.dumps({"compute_capability": capability}))
        shutil.copy(onnx_files.product(tmp_path / f"{kind}.onnx"), tmp_path / "m/1" / kind / "model.onnx")

    def made(capability, **more):
        seen = {"name": "a GPU", "compute_capability": capability, "driver": ""} if capability else None
        asked = []
        monkeypatch.setattr(device, "seen", lambda: asked.append(os.environ["CUDA_VISIBLE_DEVICES"]) or seen)
        return (*model(**more), asked)

    return made


@pytest.mark.parametrize(("capability", "kind"), [("8.9", "L4"), ("7.5", "T4")])
def test_an_instance_takes_the_folder_for_its_gpu(kinds, capability, kind, tmp_path, capfd):
    one, engine, asked = kinds(capability, device=1)
    assert engine.path == str(tmp_path / "m/1" / kind)
    assert asked == ["1"], "the GPU of the instance is asked, no other"
    assert f"m version 1 runs {kind}/model.plan on GPU 1" in capfd.readouterr().out
    (answer,) = one.execute([rows(2)])
    assert np.array_equal(answer.tensors[0].array, 2 * rows(2)["x"] + 1)


@pytest.mark.parametrize(("capability", "told"), [("8.6", "capability 8.6:"), (None, "capability that is not known:")])
def test_a_gpu_of_no_kind_is_told_in_one_line(kinds, capability, told):
    with pytest.raises(ModelException, match=f"m version 1 has no model for GPU 0, of compute {told}") as caught:
        kinds(capability)
    said = str(caught.value)
    assert "L4 is for 8.9, T4 is for 7.5" in said and "tftrt build --on" in said and "\n" not in said


def test_on_a_cpu_the_onnx_file_of_the_first_kind_runs(kinds, capfd):
    _, engine, asked = kinds("8.9", kind="CPU")
    assert not hasattr(engine, "path") and not asked, "no GPU is asked"
    assert "m version 1 runs L4/model.onnx in ONNX Runtime on the CPU" in capfd.readouterr().out
