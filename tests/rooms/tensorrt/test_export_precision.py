"""`tftrt export --precision`: where INT8 is put into a graph and with which scales, what FP16 leaves in FP32, and bad input."""

import json

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper, parser, shape_inference

import saved_models
from benchmarks import _shared_weights
from tests import command_here, onnx_sources, stacks
from tftrt_tools.base import errors
from tftrt_tools.command_line import cli
from tftrt_tools.models.kinds.onnx import file
from tftrt_tools.tensorrt.exporting import precision
from tftrt_tools.tensorrt.exporting.job import half, onnx_ranges, placement, qdq, tables
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.calibration import table


@pytest.fixture(autouse=True, scope="module")
def more_children():
    """An export asks for more children than other commands: none is started anew for the next test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command_here, "_KEPT", 8)
        yield


@pytest.fixture(scope="session")
def digits_data(tmp_path_factory):
    """(training.npz, held_back.npz, labels.npy) of the digits CNN."""
    folder, builder = tmp_path_factory.mktemp("digits"), saved_models.builder("digits_cnn")
    images, labels = builder.held_back()
    np.savez(folder / "training.npz", image=builder.training_images()[0][:256])
    np.savez(folder / "held_back.npz", image=images)
    np.save(folder / "labels.npy", labels)
    return folder / "training.npz", folder / "held_back.npz", folder / "labels.npy"


def written(path):
    """(the record of the only file of an export, its Written)."""
    (made,) = json.loads(path.read_text())["files"]
    return made, made["precision"]


def constants(model):
    return {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}


def test_int8_of_a_trained_model_keeps_its_accuracy(zoo_model, tftrt, digits_data, tmp_path):
    training, held_back, labels = digits_data
    target, ranges = tmp_path / "int8.onnx", tmp_path / "ranges.json"
    done = tftrt(
        "export",
        zoo_model("digits_cnn"),
        f"--output={target}",
        "--precision=INT8",
        f"--calibration_data={training}",
        f"--data={held_back}",
        f"--labels={labels}",
        f"--output_table={ranges}",
        f"--json={tmp_path / 'j.json'}",
    )
    assert (
        done.returncode == 0 and "in INT8: 2 Conv, 2 MatMul" in done.stdout and "accuracy on 400 labels" in done.stdout
    ), done.stdout
    made, said = written(tmp_path / "j.json")
    judged = said["verification"]
    assert judged["arithmetic"] == "INT8" and judged["bounds"]["serving_default/probabilities"]["snr_db"] == 15
    # The check in FP32 is there, too, by its own bounds.
    assert made["verification"]["bounds"]["serving_default/probabilities"]["snr_db"] == 60
    accuracy = judged["accuracy"]
    assert accuracy["original"] > 0.98 and accuracy["converted"] >= accuracy["original"] - 0.005
    # So is the file later, too, and by its own account.
    again = tftrt("verify", zoo_model("digits_cnn"), target, f"--data={held_back}", f"--json={tmp_path / 'v.json'}")
    assert again.returncode == 0 and json.loads((tmp_path / "v.json").read_text())["arithmetic"] == "INT8", again.stdout
    # The simulation that chose the method, and a run of the file that was written.
    assert (
        set(said["comparison"]["worst_db"]) == {"entropy", "percentile 99.99", "mse", "max"}
        and said["method"] == said["comparison"]["taken"]
    )
    model = onnx.load(target)
    assert [one.type.tensor_type.elem_type for one in (*model.graph.input, *model.graph.output)] == [
        onnx.TensorProto.FLOAT
    ] * 2
    rounded = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(rounded) == 8 and sum(node.op_type == "DequantizeLinear" for node in model.graph.node) == 8
    values = constants(model)
    for node in rounded:
        scale, zero = values[node.input[1]], values[node.input[2]]
        assert zero.dtype == np.int8 and not zero.any() and zero.shape == scale.shape and (scale > 0).all()
    # A scale for each output channel of the weights: 16, 32, 64 and 10 of them.
    assert sorted(values[node.input[1]].size for node in rounded if node.input[0] in values) == sorted(
        values[node.input[0]].shape[node.attribute[0].i] for node in rounded if node.input[0] in values
    )
    assert file.overview(str(target)).facts["tftrt.precision"] == "INT8"
    # The table has all tensors, by their names in the graph; with it the same file comes out.
    kept = calibration_file.read(ranges)
    scales = kept.engines[0].table.scales
    assert len(scales) > len(said["ranges"]) and all(
        scales[name] * 127 == pytest.approx(most, rel=1e-6) for name, most in said["ranges"].items()
    )
    again = tmp_path / "again.onnx"
    done = tftrt(
        "export",
        zoo_model("digits_cnn"),
        f"--output={again}",
        "--precision=INT8",
        f"--calibration_table={ranges}",
        f"--data={held_back}",
    )
    assert done.returncode == 0, done.stderr
    same, first = constants(onnx.load(again)), values
    assert set(same) == set(first) and all(np.allclose(same[name], first[name], rtol=1e-6) for name in first)


def test_the_table_of_a_tf_trt_model_gives_the_same_ranges(zoo_model, tftrt, digits_data, tmp_path):
    training, held_back, _ = digits_data
    common = (f"--calibration_data={training}", "--calibration_method=max")
    ranges = tmp_path / "trt.json"
    assert tftrt("calibrate", zoo_model("digits_cnn"), *common, f"--output={ranges}").returncode == 0
    said = []
    for name, flags in (("table", [f"--calibration_table={ranges}"]), ("data", common)):
        done = tftrt(
            "export",
            zoo_model("digits_cnn"),
            f"--output={tmp_path / name}.onnx",
            "--precision=INT8",
            *flags,
            f"--data={held_back}",
            f"--json={tmp_path / 'j.json'}",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(written(tmp_path / "j.json")[1])
    assert said[0]["method"] == "table" and [one["precision"] for one in said[0]["nodes"]] == ["INT8"] * 4
    # With data the last layer may be left out, because INT8 costs most just there.
    assert len(said[0]["ranges"]) == 4 and len(said[1]["ranges"]) >= 3
    assert {tensor: said[0]["ranges"][tensor] for tensor in said[1]["ranges"]} == pytest.approx(
        said[1]["ranges"], rel=1e-5
    )


# Nodes of the digits CNN; tf2onnx gives the first convolution of Keras 3 a name of its own.
CONVOLUTION = ".*/conv2_1/.*" if stacks.SAVED_INPUT else ".*/conv1/.*"
HIDDEN, LAST = (
    (".*/hidden_1/.*", ".*/probabilities_1/MatMul")
    if stacks.SAVED_INPUT
    else (".*/hidden/.*", ".*/probabilities/MatMul")
)


def test_nodes_that_the_user_names_and_answers_that_are_wrong(zoo_model, tftrt, digits_data, tmp_path):
    training, held_back, _ = digits_data
    common = (
        f"--output={tmp_path / 'm.onnx'}",
        "--precision=INT8",
        f"--calibration_data={training}",
        f"--data={held_back}",
        f"--json={tmp_path / 'j.json'}",
    )
    done = tftrt("export", zoo_model("digits_cnn"), *common, f"--fp32_nodes={CONVOLUTION},{LAST}")
    assert done.returncode == 0, done.stderr
    _, said = written(tmp_path / "j.json")
    assert [(one["precision"], one["reason"]) for one in said["nodes"]] == [("INT8", "")] * 2 + [
        ("FP32", "--fp32_nodes names it")
    ] * 2
    (tmp_path / "m.onnx").unlink()
    done = tftrt(
        "export", zoo_model("digits_cnn"), *common, "--thresholds=snr_db>=110", f"--output_table={tmp_path / 't.json'}"
    )
    assert (
        done.returncode == 3
        and "failed: serving_default/probabilities: snr_db is" in done.stdout
        and "nothing was written" in done.stdout
    )
    assert [one.name for one in tmp_path.iterdir()] == ["j.json"]


def graph(text, **values):
    """A model of opset 16 from ONNX's text form, with constants. The shapes are inferred."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 16]>\n{text}')
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items()
    )
    return shape_inference.infer_shapes(model, check_type=True, data_prop=True)


