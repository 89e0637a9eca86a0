"""`tftrt export` of PyTorch, Keras 3 and new TensorFlow, each in its own framework's newest release: `make test-new`."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT, run_tftrt
from tftrt_tools.models.kinds.onnx import file

pytestmark = pytest.mark.new


@pytest.fixture
def export(tmp_path):
    """Function of a source and flags that exports it. Returns: (process, --json or None, path of the ONNX file)."""

    def run(source, *flags):
        target = tmp_path / "out.onnx"
        done = run_tftrt("export", source, f"--output={target}", f"--json={tmp_path / 'e.json'}", *flags)
        said = tmp_path / "e.json"
        return done, json.loads(said.read_text()) if said.exists() else None, target

    return run


def graph_of(path):
    import onnx

    def values(listed):
        return {one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in listed}

    graph = onnx.load(str(path)).graph
    return values(graph.input), values(graph.output)


def answers_of(path, feed):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, feed), strict=True))


def program(folder, name="net"):
    """A .pt2 file of a function of tests.new_modules."""
    path = pathlib.Path(folder) / "model.pt2"
    code = (
        "import sys, torch; from tftrt_tools.models.kinds.pytorch import function_job, kind; "
        "function_job.job(kind.FunctionRequest(function=f'tests.new_modules:{sys.argv[1]}', output=sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, name, path], check=True, cwd=ROOT)
    return path


def test_a_program_keeps_names_order_and_its_open_batch(export, tmp_path):
    path = program(tmp_path)
    done, said, target = export(path, "--target=11")
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
    inputs, outputs = graph_of(target)
    assert list(inputs.items()) == [("image", ["batch", 1, 8, 8]), ("scale", ["batch", 1])]
    assert list(outputs.items()) == [
        ("probabilities", ["batch", 3]),
        ("inner_0", ["batch", 4]),
        ("inner_1", ["batch", 4]),
    ]
    (made,) = said["files"]
    assert (
        said["opset"] == 18
        and said["exporter"].startswith("torch.onnx ")
        and made["verification"]["runtimes"]["original"].startswith("PyTorch ")
    )
    assert {one["output"] for one in made["verification"]["comparisons"]} == set(outputs)
    # Against the module itself, at a batch of which nobody spoke.
    import torch

    from tests import new_modules

    feed = {
        "image": np.random.default_rng(0).standard_normal((5, 1, 8, 8), np.float32),
        "scale": np.full((5, 1), 2, np.float32),
    }
    with torch.no_grad():
        expected = new_modules.Net().eval()(*map(torch.from_numpy, feed.values()))
    np.testing.assert_allclose(
        answers_of(target, feed)["probabilities"], expected["probabilities"].numpy(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", ["net", "by_name"])
def test_a_function_that_returns_a_module_is_called(name, export):
    # Opset 16: converted from PyTorch's 18.
    done, said, target = export(f"tests.new_modules:{name}", "--target=8.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert said["opset"] == 16 and any("onnx converted it to 16" in note for note in said["files"][0]["notes"])
    assert graph_of(target)[0] == {"image": ["batch", 1, 8, 8], "scale": ["batch", 1]}


def test_dimensions_that_are_named_constants_and_an_output_that_is_an_input(export):
    done, said, target = export("tests.new_modules:rows", "--target=10", "--shapes=rows:3x7x4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert graph_of(target) == (
        {"rows": ["batch", "rows_1", 4]},
        {"output_0": ["batch", 4], "output_1": ["batch", "rows_1", 4]},
    )
    assert said["files"][0]["dimensions"] == {
        "batch": ["rows:0", "output_0:0", "output_1:0"],
        "rows_1": ["rows:1", "output_1:1"],
    }
    # TensorRT 8.5 has no LayerNormalization, and onnx cannot take it apart: it is done here.
    done, said, target = export("tests.new_modules:rows", "--shapes=rows:3x7x4")
    assert done.returncode == 0 and "1 LayerNormalization written with other ops" in done.stdout, (
        done.stdout + done.stderr
    )
    assert said["opset"] == 16 and "LayerNormalization" not in file.overview(str(target)).ops


@pytest.mark.parametrize(
    ("name", "code", "cause", "mend"),
    [
        ("tests.new_modules:nothing", 2, "returns no PyTorch module with inputs", "return (module, inputs)"),
        ("tests.new_modules:fails", 1, "fails: there are no weights", "call it in Python"),
        ("tests.new_modules:missing", 2, "has no attribute 'missing'", "importable from here"),
        ("no_such_module:net", 2, "No module named 'no_such_module'", "importable from here"),
    ],
)
def test_functions_that_give_no_module_are_told_in_a_line(name, code, cause, mend, export):
    done, _, target = export(name)
    assert done.returncode == code and cause in done.stderr.splitlines()[0] and mend in done.stderr.splitlines()[1], (
        done.stderr
    )
    assert len(done.stderr.splitlines()) == 2 and not target.exists()


def test_weights_beside_the_file_fp16_and_a_later_comparison(export, tmp_path):
    path = program(tmp_path)
    data = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    np.savez(data, image=rng.standard_normal((16, 1, 8, 8), np.float32), scale=np.ones((16, 1), np.float32))
    done, said, target = export(path, "--external_data", f"--data={data}", "--target=10")
    assert done.returncode == 0 and pathlib.Path(said["files"][0]["weights"]).name == "out.onnx.data", done.stderr
    assert run_tftrt("verify", path, target, f"--data={data}").returncode == 0
    done, said, _ = export(path, "--precision=FP16", f"--data={data}", "--target=10")
    assert done.returncode == 0 and said["precision"] == "FP16", done.stdout + done.stderr


def test_the_first_tensor_that_departs_is_named(tmp_path):
    import onnx
    from onnx import numpy_helper

    from tftrt_tools.tensorrt.exporting import bisecting, converting, torch_bisect_job, torch_job

    np.savez(tmp_path / "in.npz", image=np.ones((2, 1, 8, 8), np.float32), scale=np.ones((2, 1), np.float32))
    path, frozen = str(tmp_path / "m.onnx"), str(tmp_path / "f")
    request = converting.Request(
        model=str(program(tmp_path)), signature="serving_default", output=path, frozen=frozen, opset=18
    )
    made = torch_job.job(request)
    ask = bisecting.Request(onnx=path, frozen=frozen, renamed=made.renamed, inputs=str(tmp_path / "in.npz"))
    assert torch_bisect_job.job(ask) is None
    model = onnx.load(tmp_path / "m.onnx")
    weights = next(one for one in model.graph.initializer if one.name == "head.weight")
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(1.01), weights.name))
    onnx.save(model, tmp_path / "m.onnx")
    found = torch_bisect_job.job(ask)
    assert found.node.startswith("Gemm") and found.before and found.snr_db < 60


def test_what_is_no_program_of_ours_is_refused(export, tmp_path):
    """Files of the real torch.save: tests of archives without PyTorch are in test_pytorch_programs."""
    import torch

    from tests import new_modules

    module = new_modules.Net().eval()
    torch.save(module, tmp_path / "pickle.pt2")
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    trained = torch.export.export(module.train(), (torch.randn(2, 1, 8, 8), torch.ones(2, 1)))
    torch.export.save(trained, tmp_path / "trained.pt2")
    for name, cause in (
        ("pickle.pt2", "is a pickle"),
        ("weights.pt", "a PyTorch file"),
        ("trained.pt2", "is a module in training: its aten.batch_norm.default"),
    ):
        done, _, target = export(tmp_path / name)
        assert (
            done.returncode == 2 and cause in done.stderr and "Traceback" not in done.stderr and not target.exists()
        ), done.stderr


def test_a_keras_3_file_keeps_its_names(export, tmp_path):
    import keras

    image, extra = keras.Input((8, 8, 1), name="image"), keras.Input((3,), name="extra")
    inner = keras.layers.Flatten()(keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(image)))
    joined = keras.layers.Concatenate()([inner, extra])
    model = keras.Model(
        [image, extra],
        [keras.layers.Dense(5, activation="softmax", name="kind")(joined), keras.layers.Dense(2, name="size")(joined)],
    )
    model.save(tmp_path / "m.keras")
    done, _, target = export(tmp_path / "m.keras", "--target=10")
    assert done.returncode == 0, done.stdout + done.stderr
    inputs, outputs = graph_of(target)
    assert inputs == {"extra": ["batch", 3], "image": ["batch", 8, 8, 1]} and set(outputs) == {"kind", "size"}
    feed = {"image": np.random.default_rng(0).random((3, 8, 8, 1), np.float32), "extra": np.ones((3, 3), np.float32)}
    found, expected = answers_of(target, feed), model.predict([feed["image"], feed["extra"]], verbose=0)
    for name, value in zip(("kind", "size"), expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_a_sequential_of_keras_3_and_what_keras_itself_exports(export, tmp_path):
    import keras

    model = keras.Sequential([keras.Input((4,), name="rows"), keras.layers.Dense(3, name="head")])
    model.save(tmp_path / "m.keras")
    done, _, target = export(tmp_path / "m.keras")
    assert done.returncode == 0 and graph_of(target) == ({"rows": ["batch", 4]}, {"head": ["batch", 3]}), done.stderr
    model.export(str(tmp_path / "saved"), verbose=False)
    done, _, target = export(tmp_path / "saved")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        list(answers_of(target, {"rows": np.ones((2, 4), np.float32)}).values())[0],
        model.predict(np.ones((2, 4)), verbose=0),
        rtol=1e-5,
    )


def test_a_saved_model_of_this_tensorflow(export, tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.weights = tf.Variable(tf.ones((4, 3)))
    module.function = tf.function(
        lambda rows, ids: {"scores": tf.nn.softmax(rows @ module.weights), "next": ids + 1},
        input_signature=[tf.TensorSpec((None, 4), tf.float32, "rows"), tf.TensorSpec((None,), tf.int32, "ids")],
    )
    tf.saved_model.save(module, str(tmp_path / "saved"), {"serving_default": module.function})
    done, said, target = export(tmp_path / "saved")
    assert done.returncode == 0 and said["files"][0]["verification"]["runtimes"]["original"].startswith(
        f"TensorFlow {tf.__version__}"
    ), done.stderr
    assert graph_of(target)[0] == {"ids": ["batch"], "rows": ["batch", 4]}


def test_the_newest_releases_were_tested():
    """For the record: which ones these were."""
    import keras
    import tensorflow as tf
    import torch

    print(
        f"Python {sys.version.split()[0]}, TensorFlow {tf.__version__}, Keras {keras.__version__}, PyTorch {torch.__version__}"
    )
    assert sys.version_info >= (3, 12) and keras.__version__.startswith("3.")
