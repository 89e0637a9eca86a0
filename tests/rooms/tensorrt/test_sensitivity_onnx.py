"""`tftrt sensitivity` of ONNX files: nodes rounded one by one as the export writes it, the suggestion and what it is checked against."""

import json
import shlex

import numpy as np
import onnx
import pytest
from onnx import helper

import saved_models
from tests import onnx_files, plan_recordings
from tests.command_line import assert_clear
from tests.gpu_commands import NO_GPU
from tftrt_tools.accuracy.sensitivity import Options
from tftrt_tools.base import errors
from tftrt_tools.tensorrt.exporting import sensitivity, sensitivity_job
from tftrt_tools.tensorrt.exporting.job import half, onnx_ranges, placement, qdq

RNG = np.random.default_rng(5)


def spread(path):
    """x [rows, 8] through three products; one column of what enters the second is 3000 times as large as the others, and counts as much."""
    first, second = RNG.normal(size=(8, 8)), RNG.normal(size=(8, 8))
    first[:, 0] *= 3000
    second[0] /= 3000
    constants = {"w1": first, "w2": second, "w3": RNG.normal(size=(8, 4))}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="wide"),
        helper.make_node("MatMul", ["a", "w2"], ["b"], name="of, spread"),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("MatMul", ["c", "w3"], ["y"], name="last"),
    ]
    return onnx_files.write(
        path,
        nodes,
        onnx_files.values(("x", "float32", ("batch", 8))),
        onnx_files.values(("y", "float32", ("batch", 4))),
        {name: value.astype(np.float32) for name, value in constants.items()},
        opset=16,
    )


def offset(path):
    """x [rows, 4] plus 2000 minus 2000, times two, and a tanh: FP16 keeps only halves of what lies between."""
    constants = {"large": np.full(4, 2000, np.float32), "two": np.full(4, 2, np.float32)}
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["a"], name="fine"),
        helper.make_node("Add", ["a", "large"], ["b"], name="up"),
        helper.make_node("Sub", ["b", "large"], ["c"], name="down"),
        helper.make_node("Tanh", ["c"], ["d"], name="tanh"),
        helper.make_node("Mul", ["d", "two"], ["e"], name="again"),
        helper.make_node("Sigmoid", ["e"], ["y"], name="sigmoid"),
    ]
    return onnx_files.write(
        path,
        nodes,
        onnx_files.values(("x", "float32", ("batch", 4))),
        onnx_files.values(("y", "float32", ("batch", 4))),
        constants,
        opset=16,
    )


def rows(path, columns):
    np.savez(path, x=RNG.normal(size=(96, columns)).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture(scope="module")
def int8(folder, tftrt):
    """(the command's output, its JSON, the model, the rows) in INT8."""
    model, data = spread(folder / "spread.onnx"), rows(folder / "x.npz", 8)
    done = tftrt(
        "sensitivity",
        model,
        f"--data={data}",
        "--calibration_method=max",
        f"--json={folder / 'a.json'}",
        f"--html={folder / 'a.html'}",
        f"--plot={folder / 'a.png'}",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "a.json").read_text()), model, data