RNG = np.random.default_rng(7)
W = RNG.normal(size=(4, 4, 1, 1))
PLACES = [
    # A residual: the other side of the addition, not the convolution's.
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w) b = Relu(a) c = Conv(b, w) d = Add(c, b) y = Relu(d) }",
        {"Conv_0": ["x"], "Conv_2": ["b"], "Add_3": ["b"]},
        {},
    ),
    # Two convolutions: the later one stays whole, whichever side it is on.
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w) c = Conv(x, w) y = Add(c, a) }",
        {"Conv_0": ["x"], "Conv_1": ["x"], "Add_2": ["a"]},
        {},
    ),
    # Something else reads the convolution's result, too: nothing can be one kernel.
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y, float[N,4,8,8] c) { b = Relu(x) c = Conv(b, w) y = Add(c, b) }",
        {"Conv_1": ["b"]},
        {},
    ),
    # What element-wise nodes read beside a convolution is rounded for them, too, where all that comes of it is rounded.
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w) b = Conv(a, w) s = Sigmoid(b) d = Add(a, s) y = Conv(d, w) }",
        {"Conv_0": ["x"], "Conv_1": ["a"], "Add_3": ["a"], "Conv_4": ["d"]},
        {},
    ),
    (
        "g (float[N,4] x) => (float[N,4] y) { a = MatMul(x, m) b = Add(a, k4) r = Relu(b) c = MatMul(r, m) s = Tanh(c) d = Mul(r, s) t = Flatten(d) "
        "y = MatMul(t, m) }",
        {"MatMul_0": ["x"], "MatMul_3": ["r"], "Mul_5": ["r"], "MatMul_7": ["t"]},
        {},
    ),
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w) b = Conv(a, w) s = Sigmoid(b) y = Add(a, s) }",
        {"Conv_0": ["x"], "Conv_1": ["a"]},
        {},
    ),
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y, float[N,4,8,8] d) { a = Conv(x, w) b = Conv(a, w) s = Sigmoid(b) d = Add(a, s) y = Conv(d, w) }",
        {"Conv_0": ["x"], "Conv_1": ["a"], "Conv_4": ["d"]},
        {},
    ),
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w) b = Conv(a, w) s = Softmax(a) d = Mul(b, s) y = Conv(d, w) }",
        {"Conv_0": ["x"], "Conv_1": ["a"], "Conv_4": ["d"]},
        {},
    ),
    # No other convolution reads it: nothing has to be rounded by a kernel of its own.
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w) s = Sigmoid(a) d = Mul(a, s) y = Conv(d, w) }",
        {"Conv_0": ["x"], "Conv_3": ["d"]},
        {},
    ),
    # A bias and a broadcast are no residual; open sizes may be equal.
    (
        "g (float[N,4,H,8] x, float[N,4,I,8] s) => (float[N,4,8,8] y) { a = Conv(x, w) y = Add(a, s) }",
        {"Conv_0": ["x"], "Add_1": ["s"]},
        {},
    ),
    (
        "g (float[N,4,H,8] x, float[N,4,1,8] s) => (float[N,4,H,8] y) { a = Conv(x, w) y = Add(a, s) }",
        {"Conv_0": ["x"]},
        {},
    ),
    (
        "g (float[N,4,8,8] x, float[1,4,1,1] s) => (float[N,4,8,8] y) { a = Conv(x, w) b = Add(a, k) y = Add(b, s) }",
        {"Conv_0": ["x"]},
        {},
    ),
    # An average counts where what follows is in INT8.
    (
        "g (float[N,4,8,8] x) => (float[N,4] y) { a = Conv(x, w) p = GlobalAveragePool(a) f = Flatten(p) y = MatMul(f, m) }",
        {"Conv_0": ["x"], "GlobalAveragePool_1": ["a"], "MatMul_3": ["f"]},
        {},
    ),
    (
        "g (float[N,4,8,8] x) => (float[N,4,1,1] y) { a = Conv(x, w) y = GlobalAveragePool(a) }",
        {"Conv_0": ["x"]},
        {"GlobalAveragePool_1": "its result is an output"},
    ),
    (
        "g (float[N,4,8,8] x) => (float[N,4,1,1] y) { p = GlobalAveragePool(x) y = Softmax(p) }",
        {},
        {"GlobalAveragePool_0": "Softmax Softmax_1 behind it is not in INT8"},
    ),
    # Products.
    (
        "g (float[N,4] x) => (float[N,4] y) { a = MatMul(x, m) y = Gemm <transB: int = 1> (a, m) }",
        {"MatMul_0": ["x"], "Gemm_1": ["a"]},
        {},
    ),
    (
        "g (float[N,4,4] x) => (float[N,4,4] y) { a = MatMul(x, x) b = MatMul(m, a) y = MatMul(b, n) }",
        {},
        {
            "MatMul_0": "both its inputs are computed",
            "MatMul_1": "its weights are the first input",
            "MatMul_2": "its weights have 3 dimensions",
        },
    ),
    (
        "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = ConvTranspose(x, w) y = ConvTranspose <group: int = 4> (a, v) }",
        {"ConvTranspose_0": ["x"]},
        {"ConvTranspose_1": "its channels are in groups"},
    ),
    # A spectrum whose squares go into a logarithm, with its filters before and its filter bank behind; what reads the logarithm is rounded.
    (
        "g (float[N,4] x) => (float[N,4] y) { f = MatMul(x, m) a = MatMul(f, m) b = MatMul(f, m) p = Mul(a, a) q = Pow(b, two) s = Add(p, q) r = Sqrt(s) "
        "t = Transpose <perm: ints = [0, 1]> (r) u = MatMul(t, m) e = Add(u, k4) l = Log(e) y = MatMul(l, m) }",
        {"MatMul_11": ["l"]},
        {f"MatMul_{number}": "Log_10 takes the logarithm of its squares" for number in (0, 1, 2, 8)},
    ),
    # No squares, or no logarithm; a network lies between.
    (
        "g (float[N,4] x) => (float[N,4] y, float[N,4] z) { a = MatMul(x, m) l = Log(a) y = MatMul(l, m) b = MatMul(x, m) p = Mul(b, b) z = Sqrt(p) }",
        {"MatMul_0": ["x"], "MatMul_2": ["l"], "MatMul_3": ["x"]},
        {},
    ),
    (
        "g (float[N,4] x) => (float[N,4] y) { a = MatMul(x, m) r = Relu(a) b = MatMul(r, m) p = Mul(b, b) y = Log(p) }",
        {"MatMul_0": ["x"]},
        {"MatMul_2": "Log_4 takes the logarithm of its squares"},
    ),
]
VALUES = {
    "w": W,
    "m": RNG.normal(size=(4, 4)),
    "n": RNG.normal(size=(1, 4, 4)),
    "k": np.ones((1, 4, 1, 1)),
    "v": W[:, :1],
    "k4": np.ones(4),
    "two": 2.0,
}


