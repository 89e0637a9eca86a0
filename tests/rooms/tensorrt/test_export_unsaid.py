"""What a model does not say of its inputs and outputs, and what TensorRT lacks: ranks, sizes, types, and the advice."""

import json

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_files
from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import file, runner_job
from tftrt_tools.tensorrt.exporting import advice, converting, onnx_job, parser, rewriting
from tftrt_tools.tensorrt.exporting.job import model_file, ranks
from tftrt_tools.tensorrt.exporting.job.rewrites import slim
from tftrt_tools.tensorrt.exporting.rewriting import Rewritten
from tftrt_tools.tensorrt.exporting.targets import TARGETS

RNG = np.random.default_rng(11)


def saved(folder, function, *specs, weights=None):
    module = tf.Module()
    module.weights = weights
    module.f = tf.function(
        function, input_signature=[tf.TensorSpec(shape, dtype, name) for name, shape, dtype in specs]
    )
    tf.saved_model.save(module, str(folder), signatures=module.f)
    return folder


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(path, nodes, inputs, outputs, constants=(), opset=16):
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "g", inputs, outputs, constants),
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=8,
        ),
        path,
    )
    return path


def dims(path, name):
    graph = onnx.load(path).graph
    (one,) = (one for one in (*graph.input, *graph.output) if one.name == name)
    return [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim]


# Ranks and sizes ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SavedModel", "ONNX file"])
def test_the_rank_of_an_input_is_that_of_shapes(kind, tftrt, tmp_path):
    if kind == "SavedModel":
        source = saved(tmp_path / "saved", lambda x: {"y": tf.nn.relu(x * 2.0) + 1.0}, ("x", None, tf.float32))
    else:
        source = model(
            tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", None)], [value("y", None)]
        )
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}", "--shapes=x:2x3x4")
    assert done.returncode == 0 and "input x has 3 dimensions in the file, as in the calls" in done.stdout, (
        done.stdout + done.stderr
    )
    assert len(dims(tmp_path / "out.onnx", "x")) == len(dims(tmp_path / "out.onnx", "y")) == 3
    assert tftrt("verify", source, tmp_path / "out.onnx", "--shapes=x:2x3x4").returncode == 0
    np.savez(tmp_path / "x.npz", x=RNG.normal(size=(6, 5)).astype(np.float32))
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}", f"--data={tmp_path / 'x.npz'}")
    assert done.returncode == 0 and len(dims(tmp_path / "out.onnx", "x")) == 2, done.stdout + done.stderr


def test_calls_of_several_ranks_tell_none():
    with pytest.raises(errors.TftrtError, match="how many dimensions input 'x' has, and the calls have 1 and 2"):
        ranks.of_inputs(["x"], [{"x": np.ones(2)}, {"x": np.ones((2, 2))}])
    assert ranks.of_inputs(["x", "k"], [{"x": np.ones((2, 3))}], ["k"]) == {"x": 2, "k": 0}


def test_the_rank_of_an_output_is_that_of_a_run_or_it_is_named(tftrt, tmp_path):
    weights = tf.Variable(np.full((4, 1), 0.5, np.float32))
    source = saved(
        tmp_path / "saved",
        lambda x: {"y": tf.squeeze(x @ weights) + 1.0},
        ("x", (None, 4), tf.float32),
        weights=weights,
    )
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}")
    assert (
        done.returncode == 1
        and "output 'y' has no rank of its own" in done.stderr
        and not (tmp_path / "out.onnx").exists()
    ), done.stderr
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}", "--shapes=x:3x4")
    assert done.returncode == 0 and len(dims(tmp_path / "out.onnx", "y")) == 1, done.stdout + done.stderr