def test_the_node_whose_input_is_badly_spread_comes_out_on_top_and_is_suggested(int8, folder):
    printed, found, *_ = int8
    (signature,) = found["signatures"]
    assert [node["name"] for node in signature["nodes"]][0] == "of, spread" and signature["nodes"][0]["share"] > 0.9
    assert signature["nodes"][0]["snr_db"] < 5 < 25 < signature["nodes"][1]["snr_db"] and signature["rows"] == 96
    # The bounds of verify are missed with everything in INT8, and kept by the suggestion.
    assert signature["total"][0]["missed"] and not signature["kept"][0]["effects"][0]["missed"] and not found["missed"]
    # A comma would end an expression of --fp32_nodes.
    assert (
        found["flag"] == r"--fp32_nodes='of.\ spread'"
        and found["of_onnx"]
        and signature["suggested_nodes"] == ["of, spread"]
    )
    assert (
        r"suggestion: --fp32_nodes='of.\ spread' (flags of `tftrt export`)" in printed
        and "evidence: simulated in ONNX Runtime on the CPU" in printed
    )
    assert "engine" not in printed.split("rank", 1)[1].splitlines()[0]
    assert "of, spread" in (folder / "a.html").read_text() and (folder / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_kept_is_rounded_as_the_export_rounds_with_that_flag(int8):
    """Of the suggestion's effect: the graph that `tftrt export --fp32_nodes` would write, run by itself."""
    _, found, path, data = int8
    model, x = onnx.shape_inference.infer_shapes(onnx.load(path)), np.load(data)["x"]
    placed = placement.place(model, {"of, spread"})
    assert [site.node for site in placed.sites] == ["wide", "last"]
    inner = onnx_ranges.Session(model, ["c"]).run({"x": x})
    scales = {"x": np.abs(x).max() / 127, "c": np.abs(inner["c"]).max() / 127}
    wrong = (
        onnx_ranges.Session(qdq.with_rounding(model, placed, scales), optimized=False).run({"x": x})["y"] - inner["y"]
    )
    level = 10 * np.log10(np.square(inner["y"]).sum() / np.square(wrong).sum())
    assert found["signatures"][0]["kept"][0]["snr_db"] == pytest.approx(level, abs=0.5)


def test_every_method_is_compared_and_nodes_can_be_chosen(int8, tftrt, folder):
    _, found, model, data = int8
    assert {one["method"] for one in found["signatures"][0]["methods"]} == {"entropy", "percentile 99.99", "mse", "max"}
    assert found["signatures"][0]["method"] == "max" and found["ranges"].startswith("by max of the scored data itself")
    done = tftrt("sensitivity", model, f"--data={data}", "--nodes=last|wide", f"--json={folder / 'b.json'}")
    (signature,) = json.loads((folder / "b.json").read_text())["signatures"]
    assert (
        done.returncode == 0
        and {node["name"] for node in signature["nodes"]} == {"last", "wide"}
        and signature["other_nodes"] == 1
    )
    assert signature["method"] in ("entropy", "percentile 99.99", "mse", "max")
    kept = tftrt(
        "sensitivity",
        model,
        f"--data={data}",
        "--fp32_nodes=of, spread",
        "--calibration_method=max",
        f"--json={folder / 'c.json'}",
    )
    found = json.loads((folder / "c.json").read_text())
    assert kept.returncode == 0 and len(found["signatures"][0]["nodes"]) == 2 and not found["missed"], kept.stderr


def test_ranges_of_a_table(int8, tftrt, folder):
    _, _, model, data = int8
    (folder / "t.cache").write_text("TRT-8503-EntropyCalibration2\nx: 3cd00000\nc: 3e000000\n")
    done = tftrt(
        "sensitivity",
        model,
        f"--data={data}",
        f"--calibration_table={folder / 't.cache'}",
        f"--json={folder / 't.json'}",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "t.json").read_text())
    assert found["ranges"] == f"of {folder / 't.cache'}" and found["signatures"][0]["unrounded"] == ["of, spread"]
    assert {node["name"] for node in found["signatures"][0]["nodes"]} == {"wide", "last"} and not found["better_method"]


def test_fp16_names_the_nodes_between_which_numbers_are_too_large(tftrt, folder):
    model, data = offset(folder / "offset.onnx"), rows(folder / "o.npz", 4)
    done = tftrt("sensitivity", model, f"--data={data}", "--precision=FP16", f"--json={folder / 'f.json'}")
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "f.json").read_text())
    (signature,) = found["signatures"]
    assert {node["name"] for node in signature["nodes"][:2]} == {"up", "down"} and signature["nodes"][1][
        "snr_db"
    ] + 20 < signature["nodes"][2]["snr_db"]
    assert (
        set(signature["suggested_nodes"]) == {"up", "down"}
        and found["flag"].startswith("--fp32_nodes='")
        and not found["missed"]
    )
    kept = next(one for one in signature["kept"] if one["nodes"] == 2)
    assert kept["snr_db"] > signature["snr_db"] + 20 and signature["method"] == "" and signature["methods"] == []
    # The same as the file that `tftrt export` judges with these nodes kept.
    judged = half.convert(onnx.shape_inference.infer_shapes(onnx.load(model)), {"up", "down"}, {}, simulated=True).model
    x = np.load(data)["x"]
    plain, rounded = (onnx_ranges.Session(one).run({"x": x})["y"] for one in (onnx.load(model), judged))
    assert kept["snr_db"] == pytest.approx(
        10 * np.log10(np.square(plain).sum() / np.square(rounded - plain).sum()), abs=0.1
    )