@pytest.mark.parametrize(("text", "sites", "left"), PLACES)
def test_where_int8_goes(text, sites, left):
    model = graph(text, **VALUES)
    found = placement.place(model, ())
    assert {site.node: [tensor for _, tensor in site.inputs] for site in found.sites} == sites
    assert {one.name: one.reason.startswith(left[one.name]) for one in found.left} == dict.fromkeys(left, True)
    onnx.checker.check_model(qdq.with_rounding(model, found, dict.fromkeys(found.tensors, 0.1)), full_check=True)


def fake(values, scale):
    return np.clip(np.round(values / scale), -128, 127) * scale


def test_the_rounded_graph_computes_what_its_scales_say():
    weights = np.array([[0.5, 0.0, 3.0], [-0.25, 0.0, -1.0]], np.float32)
    model = graph(
        "g (float[N,2] x) => (float[N,3] y) { a = MatMul(x, w) y = Gemm <transB: int = 1> (a, u) }",
        w=weights,
        u=RNG.normal(size=(3, 3)),
    )
    found = placement.place(model, ())
    x = RNG.normal(size=(5, 2)).astype(np.float32)
    made = onnx_ranges.Session(qdq.with_rounding(model, found, {"x": 0.02, "a": 0.03}))
    # A channel without weights has the scale of |w| up to 1.
    scales = np.array([0.5, 1.0, 3.0]) / 127
    inner = fake(x, np.float32(0.02)) @ fake(weights, scales)
    last = constants(model)["u"]
    expected = fake(inner, np.float32(0.03)) @ fake(last, np.abs(last).max(1, keepdims=True) / 127).T
    assert made.run({"x": x})["y"] == pytest.approx(expected, abs=1e-5)
    # One session for all scales gives the same as constants.
    simulated = onnx_ranges.Simulated(model, found)
    assert simulated.rounded({"x": x}, {"x": 0.02, "a": 0.03})["y"] == pytest.approx(made.run({"x": x})["y"], abs=1e-5)
    assert simulated.plain({"x": x})["y"] == pytest.approx((x @ weights) @ last.T, abs=1e-5)