def test_dimensions_that_differ_in_a_call_have_names_of_their_own(tftrt, tmp_path):
    source = saved(
        tmp_path / "saved",
        lambda x, bank, other: {"y": tf.matmul(x, bank, transpose_b=True), "z": other + 1.0},
        *((name, (None, 4), tf.float32) for name in ("x", "bank", "other")),
    )
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}", "--shapes=x:2x4;bank:5x4;other:5x4")
    assert done.returncode == 0, done.stdout + done.stderr
    names = {one: dims(tmp_path / "out.onnx", one)[0] for one in ("bank", "other", "x", "z")}
    assert names == {"bank": "batch", "other": "batch", "x": "x_0", "z": "batch"}
    # An ONNX file says that two are one size, and a call says that they are not.
    path = onnx_files.write(
        tmp_path / "m.onnx",
        [helper.make_node("Gather", ["nodes", "edges"], ["e"]), helper.make_node("Relu", ["e"], ["y"])],
        onnx_files.values(("nodes", "float32", ("batch", 4)), ("edges", "int64", ("batch",))),
        onnx_files.values(("y", "float32", ("batch", 4))),
    )
    done = tftrt(
        "export", path, f"--output={tmp_path / 'out.onnx'}", "--shapes=nodes:2x4;edges:5", "--ranges=edges:0:1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [dims(tmp_path / "out.onnx", one)[0] for one in ("nodes", "edges", "y")] == ["batch", "edges_0", "edges_0"]


def test_a_scalar_whose_shape_the_file_does_not_say_can_be_frozen(tftrt, tmp_path):
    source = model(
        tmp_path / "m.onnx",
        [helper.make_node("Mul", ["x", "k"], ["y"])],
        [value("x", ["b", 4]), value("k", None)],
        [value("y", ["b", 4])],
    )
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}", "--freeze=k:2")
    assert done.returncode == 0 and "input k is 2.0 for good" in done.stdout, done.stdout + done.stderr
    assert file.overview(str(tmp_path / "out.onnx")).signatures["serving_default"].inputs[1].shape == ()


# Old shapes, and rewrites that are wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_old_shapes_inside_loops_and_branches_are_forgotten(kind, tftrt, tmp_path):
    weights = numpy_helper.from_array(RNG.normal(size=(4, 4)).astype(np.float32) / 3, "m")
    if kind == "If":
        inside = [helper.make_node("MatMul", ["x", "m"], ["q"]), helper.make_node("Relu", ["q"], ["u"])]
        then = helper.make_graph(inside, "t", [], [value("u", ["N", 4])], value_info=[value("q", [3, 9])])
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["v"])], "e", [], [value("v", ["N", 4])])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    else:
        inside = [
            helper.make_node("Identity", ["c1"], ["on"]),
            helper.make_node("MatMul", ["v", "m"], ["q"]),
            helper.make_node("Relu", ["q"], ["u"]),
        ]
        body = helper.make_graph(
            inside,
            "b",
            [value("k", [], TensorProto.INT64), value("c1", [], TensorProto.BOOL), value("v", ["N", 4])],
            [value("on", [], TensorProto.BOOL), value("u", ["N", 4])],
            value_info=[value("q", [1, 5])],
        )
        nodes = [
            helper.make_node("Cast", ["c"], ["n"], to=TensorProto.INT64),
            helper.make_node("Loop", ["n", "", "x"], ["y"], body=body),
        ]
    source = model(
        tmp_path / "m.onnx",
        nodes,
        [value("x", ["N", 4]), value("c", [], TensorProto.BOOL)],
        [value("y", ["N", 4])],
        [weights],
    )
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_padding_as_pytorch_computes_it_is_folded_right():
    """The sizes of the second padding follow from a size that onnxslim's inference alone tells; the pairs are reversed, not their numbers."""
    node, constants = (
        helper.make_node,
        {"z4": [0] * 4, "m12": [-1, 2], "m1": [-1], "lo": [-(2**63) + 1], "ax0": [0], "one": 1, "two": 2, "nil": [0]},
    )
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "two"], ["h"], axis=0),
        node("Sub", ["h", "one"], ["g"]),
        node("Unsqueeze", ["g", "ax0"], ["b"]),
        node("Concat", ["nil", "b", "nil", "b"], ["four"], axis=0),
        node("Concat", ["four", "z4"], ["eight"], axis=0),
        node("Reshape", ["eight", "m12"], ["pairs"]),
        node("Slice", ["pairs", "m1", "lo", "ax0", "m1"], ["rev"]),
        node("Transpose", ["rev"], ["tr"], perm=[1, 0]),
        node("Reshape", ["tr", "m1"], ["p"]),
        node("Pad", ["x", "p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", ["batch", 3, 4, 6])],
        [value("y", ["batch", 3, "h", "w"])],
        [numpy_helper.from_array(np.asarray(one, np.int64), name) for name, one in constants.items()],
    )
    made = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8), data_prop=True
    )
    x = {"x": RNG.normal(size=(2, 3, 4, 6)).astype(np.float32)}
    (expected,) = runner_job.session(made.SerializeToString()).run(None, x)
    assert slim.rewrite("constant_folding")(made, "8.5") > 0
    assert np.array_equal(runner_job.session(made.SerializeToString()).run(None, x)[0], expected)