def test_a_plan_directory_is_studied_by_its_file(int8, tmp_path, tftrt):
    _, _, model, data = int8
    folder = plan_recordings.directory(tmp_path / "plan")
    (folder / "model.onnx").write_bytes(open(model, "rb").read())
    done = tftrt("sensitivity", folder, f"--data={data}", "--calibration_method=max", env=NO_GPU)
    assert done.returncode == 0 and "suggestion: --fp32_nodes=" in done.stdout, done.stderr
    (folder / "plan.json").unlink()
    assert_clear(tftrt("sensitivity", folder, f"--data={data}"), 2, "is no whole plan directory")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--data is missing"),
        (("--data=DATA", "--measure=gpu"), "--measure=gpu builds engines of TF-TRT"),
        (("--data=DATA", "--high_precision_nodes=a"), "--high_precision_nodes has no effect"),
        (("--data=DATA", "--use_dynamic_shape"), "--use_dynamic_shape has no effect"),
        (("--data=DATA", "--calibrator=tensorrt"), "--calibrator has no effect"),
        (("--data=DATA", "--precision=FP32"), "rounds nothing"),
        (("--data=DATA", "--nodes=gone"), "--nodes=gone matches none of the 3 nodes that INT8 rounds"),
        (("--data=DATA", "--fp32_nodes=gone"), "--fp32_nodes=gone matches no node"),
        (("--data=DATA", "--precision=FP16", "--calibration_method=max"), "no effect"),
        (("--data=gone.npz",), "gone.npz"),
    ],
)
def test_what_cannot_be_studied_is_one_line(int8, tftrt, words, says):
    _, _, model, data = int8
    done = tftrt("sensitivity", model, *(word.replace("DATA", str(data)) for word in words))
    assert done.returncode in (1, 2) and says in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_file_with_a_precision_or_without_floats_is_refused(tmp_path, folder):
    data = rows(tmp_path / "q.npz", 64)
    asked = sensitivity.Asked(precision="INT8")
    with pytest.raises(errors.UsageError, match="has a precision written in already"):
        sensitivity.study(onnx_files.quantized(tmp_path / "q.onnx"), asked, Options(data=str(data)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("ArgMax", ["a"], ["y"], axis=1, keepdims=0),
    ]
    path = onnx_files.write(
        tmp_path / "ids.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("batch", 64))),
        onnx_files.values(("y", "int64", ("batch",))),
        {"w": np.ones((64, 3), np.float32)},
    )
    with pytest.raises(errors.TftrtError, match="no float32 output"):
        sensitivity.study(path, asked, Options(data=str(data)))
    nothing = onnx_files.write(
        tmp_path / "none.onnx",
        [helper.make_node("Relu", ["x"], ["y"], name="relu")],
        onnx_files.values(("x", "float32", ("batch", 64))),
        onnx_files.values(("y", "float32", ("batch", 64))),
    )
    with pytest.raises(errors.TftrtError, match="no node of the file can be in INT8$"):
        sensitivity.study(nothing, asked, Options(data=str(data)))
    nodes = [
        helper.make_node("MatMul", ["x", "t"], ["a"], name="both"),
        helper.make_node("CumSum", ["a", "axis"], ["y"], name="sums"),
    ]
    exact = onnx_files.write(
        tmp_path / "exact.onnx",
        [helper.make_node("Transpose", ["x"], ["t"], name="turn"), *nodes],
        onnx_files.values(("x", "float32", ("n", 64))),
        onnx_files.values(("y", "float32", ("n", "n"))),
        {"axis": np.array(0)},
    )
    with pytest.raises(errors.TftrtError, match="INT8 .both: both its inputs are computed"):
        sensitivity.study(exact, asked, Options(data=str(data)))
    fp16 = sensitivity.Asked(precision="FP16", fp32_nodes=("turn", "both"))
    with pytest.raises(errors.TftrtError, match="FP16 .turn: --fp32_nodes names it"):
        sensitivity.study(exact, fp16, Options(data=str(data)))


def test_a_sum_whose_other_side_changes_has_a_range_all_the_same():
    ones = ",".join(["1"] * 16)
    model = onnx.shape_inference.infer_shapes(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 16]> g (float[1,4,2,2] x) => (float[1,4,2,2] y) <float[4,4,1,1] w = {'
            + ones
            + "}> { a = Conv(x, w) b = Conv(a, w) y = Add(a, b) }"
        )
    )
    placed = placement.place(model, frozenset())
    assert set(placed.tensors) <= set(sensitivity_job._ranged(model, placed)) and {"a", "b"} <= set(
        sensitivity_job._ranged(model, placed)
    )


def test_the_suggestion_for_an_exported_model_names_the_next_export(zoo_model, tftrt, tmp_path):
    images, _ = saved_models.builder("digits_cnn").held_back()
    np.savez(tmp_path / "held_back.npz", image=images[:64])
    data = f"--data={tmp_path / 'held_back.npz'}"
    source = tmp_path / "digits_cnn"
    source.symlink_to(zoo_model("digits_cnn"))
    assert tftrt("export", source, f"--output={tmp_path / 'digits.onnx'}", data).returncode == 0
    done = tftrt("sensitivity", tmp_path / "digits.onnx", data, "--calibration_method=max", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("next: "))
    assert (
        line.startswith("next: tftrt export digits_cnn --output=digits_cnn_int8.onnx --precision=INT8 --data=")
        and "--calibration_method=" in line
    )
    # What it suggests, if anything, is a flag that the export takes.
    again = tftrt(*shlex.split(line.removeprefix("next: tftrt ")), cwd=tmp_path)
    assert again.returncode == 0 and (tmp_path / "digits_cnn_int8.onnx").is_file(), again.stdout + again.stderr