def test_scales_that_are_fed_are_those_that_count():
    model = graph(
        "g (float[N,4,8,8] x) => (float[N,4,4,4] y) { a = Conv(x, w) b = Relu(a) p = MaxPool <kernel_shape: ints = [2,2], strides: "
        "ints = [2,2]> (b) t = Relu(p) c = Conv(t, w) y = Add(c, t) }",
        w=W,
    )
    found = placement.place(model, ())
    scales = {"x": 0.03, "t": 0.05}
    assert set(found.tensors) == set(scales)
    x = RNG.normal(size=(2, 4, 8, 8)).astype(np.float32)
    constant = onnx_ranges.Session(qdq.with_rounding(model, found, scales), optimized=False).run({"x": x})["y"]
    assert onnx_ranges.Simulated(model, found).rounded({"x": x}, scales)["y"] == pytest.approx(constant, abs=1e-5)


def test_the_last_layer_stays_if_int8_costs_most_just_there(tftrt, tmp_path):
    # The hidden values of 100 and more hide those below 1, which alone decide the answer.
    first, last = np.diag([100.0, 100, 1, 1]).astype(np.float32), np.array([[0], [0], [1], [1]], np.float32)
    source = onnx_sources.rows(tmp_path / "saved", lambda x: tf.nn.relu(x @ first) @ last)
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).random((64, 4), np.float32))
    done = tftrt(
        "export",
        source,
        f"--output={tmp_path / 'm.onnx'}",
        "--precision=INT8",
        f"--calibration_data={tmp_path / 'rows.npz'}",
        "--calibration_method=max",
        f"--data={tmp_path / 'rows.npz'}",
        f"--json={tmp_path / 'j.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = written(tmp_path / "j.json")[1]["nodes"]
    assert [one["precision"] for one in nodes] == ["INT8", "FP32"] and nodes[1]["reason"].startswith(
        "INT8 of the last layer alone costs "
    )


def test_a_tensor_without_values_has_no_scale(tftrt, tmp_path):
    weights = np.eye(4, dtype=np.float32)
    source = onnx_sources.rows(
        tmp_path / "saved", lambda x: tf.nn.softmax((x @ weights) + tf.nn.relu(x - 9.0) @ (2 * weights))
    )
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).random((64, 4), np.float32))
    done = tftrt(
        "export",
        source,
        f"--output={tmp_path / 'm.onnx'}",
        "--precision=INT8",
        f"--calibration_data={tmp_path / 'rows.npz'}",
        f"--json={tmp_path / 'j.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (left,) = (one for one in written(tmp_path / "j.json")[1]["nodes"] if one["precision"] == "FP32")
    assert left["reason"].startswith("the calibration data has no range of ") and "Relu" in left["reason"]


def test_names_of_a_table_that_stand_for_tensors():
    model = graph(
        "g (float[N,8,8,4] x) => (float[N,4,8,8] y) { t = Transpose <perm: ints = [0,3,1,2]> (x) c = Conv(t, w) y = Relu(c) }",
        w=W,
    )
    model.graph.node[1].output[0] = model.graph.node[2].input[0] = "part/Conv:0"
    del model.graph.value_info[:]
    model = shape_inference.infer_shapes(model)
    found = tables.by_tensor(model, {"TensorRTInputPH_0": 0.5, "part/Conv": 0.25, "elsewhere": 1.0})
    assert found == {"x": 0.5, "t": 0.5, "part/Conv:0": 0.25}


def branches(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x) + 1.5, lambda: tf.sin(x) * 2.0)


