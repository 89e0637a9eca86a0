"""PyTorch's CNNs, encoders, LSTMs, detectors and U-Nets on their way to TensorRT 8.5, as modules and as .pt2 files: `make test-new`."""

import json
import sys

import numpy as np
import pytest

from benchmarks import _plan_models
from tests.conftest import run_tftrt

pytestmark = [pytest.mark.new, pytest.mark.timeout(600)]

FAMILIES = ("cnn", "encoder", "lstm", "detector", "unet")
SHAPES = {
    "cnn": "image:2x3x32x32",
    "encoder": "ids:2x9;mask:2x9",
    "lstm": "ids:2x12",
    "detector": "image:2x3x64x64",
    "unet": "image:2x3x48x48",
}
# What carries the computation of a family, and has to be in the file as one node.
OPS = {"cnn": "Conv", "encoder": "Softmax", "lstm": "LSTM", "detector": "TopK", "unet": "ConvTranspose"}


@pytest.fixture
def export(tmp_path):
    """Function of a source and flags. Returns: (--json, the onnx.ModelProto, the process)."""

    def run(source, *flags):
        import onnx

        target = tmp_path / "out.onnx"
        done = run_tftrt("export", source, f"--output={target}", f"--json={tmp_path / 'e.json'}", *flags, timeout=500)
        assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
        return json.loads((tmp_path / "e.json").read_text()), onnx.load(target), target

    return run


def made(name):
    """(module, {input: example}, dynamic shapes)."""
    from tests import torch_families

    return getattr(torch_families, name)()


def rows(name, count, seed=1):
    return _plan_models.drawn(f"torch_{name}", count, seed)


def asked(module, feed):
    """{output: array} of the module itself."""
    import torch

    with torch.no_grad():
        return {
            key: value.numpy() for key, value in module(**{k: torch.from_numpy(v) for k, v in feed.items()}).items()
        }


@pytest.mark.parametrize("name", FAMILIES)
def test_a_module_becomes_a_file_for_8_5_that_answers_at_any_batch(name, export):
    import onnxruntime

    said, graph, target = export(f"tests.torch_families:{name}", f"--shapes={SHAPES[name]}")
    assert said["opset"] == 16 and said["files"][0]["findings"] == []
    assert OPS[name] in {node.op_type for node in graph.graph.node}
    assert {value.type.tensor_type.shape.dim[0].dim_param for value in (*graph.graph.input, *graph.graph.output)} == {
        "batch"
    }
    # Against the module itself, at a batch and a length of which nobody spoke.
    feed = rows(name, 5)
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    found = dict(zip([one.name for one in session.get_outputs()], session.run(None, feed), strict=True))
    expected = asked(made(name)[0], feed)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=1e-4, err_msg=key)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_program_gets_fp16_and_int8(name, export, tmp_path):
    import torch
    from onnx import TensorProto

    module, inputs, shapes = made(name)
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (), inputs, dynamic_shapes=shapes), tmp_path / "m.pt2")
    np.savez(tmp_path / "rows.npz", **rows(name, 32, 2))
    np.savez(tmp_path / "training.npz", **rows(name, 64))
    flags = [f"--data={tmp_path / 'rows.npz'}", f"--thresholds={_plan_models.UNTRAINED}"]
    said, graph, _ = export(tmp_path / "m.pt2", "--precision=FP16", *flags)
    assert said["files"][0]["findings"] == [] and said["files"][0]["precision"]["verification"]["passed"]
    assert TensorProto.FLOAT16 in {one.data_type for one in graph.graph.initializer}
    said, graph, _ = export(
        tmp_path / "m.pt2", "--precision=INT8", f"--calibration_data={tmp_path / 'training.npz'}", *flags
    )
    assert said["files"][0]["findings"] == [] and said["files"][0]["precision"]["verification"]["passed"]
    assert "QuantizeLinear" in {node.op_type for node in graph.graph.node}


def test_a_detector_with_torchvisions_suppression_fits_8_5(export, tmp_path):
    import onnxruntime

    said, graph, target = export("tests.torch_families:suppressed")
    assert said["opset"] == 16 and said["files"][0]["findings"] == []
    assert "NonMaxSuppression" in {node.op_type for node in graph.graph.node}
    feed = {name: value[:1] for name, value in rows("detector", 4).items()}
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    found = dict(zip([one.name for one in session.get_outputs()], session.run(None, feed), strict=True))
    module, *_ = made("suppressed")
    for key, value in asked(module, feed).items():
        np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=1e-4, err_msg=key)


def test_a_program_with_ops_of_a_library_that_is_missing_names_it():
    from tftrt_tools.base import errors
    from tftrt_tools.models.kinds.pytorch import runner_job

    hidden = sys.modules.pop("torchvision", None)
    sys.modules["torchvision"] = None
    try:
        with pytest.raises(errors.TftrtError, match="its op nms is one of torchvision") as raised:
            runner_job.with_ops(["aten.relu.default", "torchvision.nms.default"])
    finally:
        del sys.modules["torchvision"]
        if hidden:
            sys.modules["torchvision"] = hidden
    assert "pip install torchvision" in raised.value.mend


def test_an_lstm_of_open_length_is_told_with_the_dimension(tmp_path):
    done = run_tftrt("export", "tests.torch_families:open_lstm", f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 1 and "such as LSTM" in done.stderr and "length (always 12)" in done.stderr, done.stderr
    assert "leave them out of the dynamic shapes" in done.stderr and len(done.stderr.splitlines()) == 2