def test_a_rewrite_that_finds_something_only_when_another_is_left_out_is_left_out_as_well():
    class Try:
        def __init__(self, names):
            first = next((one for one in ("fold", "dead_ends", "simplify") if one in names), "")
            self.rewrites = tuple(Rewritten(name=one, nodes=25 * (one == first)) for one in names)
            self.problem = "y: snr_db is 7" if first else ""

    found, rewrites = rewriting.settle(("layer_norm", "fold", "dead_ends", "simplify"), Try)
    assert not found.problem and [one.name for one in found.rewrites] == ["layer_norm"]
    assert sorted(one.name for one in rewrites if one.undone) == ["dead_ends", "fold", "simplify"]


# What TensorRT lacks ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "refused"), [("8.5", {"names", "big", "d"}), ("10", {"names", "d"}), ("onnxruntime", set())]
)
def test_constant_outputs_of_types_that_a_target_lacks_are_refused_by_name(target, refused, tftrt, tmp_path):
    weights = tf.Variable(RNG.normal(size=(4, 3)).astype(np.float32))
    source = saved(
        tmp_path / "saved",
        lambda x: {
            "scores": tf.nn.softmax(x @ weights),
            "names": tf.constant(["cat", "dog"]),
            "d": tf.constant([1.5], tf.float64),
            "big": tf.constant([2**40], tf.int64),
            "small": tf.constant([7], tf.int64),
        },
        ("x", (None, 4), tf.float32),
        weights=weights,
    )
    done = tftrt(
        "export", source, f"--output={tmp_path / 'm.onnx'}", f"--target={target}", f"--json={tmp_path / 'j.json'}"
    )
    (made,) = json.loads((tmp_path / "j.json").read_text())["files"]
    assert {one["node"] for one in made["findings"] if one["certain"]} == refused, made["findings"]
    assert done.returncode == (3 if refused else 0) and (tmp_path / "m.onnx").exists() == (not refused)
    if refused:
        assert "output: " in done.stdout and "--outputs exports the model without" in done.stdout
        done = tftrt(
            "export", source, f"--output={tmp_path / 'm.onnx'}", f"--target={target}", "--outputs=scores,small"
        )
        assert done.returncode == 0, done.stdout


def test_a_constant_node_as_an_output_is_looked_at():
    tensor = numpy_helper.from_array(np.array([2**40]), "t")
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=tensor)], "g", [], [value("y", [1], TensorProto.INT64)]
    )
    found = parser.findings(model_file.nodes(helper.make_model(graph)), TARGETS["8.5"])
    assert [(one.node, one.op, one.certain) for one in found] == [("y", "output", True)]


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("MatMulInteger", "--precision=INT8 writes"),
        ("com.microsoft.DynamicQuantizeMatMul", "--precision=INT8"),
        ("com.microsoft.FusedMatMul", "ONNX Runtime wrote ops of its own"),
        ("STFT", "cosines and sines"),
        ("ai.onnx.ml.LabelEncoder", "before the model"),
        ("MatMul", ""),
    ],
)
def test_refused_ops_have_advice_of_their_own_or_none(op, said):
    assert any(said in one for one in advice.of_onnx([op])) if said else advice.of_onnx([op]) == []