def loop(x):
    weights = np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32) / 2
    return tf.while_loop(
        lambda n, y: tf.reduce_sum(tf.abs(y)) < 40.0,
        lambda n, y: (n + 1, tf.abs(y @ weights) + tf.abs(x) + 0.5),
        [0, tf.cos(x)],
    )[1]


# {what: (function of x, ops that are in FP16 beside others, {op in FP32: the beginning of the reason})}.
HALVES = {
    "branches": (branches, {"Tanh", "Sin", "Mul"}, {"If": "its inner graphs have their own casts"}),
    "loop": (loop, {"MatMul", "Abs", "Add", "Cos"}, {"Loop": "its inner graphs have their own casts"}),
    "resize": (lambda x: tf.image.resize(tf.reshape(tf.sin(x), (-1, 2, 2, 1)), (5, 5)), {"Sin", "Resize"}, {}),
    "range": (
        lambda x: tf.range(0.0, tf.cast(tf.shape(x)[0], tf.float32))[:, None] * tf.sin(x),
        {"Sin", "Mul"},
        {"Range": "FP16 counts or orders too roughly", "Cast": "its type is its own"},
    ),
    "sums": (lambda x: tf.cumsum(tf.sin(x), 1), {"Sin"}, {"CumSum": "FP16 counts or orders too roughly"}),
    "top": (lambda x: tf.math.top_k(tf.sin(x), 2)[0], {"Sin"}, {"TopK": "FP16 counts or orders too roughly"}),
    "large": (lambda x: tf.minimum(tf.sin(x), 1e6) - tf.cos(x), {"Sin", "Cos"}, {"Min": "its constant "}),
    "tiny": (lambda x: x * tf.math.rsqrt(x * x + 1e-6), {"Mul"}, {"Add": "its constant "}),
    "grown": (lambda x: tf.sqrt(tf.square(x * 1000.0 + 500.0) + 1.0) / 1000.0, {"Mul"}, {"Sqrt": ""}),
}


