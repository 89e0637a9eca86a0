"""Models on disk of several kinds: an ONNX file beside a SavedModel, and a fourth kind that tests bring: NumPy's own arrays."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import matrix_kind, onnx_files
from tftrt_tools.accuracy import thresholds, verify
from tftrt_tools.base import errors
from tftrt_tools.command_line import cli
from tftrt_tools.models.kinds import names, opening, table
from tftrt_tools.models.kinds.onnx.kind import ONNX

WEIGHTS = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    """The path of a matrix, with its kind in the table."""
    monkeypatch.setattr(table, "KINDS", (matrix_kind.Weights(), *table.KINDS))
    np.savez(tmp_path / "m.matrix.npz", w=WEIGHTS)
    return str(tmp_path / "m.matrix.npz")


@pytest.fixture
def graph(tmp_path):
    """A function that writes an ONNX file with the product of rows and a matrix. Returns: its path."""

    def write(
        weights=WEIGHTS, inputs=("x:0",), shape=("n", 3), dtype=TensorProto.FLOAT, outputs=("Identity",), name="m.onnx"
    ):
        values = [helper.make_tensor_value_info(one, dtype, list(shape)) for one in inputs]
        given = [helper.make_tensor_value_info(one, TensorProto.FLOAT, None) for one in outputs]
        nodes = [helper.make_node("Cast", [inputs[0]], ["cast"], to=TensorProto.FLOAT)]
        nodes += [helper.make_node("MatMul", ["cast", "w"], [one]) for one in outputs]
        made = helper.make_graph(nodes, "g", values, given, [numpy_helper.from_array(weights, "w")])
        onnx.save(
            helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="by hand"),
            tmp_path / name,
        )
        return str(tmp_path / name)

    return write


def test_a_kind_of_the_tests_own_is_verified_against_an_onnx_file(matrix, graph):
    done = verify.verify(graph(), matrix, verify.Options())
    assert done.passed and done.arithmetic == "FP32" and done.mode == "cpu"
    assert done.runtimes["converted"].startswith("NumPy ") and done.runtimes["original"].startswith("ONNX Runtime ")
    assert [text.split(" of ")[0] for text in done.matched] == ["input 'x:0'", "output 'Identity'"]
    other = verify.verify(matrix, graph(2 * WEIGHTS), verify.Options())
    assert not other.passed and "snr_db" in other.problems[0]


def test_the_report_tells_of_each_what_its_kind_tells(matrix, graph, tmp_path):
    assert cli.main(["verify", graph(), matrix, f"--html={tmp_path / 'page.html'}"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "B with 2 ops; opset ai.onnx 13; producer by hand; ran in ONNX Runtime" in page
    assert (
        "matrix of 0 B with 1 op; ran in NumPy" in page and "<th>matched</th>" in page and "conversion</th>" not in page
    )


def test_tune_refuses_what_is_not_converted_before_anything_else(matrix, graph, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--data=rows.npz", "--shapes=x:1x3", "--accuracy=snr_db:threshold=20", "--work_dir=none"]
    for model, why in (
        (matrix, "cannot be converted (matrix): a matrix is no TensorFlow model"),
        (graph(), "m.onnx: it is an ONNX file, and TF-TRT takes TensorFlow models"),
    ):
        assert cli.main(["tune", model, "--backend=tftrt", *flags]) == 2
        cause, mend = capsys.readouterr().err.splitlines()
        assert why in cause and mend.strip().startswith(("give ", "--backend=tensorrt searches"))
    assert not (tmp_path / "none").exists()


def test_what_can_be_converted_is_named_without_them(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"?")
    with pytest.raises(errors.UsageError) as caught:
        opening.check(tmp_path / "model.bin", to_convert=True)
    assert caught.value.mend.endswith("a frozen graph (.pb) or a checkpoint") and "ONNX" not in caught.value.mend


def test_it_is_benched_and_compared_in_process(matrix, graph, tmp_path):
    found = tmp_path / "bench.json"
    assert (
        cli.main(
            [
                "bench",
                f"--in_process={matrix}",
                f"--original={graph()}",
                "--duration_seconds=1",
                "--warmup_seconds=0.1",
                f"--json={found}",
                f"--html={tmp_path / 'bench.html'}",
            ]
        )
        == 0
    )
    assert json.loads(found.read_text())["rows"][0]["answered"] > 0
    assert "matrix of 0 B with 1 op" in (tmp_path / "bench.html").read_text()
    found = tmp_path / "regress.json"
    # Which of the two is the faster is not the question here.
    cli.main(
        [
            "regress",
            "--in_process",
            f"--native={graph()}",
            f"--candidate={matrix}",
            "--rounds=12",
            "--max_rounds=12",
            "--allow_worse",
            f"--json={found}",
            f"--html={tmp_path / 'regress.html'}",
        ]
    )
    page = (tmp_path / "regress.html").read_text()
    assert "matrix" in page and "producer by hand" in page
    said = json.loads(found.read_text())
    assert said["failed"] == {"native": 0, "candidate": 0} and said["answers"]["problems"] == []


def test_an_original_of_other_shapes_is_refused(matrix, graph, capsys, tmp_path):
    code = cli.main(
        [
            "bench",
            f"--in_process={matrix}",
            f"--original={graph(shape=(2, 3))}",
            "--duration_seconds=1",
            f"--json={tmp_path / 'b.json'}",
        ]
    )
    cause, mend = capsys.readouterr().err.splitlines()[-2:]
    assert code == 2 and cause.endswith(
        "m.onnx: its input 'rows' is float32[2,3], and the model is asked with [1,3]"
    ), cause
    assert "give the model that was converted" in mend and not (tmp_path / "b.json").exists()


def test_it_is_inspected_by_what_its_kind_says(matrix, capsys):
    assert cli.main(["inspect", matrix]) == 0
    said = capsys.readouterr().out
    assert "rows float32[?,3]" in said and "opset" not in said and "not told: what it is for" in said


def test_an_onnx_file_answers_like_the_saved_model_that_it_was_made_from(graph, tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.w = tf.Variable(WEIGHTS)
    answer = tf.function(lambda x: {"y": x @ module.w}, input_signature=[tf.TensorSpec((None, 3), tf.float32, "x")])
    tf.saved_model.save(module, str(tmp_path / "saved"), {"serving_default": answer})
    # Exported for one batch size: calls have that.
    done = verify.verify(tmp_path / "saved", graph(shape=(1, 3)), verify.Options())
    assert done.passed and done.shapes == ("serving_default(x 1x3)",) and len(done.matched) == 2
    assert not (tmp_path / "m.onnx" / "assets.extra").exists()


def test_names_that_are_not_certain_are_asked_for(matrix, graph):
    two = graph(inputs=("a", "b"), name="two.onnx")
    with pytest.raises(errors.UsageError, match="which input is which.*rows float32.*a float32.*b float32") as caught:
        verify.verify(matrix, two, verify.Options())
    assert "--rename=rows=a" in caught.value.mend
    with pytest.raises(errors.UsageError, match="no input or output 'c'"):
        verify.verify(matrix, two, verify.Options(rename=("rows=c",)))
    with opening.opened(matrix, two) as models:
        assert names.match(*models, said={"rows": "b"}).names["serving_default"].inputs == {"rows": "b"}


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"dtype": TensorProto.INT64}, "became int64, it was float32"),
        ({"shape": ("n", 3, 3)}, r"became float32\[\?,3,3\], it was float32"),
    ],
)
def test_another_dtype_or_rank_is_named(matrix, graph, changed, said):
    with pytest.raises(errors.CheckFailed, match=said):
        verify.verify(matrix, graph(**changed), verify.Options())


def test_onnx_files_that_cannot_be_loaded_are_told_in_a_line(tmp_path, graph, monkeypatch):
    (tmp_path / "bad.onnx").write_bytes(b"no graph")
    with pytest.raises(errors.TftrtError, match="bad.onnx is no ONNX file"):
        verify.verify(graph(), tmp_path / "bad.onnx", verify.Options())
    with pytest.raises(errors.UsageError, match="no such file"):
        verify.verify(graph(), tmp_path / "none.onnx", verify.Options())
    (tmp_path / "model.bin").write_bytes(b"?")
    with pytest.raises(errors.UsageError, match="model.bin is a file of no kind taken here") as caught:
        verify.verify(tmp_path / "model.bin", graph(), verify.Options())
    assert caught.value.mend == (
        "give a SavedModel directory, a Keras file (.keras, .h5), a frozen graph (.pb), a checkpoint, a PyTorch "
        "program (.pt2), a function that returns a PyTorch module (module:function), a plan directory or an ONNX "
        "file (.onnx)"
    )
    (tmp_path / "net.keras").write_bytes(b"?")
    with pytest.raises(errors.UsageError, match=r"net\.keras is a Keras file") as caught:
        verify.verify(graph(), tmp_path / "net.keras", verify.Options())
    assert "tftrt convert" in caught.value.mend
    with pytest.raises(errors.UsageError, match="model.bin is a file") as caught:
        verify.verify(graph(), tmp_path / "model.bin", verify.Options())
    assert (
        caught.value.mend
        == "give a SavedModel directory, a PyTorch program (.pt2), a plan directory or an ONNX file (.onnx)"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(errors.TftrtError, match="not installed") as caught:
        opening.check(graph())
    assert "pip install onnxruntime" in caught.value.mend


@pytest.mark.parametrize(
    ("written", "key"), [("FP16", "FP16"), ("INT8", "INT8"), ("", "FP32"), ("FP8", "FP32"), ("fp16", "FP32")]
)
def test_the_arithmetic_of_an_onnx_file_is_one_that_has_bounds(written, key, tmp_path):
    file = onnx_files.product(tmp_path / "m.onnx", properties={"tftrt.precision": written})
    assert ONNX.arithmetic(file).key == key and key in thresholds.DEFAULTS


@pytest.mark.parametrize(("halves", "key"), [(3, "FP32"), (40, "FP16")])
def test_the_weights_of_an_onnx_file_tell_its_arithmetic_if_most_are_of_it(halves, key, tmp_path):
    nodes = [
        helper.make_node("Cast", ["half"], ["whole"], to=1),
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["whole"], ["s"]),
        helper.make_node("Add", ["a", "s"], ["y"]),
    ]
    ends = [onnx_files.values((name, "float32", ("batch", 4))) for name in "xy"]
    file = onnx_files.write(
        tmp_path / "m.onnx", nodes, *ends, {"half": np.ones(halves, np.float16), "w": np.ones((5, 4), np.float32)}
    )
    assert ONNX.arithmetic(file).key == key