def test_ops_of_tensorflow_have_advice_of_their_own_or_none(tftrt, tmp_path):
    assert (
        "antialias" in advice.of_tensorflow(["ScaleAndTranslate"])[0]
        and "before the model" in advice.of_tensorflow(["StringStrip"])[0]
    )
    assert advice.of_tensorflow(["Bincount"]) == []
    source = saved(
        tmp_path / "saved",
        lambda x: {"y": tf.image.resize(x, (5, 5), antialias=True)},
        ("x", (None, 8, 8, 1), tf.float32),
    )
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert (
        done.returncode == 1
        and "without antialias" in done.stderr
        and "strings" not in done.stderr
        and "--signature_keys" not in done.stderr
    ), done.stderr


def test_stft_in_an_older_opset_is_told_what_to_do(tmp_path):
    constants = [
        numpy_helper.from_array(np.array(8), "step"),
        numpy_helper.from_array(np.hanning(16).astype(np.float32), "w"),
    ]
    path = model(
        tmp_path / "m.onnx",
        [helper.make_node("STFT", ["x", "step", "w"], ["y"], onesided=1)],
        [value("x", ["b", 64, 1])],
        [value("y", ["b", 7, 9, 2])],
        constants,
        opset=17,
    )
    request = converting.Request(model=str(path), signature="s", output=str(tmp_path / "out.onnx"), opset=16, newest=16)
    with pytest.raises(errors.TftrtError) as raised:
        onnx_job.job(request)
    assert "STFT" in raised.value.cause and "cosines and sines" in raised.value.mend


def test_types_of_which_there_are_no_kernels_are_named(tftrt, tmp_path):
    kernel = tf.Variable(RNG.normal(size=(3, 3, 1, 2)))
    source = saved(
        tmp_path / "f64",
        lambda x: {"y": tf.nn.conv2d(x, kernel, 1, "SAME")},
        ("x", (None, 8, 8, 1), tf.float64),
        weights=kernel,
    )
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert (
        done.returncode == 1
        and "no Conv of float64" in done.stderr
        and "TensorRT has no float64 either" in done.stderr
        and "bfloat16" not in done.stderr
    ), done.stderr
    assert "scratch" not in done.stderr
    done = tftrt("convert", f"--model={source}", f"--output={tmp_path / 'out'}")
    assert (
        done.returncode == 3
        and "TensorRT has no float64" in done.stderr
        and "tf.cast" in done.stderr
        and "dynamic" not in done.stderr
    ), done.stderr


def test_a_signature_that_writes_and_is_the_only_one_is_told_what_to_save(tftrt, tmp_path):
    held = tf.Variable(0.0)

    def counts(x):
        held.assign_add(tf.reduce_mean(x))
        return {"y": x * 2.0}

    source = saved(tmp_path / "saved", counts, ("x", (None, 4), tf.float32), weights=held)
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 1 and "training=False" in done.stderr and "--signature_keys" not in done.stderr, (
        done.stderr
    )


def test_a_loop_that_tf2onnx_does_not_take_is_named_with_its_layer(tftrt, tmp_path):
    def twice(x):
        with tf.name_scope("encoder"), tf.name_scope("lookback"):
            array = tf.TensorArray(tf.float32, size=8, element_shape=(None,))
            _, array = tf.while_loop(
                lambda i, t: i < 8, lambda i, t: (i + 2, t.write(i, x[:, 0]).write(i + 1, x[:, 1])), [0, array]
            )
        return {"y": array.stack()}

    source = saved(tmp_path / "saved", twice, ("x", (None, 4), tf.float32))
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 1 and "While" in done.stderr and "which is of encoder/lookback" in done.stderr, (
        done.stderr
    )


def test_fp16_that_misses_its_bounds_is_followed_by_the_search_for_its_nodes(tftrt, tmp_path):
    weights = tf.Variable(RNG.normal(size=(4, 3)).astype(np.float32))
    source = saved(
        tmp_path / "saved", lambda x: {"y": tf.nn.softmax(x @ weights)}, ("x", (None, 4), tf.float32), weights=weights
    )
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--precision=FP16", "--thresholds=snr_db>=100")
    assert (
        done.returncode == 3
        and "next, with --data of your own: tftrt sensitivity" in done.stdout
        and "--precision=FP16" in done.stdout
    ), done.stdout