@pytest.mark.parametrize("name", HALVES)
def test_fp16_keeps_in_fp32_what_it_would_lose(name, tftrt, tmp_path):
    function, halves, kept = HALVES[name]
    source = onnx_sources.rows(tmp_path / "saved", function)
    done = tftrt(
        "export", source, f"--output={tmp_path / 'm.onnx'}", "--precision=FP16", f"--json={tmp_path / 'j.json'}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made, said = written(tmp_path / "j.json")
    assert (
        said["verification"]["arithmetic"] == "FP16"
        and made["inputs"][0]["dtype"] == made["outputs"][0]["dtype"] == "float32"
    )
    assert halves <= {one["op"] for one in said["nodes"] if one["precision"] == "FP16"}
    reasons = {one["op"]: one["reason"] for one in said["nodes"] if one["precision"] == "FP32"}
    assert set(kept) <= set(reasons) and all(reasons[op].startswith(reason) for op, reason in kept.items())
    if name == "large":
        assert any("holds 1e+06, and FP16 ends at 65504" in line for line in said["constants"])
    if name == "grown":
        assert any("reaches " in reason for reason in reasons.values())
    model = onnx.load(tmp_path / "m.onnx")
    assert [one.type.tensor_type.elem_type for one in (*model.graph.input, *model.graph.output)] == [
        onnx.TensorProto.FLOAT
    ] * 2


def test_fp16_weights_are_half_as_large_and_named_nodes_keep_theirs(zoo_model, tftrt, tmp_path):
    sizes = {}
    for name, flags in (("all", []), ("but one", [f"--fp32_nodes={HIDDEN}"])):
        done = tftrt("export", zoo_model("digits_cnn"), f"--output={tmp_path / name}.onnx", "--precision=FP16", *flags)
        assert done.returncode == 0, done.stderr
        sizes[name] = {
            one.name: one.data_type
            for one in onnx.load(tmp_path / f"{name}.onnx").graph.initializer
            if len(one.raw_data) > 1000
        }
    assert set(sizes["all"].values()) == {onnx.TensorProto.FLOAT16}
    assert [name for name, kind in sizes["but one"].items() if kind == onnx.TensorProto.FLOAT] == [
        f"StatefulPartitionedCall/{'digits_cnn_1/hidden_1/Cast' if stacks.SAVED_INPUT else 'digits_cnn/hidden/MatMul'}/ReadVariableOp:0"
    ]


def test_a_tiny_bias_is_no_reason_for_fp32_and_a_tiny_divisor_is():
    text = "g (float[N,4,8,8] x) => (float[N,4,8,8] y) { a = Conv(x, w, b) c = Add(a, b4) d = Add(c, e) y = Div(d, e) }"
    made = half.convert(
        graph(text, w=W, b=np.full(4, 1e-6), b4=np.full((1, 4, 1, 1), 1e-6), e=np.float32(1e-6)), (), {}
    )
    assert [one.precision for one in made.nodes] == ["FP16", "FP16", "FP32", "FP32"]


def test_simulated_fp16_rounds_as_numpy_does():
    model = graph("g (float[N,4] x) => (float[N,4] y) { a = Mul(x, x) y = Add(a, k) }", k=[0.1, 0.2, 0.3, 1000.0])
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    exact = half.convert(model, (), {})
    assert [one.precision for one in exact.nodes] == ["FP16", "FP16"]
    bits = x.astype(np.float16)
    expected = bits * bits + np.array([0.1, 0.2, 0.3, 1000.0], np.float16)
    answer = onnx_ranges.Session(half.convert(model, (), {}, simulated=True).model).run({"x": x})["y"]
    assert answer.dtype == np.float32 and (answer == expected.astype(np.float32)).all()
    assert np.isinf(
        onnx_ranges.Session(half.convert(model, (), {}, simulated=True).model).run({"x": x + 300})["y"]
    ).all()


@pytest.mark.parametrize("other", ["y/fp16", "y/fp32", "a/fp16", "w/fp16", "y/fp16/bits"])
@pytest.mark.parametrize("simulated", [False, True])
def test_names_that_fp16_gives_may_be_there_already(other, simulated):
    text = f'g (float[N,4] x) => (float[N,4] y, float[N,4] "{other}") {{ a = Mul(x, w) y = Add(a, x) "{other}" = Sub(y, a) }}'
    model = graph(text, w=[1.0, 2.0, 3.0, 4.0])
    made = half.convert(model, (), {}, simulated=simulated).model
    assert [one.name for one in made.graph.output] == ["y", other]
    onnx.checker.check_model(made, full_check=True)
    answers = onnx_ranges.Session(made).run({"x": np.ones((2, 4), np.float32)})
    assert (answers["y"] == [2, 3, 4, 5]).all() and (answers[other] == 1).all()


def test_names_that_fp16_gives_may_be_those_of_nodes_and_of_what_a_loop_counts_with():
    text = """g (float[N,4] x) => (float[N,4] y) {
        a = Mul(x, w) y = Loop(k, , a) <body = b (int64 "w/fp16", bool more, float[N,4] v) => (bool on, float[N,4] u) {
            on = Identity(more) u = Mul(v, w) }> }"""
    model = graph(text, w=[1.0, 2.0, 3.0, 4.0])
    model.graph.initializer.append(numpy_helper.from_array(np.array(2), "k"))
    model.graph.node[0].name, model.graph.node[1].name = "x/fp16/to_fp16", "a/to_fp32"
    for simulated in (False, True):
        made = half.convert(model, (), {}, simulated=simulated).model
        onnx.checker.check_model(made, full_check=True)
        assert (onnx_ranges.Session(made).run({"x": np.ones((2, 4), np.float32)})["y"] == [1, 8, 27, 64]).all()


@pytest.mark.parametrize("other", ["x/int8", "x/int8_scale", "x/int8_zero", "x/rounded", "w/int8", "w/rounded"])
def test_names_that_int8_gives_may_be_there_already(other):
    text = f'g (float[N,4] x) => (float[N,4] y) {{ "{other}" = Sub(x, x) a = MatMul(x, w) y = Add(a, "{other}") }}'
    model = graph(text, w=np.eye(4))
    model.graph.node[0].name = other
    found = placement.place(model, ())
    made = qdq.with_rounding(model, found, {"x": 1 / 127})
    onnx.checker.check_model(made, full_check=True)
    x = {"x": np.eye(4, dtype=np.float32)}
    assert (onnx_ranges.Session(made).run(x)["y"] == x["x"]).all()
    assert (onnx_ranges.Simulated(model, found).rounded(x, {"x": 1 / 127})["y"] == x["x"]).all()


BAD = [
    (["--precision=INT8"], "INT8 needs ranges, and neither --calibration_data nor --calibration_table is given"),
    (["--precision=INT8", "--calibrate_on_random_data", "--opset=12"], "--opset=12 has no nodes for --precision=INT8"),
    (["--precision=FP16", "--opset=12"], "--opset=12 has no nodes for --precision=FP16"),
    (["--calibration_data=x.npz"], "--calibration_data has no effect with --precision=FP32"),
    (["--precision=FP16", "--calibration_table=x"], "--calibration_table has no effect with --precision=FP16"),
    (["--fp32_nodes=.*"], "--fp32_nodes has no effect with --precision=FP32"),
    (
        ["--precision=INT8", "--calibrate_on_random_data", "--calibration_method=most"],
        "--calibration_method=most is unknown",
    ),
    (["--precision=INT8", "--calibration_table=none"], "no such file or directory: none"),
    (["--precision=INT8", "--calibration_table=none", "--calibration_data=x.npz"], "exclude each other"),
    (["--precision=FP16", "--output_table=t.json"], "--output_table is for ranges that are measured here"),
    (["--precision=FP16", "--fp32_nodes=("], "--fp32_nodes=( is no regular expression"),
    (["--precision=FP16", "--fp32_nodes=none"], "--fp32_nodes=none matches no node"),
]


@pytest.fixture(scope="session")
def dense(tmp_path_factory):
    """A SavedModel that takes x, rows of 4."""
    return onnx_sources.rows(
        tmp_path_factory.mktemp("dense") / "saved",
        lambda x: tf.nn.softmax(x @ tf.ones((4, 3)) * tf.constant([1.0, 2, 3])),
    )


@pytest.mark.parametrize(("flags", "said"), BAD)
def test_flags_that_cannot_work(flags, said, dense, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", dense, "--output=m.onnx", *flags]) == 2
    cause, mend = capsys.readouterr().err.splitlines()
    assert said in cause and mend and list(tmp_path.iterdir()) == []


def test_ranges_that_cannot_be_found(dense, tftrt, tmp_path):
    common = ("export", dense, f"--output={tmp_path / 'm.onnx'}", "--precision=INT8")
    other = tmp_path / "other.table"
    other.write_text(table.Table(table.header("8.5.3"), {"elsewhere": 0.1}).text())
    done = tftrt(*common, f"--calibration_table={other}")
    assert (
        done.returncode == 1
        and "no node of it has the ranges that INT8 needs (the table has no range of x)" in done.stderr
    )
    np.savez(tmp_path / "nan.npz", x=np.full((16, 4), np.nan, np.float32))
    done = tftrt(*common, f"--calibration_data={tmp_path / 'nan.npz'}")
    assert done.returncode == 2 and "holds NaN or Inf" in done.stderr
    nothing = onnx_sources.rows(tmp_path / "nothing", tf.nn.relu)
    done = tftrt("export", nothing, *common[2:], "--calibrate_on_random_data")
    assert done.returncode == 1 and "no node of it can be in INT8: it has no convolution" in done.stderr
    done = tftrt("export", dense, common[2], "--precision=FP16", "--fp32_nodes=.*")
    assert (
        done.returncode == 1
        and "--fp32_nodes names it" in done.stderr
        and "name fewer nodes with --fp32_nodes" in done.stderr
    )
    assert not (tmp_path / "m.onnx").exists()


def test_a_batch_beyond_any_memory_is_refused(dense, tftrt, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 4), np.float32))
    done = tftrt(
        "export",
        dense,
        f"--output={tmp_path / 'm.onnx'}",
        f"--data={tmp_path / 'x.npz'}",
        "--batch_size=99999999999999999999",
    )
    assert (
        done.returncode == 2
        and "a call takes at most 1000000 rows" in done.stderr
        and not (tmp_path / "m.onnx").exists()
    )


def test_labels_are_about_one_signature(tftrt, tmp_path):
    source = onnx_sources.several(tmp_path / "saved")
    np.savez(tmp_path / "rows.npz", x=np.ones((4, 4), np.float32))
    done = tftrt(
        "export", source, f"--output={tmp_path / 'm.onnx'}", "--labels=l.npy", f"--data={tmp_path / 'rows.npz'}"
    )
    assert done.returncode == 2 and "--labels is about one signature, and several are exported" in done.stderr


@pytest.mark.parametrize("table_name", ["m.other.onnx", "m.other.onnx.data"])
def test_the_ranges_take_the_place_of_no_signature_s_file(table_name, tftrt, tmp_path):
    done = tftrt(
        "export",
        onnx_sources.several(tmp_path / "saved"),
        f"--output={tmp_path / 'm.onnx'}",
        "--precision=INT8",
        "--calibrate_on_random_data",
        f"--output_table={tmp_path / table_name}",
    )
    assert done.returncode == 2 and f"two results would be written to {tmp_path / table_name}" in done.stderr, (
        done.stderr
    )
    assert [one.name for one in tmp_path.iterdir()] == ["saved"]


def test_weights_beside_the_file_go_with_its_precision(zoo_model, tftrt, tmp_path):
    source = zoo_model("digits_cnn")
    for flags in (["--precision=FP16"], ["--precision=INT8", "--calibrate_on_random_data"]):
        done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--external_data", *flags)
        assert done.returncode == 0 and f"with its weights in {tmp_path / 'm.onnx'}.data" in done.stdout, done.stderr
        assert (
            sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
            and (tmp_path / "m.onnx").stat().st_size < 60_000
        )
        assert (
            tftrt("verify", source, tmp_path / "m.onnx", "--thresholds=snr_db>=15,cosine>=0.97,top1>=0.9").returncode
            == 0
        )


def test_a_pattern_that_matches_inside_is_told_how():
    with pytest.raises(errors.UsageError) as caught:
        precision.kept(["conv"], ["a/conv/x", "b"])
    assert "did you mean '.*conv.*'? (1 of 2 nodes)" in caught.value.mend
    assert precision.kept([".*conv.*", "b"], ["a/conv/x", "b", "c"]) == {"a/conv/x", "b"}


@pytest.mark.parametrize("rounded", [False, True])
def test_shared_weights_come_back(rounded, tmp_path):
    weights = RNG.normal(size=(64, 64)).astype(np.float32)
    weights = weights.astype(np.float16).astype(np.float32) if rounded else weights
    model = graph("g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }", w=weights)
    found = placement.place(model, ())
    models = {
        "fp32": model,
        "fp16": half.convert(model, (), {}).model,
        "qdq": qdq.with_rounding(model, found, {"x": 0.1}),
    }
    x = {"x": np.ones((1, 64), np.float32)}
    answers = {name: onnx_ranges.Session(one).run(x)["y"] for name, one in models.items()}
    _shared_weights.share(models, tmp_path, rounded)
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 64 * 64 * (2 if rounded else 4) + 6000
    made = _shared_weights.restore(tmp_path)
    assert [one.stat().st_size for one in made] == [64 * 64 * 4, 64 * 64 * 2]
    for name, expected in answers.items():
        assert (onnx_ranges.Session(onnx.load(tmp_path / f"{name}.onnx")).run(x)["y"] == expected).all()
