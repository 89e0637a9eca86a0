"""The rewrites of exported graphs: each form that is known, on small graphs, with equal answers; which are made for a target; what is undone."""

import dataclasses
import json

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_files, onnx_sources, stacks
from tests.prepared_models import save, unet_with_conditionals
from tftrt_tools.command_line import cli
from tftrt_tools.models.kinds.onnx import file
from tftrt_tools.tensorrt.exporting import rewrite_job, rewriting
from tftrt_tools.tensorrt.exporting.job import lowering, model_file
from tftrt_tools.tensorrt.exporting.job.rewrites import converting, einsum, registry, reverse_sequence
from tftrt_tools.tensorrt.exporting.rewriting import REWRITES, Rewritten
from tftrt_tools.tensorrt.exporting.targets import TARGETS

WIDTH = 6


class Net:
    """A graph of x, floats [batch, 3, WIDTH] by default, that is written node by node. Its last tensor is the output y."""

    def __init__(self, opset=18, shape=("batch", 3, WIDTH)):
        self.opset, self.shape, self.nodes, self.constants = opset, shape, [], []

    def c(self, values, dtype=np.float32):
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def __call__(self, op, *inputs, **attributes):
        self.nodes.append(
            helper.make_node(op, list(inputs), [f"t{len(self.nodes)}"], name=f"n{len(self.nodes)}", **attributes)
        )
        return self.nodes[-1].output[0]

    def mean(self, tensor):
        if self.opset < 18:
            return self("ReduceMean", tensor, axes=[-1], keepdims=1)
        return self("ReduceMean", tensor, self.c([-1], np.int64), keepdims=1)

    def model(self, more=()):
        self("Identity", self.nodes[-1].output[0])
        self.nodes[-1].output[0] = "y"
        made = helper.make_model(
            helper.make_graph(
                self.nodes,
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", *more)],
                self.constants,
            ),
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=9,
        )
        return onnx.shape_inference.infer_shapes(made, check_type=True, data_prop=True)


def run(model):
    shape = [one.dim_value or 2 for one in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(["y"], {"x": x})[0]


def ops(model):
    return [node.op_type for node in model.graph.node]


def rewritten(name, model, target="10", nodes=1):
    """The model with a rewrite that changes `nodes` nodes; its answers are those of the model."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    assert registry.IN_GRAPH[name](made, target) == nodes
    onnx.checker.check_model(made, full_check=True)
    np.testing.assert_allclose(run(made), run(model), rtol=2e-5, atol=2e-6)
    return made


# The ways to write a gelu: {name: (function of a Net, the attribute approximate)}.
def erf_gate(net, sign=1.0):
    return net("Erf", net("Mul", "x", net.c(sign * np.sqrt(0.5))))


def tanh_gate(net, cube):
    return net("Tanh", net("Mul", net("Add", "x", net("Mul", net.c(0.044715), cube)), net.c(np.sqrt(2 / np.pi))))


GELUS = {
    "half x first": (lambda net: net("Mul", net("Mul", net.c(0.5), "x"), net("Add", net.c(1), erf_gate(net))), "none"),
    "half last": (lambda net: net("Mul", net("Mul", "x", net("Add", erf_gate(net), net.c(1))), net.c(0.5)), "none"),
    "divided": (
        lambda net: net(
            "Div", net("Mul", "x", net("Add", net("Erf", net("Div", "x", net.c(np.sqrt(2)))), net.c(1))), net.c(2)
        ),
        "none",
    ),
    "erfc": (lambda net: net("Mul", net("Mul", net.c(0.5), "x"), net("Sub", net.c(1), erf_gate(net, -1))), "none"),
    "negated": (
        lambda net: net(
            "Mul",
            net("Mul", net.c(0.5), "x"),
            net("Sub", net.c(1), net("Erf", net("Mul", net("Neg", "x"), net.c(np.sqrt(0.5))))),
        ),
        "none",
    ),
    "tanh of a power": (
        lambda net: net(
            "Mul", net("Mul", net.c(0.5), "x"), net("Add", net.c(1), tanh_gate(net, net("Pow", "x", net.c(3))))
        ),
        "tanh",
    ),
    "tanh of products": (
        lambda net: net(
            "Mul",
            net("Mul", net.c(0.5), "x"),
            net("Add", net.c(1), tanh_gate(net, net("Mul", net("Mul", "x", "x"), "x"))),
        ),
        "tanh",
    ),
}
NO_GELUS = {
    "another number": lambda net: net("Mul", net("Mul", net.c(0.4), "x"), net("Add", net.c(1), erf_gate(net))),
    "another sign": lambda net: net("Mul", net("Mul", net.c(0.5), "x"), net("Sub", net.c(1), erf_gate(net))),
    "another x": lambda net: net("Mul", net("Mul", net.c(0.5), net("Exp", "x")), net("Add", net.c(1), erf_gate(net))),
    "a square": lambda net: net(
        "Mul", net("Mul", net.c(0.5), "x"), net("Add", net.c(1), tanh_gate(net, net("Pow", "x", net.c(2))))
    ),
}


@pytest.mark.parametrize("kind", GELUS)
def test_each_way_to_write_a_gelu_becomes_the_op(kind):
    net = Net(opset=20)
    write, approximate = GELUS[kind]
    write(net)
    made = rewritten("gelu", net.model())
    assert ops(made) == ["Gelu", "Identity"] and made.graph.node[0].attribute[0].s.decode() == approximate
    assert not [one for one in made.graph.initializer]


@pytest.mark.parametrize("kind", NO_GELUS)
def test_what_only_resembles_a_gelu_stays(kind):
    net = Net(opset=20)
    NO_GELUS[kind](net)
    before = ops(model := net.model())
    assert ops(rewritten("gelu", model, nodes=0)) == before


MISSED_GELUS = {
    "another number": ("n2", "x (1 + …) is multiplied by 0.4, not by 0.5"),
    "another sign": ("n2", "its input is multiplied by 0.707107, not by -0.707107"),
    "another x": ("n3", "its sum with 1 is not multiplied with x"),
    "a square": ("n5", "its input is not x + 0.044715 x³"),
}
MORE_MISSED_GELUS = {
    "tanh of another number": (
        lambda net: net("Add", net.c(1), net("Tanh", net("Mul", "x", net.c(0.8)))),
        "its input is multiplied by 0.8, not by 0.797885",
    ),
    "a cube of another number": (
        lambda net: net(
            "Add",
            net.c(1),
            net(
                "Tanh",
                net(
                    "Mul",
                    net("Add", "x", net("Mul", net.c(0.04), net("Pow", "x", net.c(3)))),
                    net.c((2 / np.pi) ** 0.5),
                ),
            ),
        ),
        "x³ is multiplied by 0.04, not by 0.044715",
    ),
    "tanh that is subtracted": (
        lambda net: net("Sub", net.c(1), net("Tanh", "x")),
        "it is subtracted from 1, not added",
    ),
    "two tensors": (
        lambda net: net("Add", net.c(1), net("Erf", net("Mul", "x", net("Exp", "x")))),
        "its input is not one tensor times a number",
    ),
    "a sum": (lambda net: net("Add", net.c(1), erf_gate(net)), "its sum with 1 is not multiplied with x"),
}


def missed(name, model, target="10"):
    """What a rewrite says that it did not take, of the model that it has changed."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    registry.IN_GRAPH[name](made, target)
    return list(registry.MISSED[name](made, target))


@pytest.mark.parametrize("kind", NO_GELUS)
def test_what_only_resembles_a_gelu_is_named_with_the_reason(kind):
    net = Net(opset=20)
    NO_GELUS[kind](net)
    assert missed("gelu", net.model()) == [MISSED_GELUS[kind]]


@pytest.mark.parametrize("kind", MORE_MISSED_GELUS)
def test_each_reason_why_there_is_no_gelu_is_told(kind):
    net = Net(opset=20)
    write, reason = MORE_MISSED_GELUS[kind]
    write(net)
    ((_, told),) = missed("gelu", net.model())
    assert told == reason


@pytest.mark.parametrize("kind", GELUS)
def test_a_gelu_that_was_taken_is_not_told_as_missed(kind):
    net = Net(opset=20)
    GELUS[kind][0](net)
    before = net.model()
    assert missed("gelu", before) == []
    # Neither is one whose parts the caller reads, too.
    gate = next(node.output[0] for node in before.graph.node if node.op_type in ("Erf", "Tanh"))
    net.nodes.pop()
    assert missed("gelu", net.model(more=[gate])) == []


def test_ops_of_a_gelu_with_another_use_are_no_near_match():
    net = Net(opset=20)
    net("Add", net("Tanh", "x"), net("Erf", "x"))
    assert missed("gelu", net.model()) == []


def variance(net):
    """(x - its mean, the square root of its variance and epsilon, the mean)."""
    mean = net.mean("x")
    centred = net("Sub", "x", mean)
    return centred, net("Sqrt", net("Add", net.mean(net("Mul", centred, centred)), net.c(1e-3))), mean


def by_hand(net, beta=True, divided=False):
    centred, root, _ = variance(net)
    gamma = net.c(np.linspace(0.5, 2, WIDTH))
    scaled = (
        net("Mul", net("Div", centred, root), gamma)
        if divided
        else net("Mul", centred, net("Mul", net("Reciprocal", root), gamma))
    )
    return net("Add", scaled, net.c(np.linspace(-1, 1, WIDTH))) if beta else scaled


def as_batch_normalization(net, beta=True):
    _, root, mean = variance(net)
    factor = net("Mul", net("Reciprocal", root), net.c(np.linspace(0.5, 2, WIDTH)))
    moved = net("Mul", mean, factor)
    return net(
        "Add",
        net("Mul", "x", factor),
        net("Sub", net.c(np.linspace(-1, 1, WIDTH)), moved) if beta else net("Neg", moved),
    )


def as_keras_3(net, beta=True):
    _, root, mean = variance(net)
    factor = net("Mul", net("Reciprocal", root), net.c(np.linspace(0.5, 2, WIDTH)))
    moved = net("Mul", net("Neg", mean), factor)
    return net("Add", net("Mul", "x", factor), net("Add", moved, net.c(np.linspace(-1, 1, WIDTH))) if beta else moved)


NORMS = {
    "by hand": by_hand,
    "as Keras 3": as_keras_3,
    "as Keras 3 without a shift": lambda net: as_keras_3(net, beta=False),
    "without a shift": lambda net: by_hand(net, beta=False),
    "divided": lambda net: by_hand(net, divided=True),
    "as a batch normalization": as_batch_normalization,
    "as one without a shift": lambda net: as_batch_normalization(net, beta=False),
}


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("opset", [17, 18])
def test_each_way_to_write_a_layer_normalization_becomes_the_op(kind, opset):
    net = Net(opset)
    NORMS[kind](net)
    model = net.model()
    made = rewritten("layer_norm", model)
    assert ops(made) == ["LayerNormalization", "Identity"]
    assert {one.name: one.f for one in made.graph.node[0].attribute}["epsilon"] == pytest.approx(1e-3)
    # TensorRT 8.5 has no such op, and takes these.
    assert ops(rewritten("layer_norm", model, "8.5", nodes=0)) == ops(model)
    # And the other way round.
    apart = rewritten("layer_norm", made, "8.5")
    assert "LayerNormalization" not in ops(apart) and {"Sqrt", "Div"} <= set(ops(apart))


@pytest.mark.parametrize("kind", ["op", "by hand"])
def test_a_graph_of_pytorch_s_opset_becomes_one_for_8_5(kind):
    net = Net(18)
    if kind == "op":
        net(
            "LayerNormalization",
            "x",
            net.c(np.linspace(0.5, 2, WIDTH)),
            net.c(np.linspace(-1, 1, WIDTH)),
            axis=-1,
            epsilon=1e-4,
        )
    else:
        by_hand(net)
    model = net.model()
    expected = run(model)
    made, notes = lowering.lowered(model, 16, "PyTorch writes opset 18")
    onnx.checker.check_model(made, full_check=True)
    # onnx's converter alone would lose the axes of the means, and refuse the op.
    assert made.opset_import[0].version == 16 and "LayerNormalization" not in ops(made)
    assert [list(one.attribute[-1].ints) for one in made.graph.node if one.op_type == "ReduceMean"] == [[-1], [-1]]
    np.testing.assert_allclose(run(made), expected, rtol=2e-5, atol=2e-6)
    assert len(notes) == (2 if kind == "op" else 1) and "onnx converted it to 16" in notes[0]


def test_a_normalization_with_another_reader_inside_keeps_what_that_needs():
    net = Net()
    by_hand(net)
    model = net.model(more=["t3"])  # the squares
    made = rewritten("layer_norm", model)
    assert (
        "LayerNormalization" in ops(made)
        and {one.name for one in made.graph.output} == {"y", "t3"}
        and "Sqrt" not in ops(made)
    )


@pytest.mark.parametrize("change", ["axis", "mean", "scale"])
def test_what_only_resembles_a_layer_normalization_stays(change):
    net = Net(17, shape=("batch", WIDTH, WIDTH))
    axes = [1] if change == "axis" else [-1]
    mean = net("ReduceMean", "x", axes=axes, keepdims=1)
    centred = net("Sub", "x", mean)
    root = net("Sqrt", net("Add", net("ReduceMean", net("Mul", centred, centred), axes=axes, keepdims=1), net.c(1e-3)))
    top = net("Sub", "x", net.c(0.5)) if change == "mean" else centred
    net("Mul", net("Div", top, root), net.c(np.ones((WIDTH, 1)) if change == "scale" else np.ones(WIDTH)))
    expected = 1 if change == "scale" else 0
    # With a scale for each row the quotient alone is the normalization.
    made = rewritten("layer_norm", net.model(), nodes=expected)
    assert ("Mul" in ops(made)) and ("LayerNormalization" in ops(made)) == bool(expected)


def near_norm(change):
    """A layer normalization by hand that is none for one reason; n4 is its square root."""
    net = Net(17, shape=("batch", "length", "width") if change == "open" else ("batch", WIDTH, WIDTH))
    axes = [1] if change == "axis" else [-1]
    mean = net("ReduceMean", "x", axes=[-2] if change == "other mean" else axes, keepdims=1)
    centred = net("Sub", "x", net.c(0.5) if change == "number" else mean)
    squares = net("ReduceMean", net("Mul", centred, centred), axes=axes, keepdims=1)
    epsilon = net.c(np.full(WIDTH, 1e-3)) if change == "epsilon" else net.c(1e-3)
    root = net("Sqrt", net("Add", squares, epsilon))
    net("Div", net("Sub", "x", net.c(0.5)) if change == "quotient" else centred, root)
    return net.model()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("axis", "the mean is over axis 1 of 0 to 2, not over the last alone"),
        ("other mean", "the mean is over axis 1 of 0 to 2, not over the last alone"),
        ("number", "what is subtracted from x is not its mean"),
        ("epsilon", "epsilon is not a constant of one element"),
        ("open", "the size of the last axis of x is open"),
        ("quotient", "what is divided by it is not x less its mean, or the scale is no constant of the last axis"),
    ],
)
def test_what_only_resembles_a_layer_normalization_is_named_with_the_reason(change, reason):
    model = near_norm(change)
    root = next(node.name for node in model.graph.node if node.op_type == "Sqrt")
    assert missed("layer_norm", model) == [(root, reason)]
    # 8.5 takes these ops.
    assert missed("layer_norm", model, "8.5") == []


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("opset", [16, 17, 18])
def test_a_layer_normalization_that_was_taken_is_not_told_as_missed(kind, opset):
    net = Net(opset)
    NORMS[kind](net)
    model = net.model()
    told = missed("layer_norm", model)
    assert [reason for _, reason in told] == (["opset 16 has no LayerNormalization, 17 has"] if opset == 16 else [])
    assert missed("layer_norm", model, "8.5") == []


def test_a_deviation_that_something_else_reads_is_no_near_match():
    net = Net()
    centred, root, _ = variance(net)
    deviation = net("Exp", root)
    net("Div", centred, root)
    model = net.model(more=[deviation])
    assert "Sqrt" in ops(rewritten("layer_norm", model)) and missed("layer_norm", model) == []


def test_a_normalization_that_nothing_reads_keeps_its_constants():
    net = Net()
    by_hand(net)
    net("Exp", "x")
    made = ops(rewritten("layer_norm", net.model()))
    assert made[-3:] == ["LayerNormalization", "Exp", "Identity"] and made.count("Add") == 1


@pytest.mark.parametrize(
    ("axis", "gamma", "reason"),
    [
        (-1, WIDTH, ""),
        (1, (3, WIDTH), "it is over axis 1 and those behind it of 0 to 2, not over the last alone"),
        (-1, None, f"the scale is no float32 constant of {WIDTH} elements"),
    ],
)
def test_an_op_that_cannot_be_taken_apart_for_8_5_is_named_with_the_reason(axis, gamma, reason):
    net = Net(18)
    scale = net("ReduceMax", "x", net.c([0, 1], np.int64), keepdims=0) if gamma is None else net.c(np.ones(gamma))
    node = net("LayerNormalization", "x", scale, axis=axis)
    model = net.model()
    (name,) = (one.name for one in model.graph.node if one.output[0] == node)
    assert missed("layer_norm", model, "8.5") == ([(name, reason)] if reason else [])
    assert missed("layer_norm", model) == []


def test_export_says_what_was_not_taken_and_why(tftrt, tmp_path):
    def layers(x):
        for _ in range(4):
            centred = x - tf.reduce_mean(x, axis=0, keepdims=True)
            x = centred / tf.sqrt(tf.reduce_mean(centred * centred, axis=0, keepdims=True) + 1e-3)
        return 0.4 * x * (1 + tf.math.erf(x * np.sqrt(0.5)))

    source = onnx_sources.rows(tmp_path / "saved", layers)
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--target=10", f"--json={tmp_path / 'j.json'}")
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = json.loads((tmp_path / "j.json").read_text())["files"]
    told = {one["name"]: one["missed"] for one in made["rewrites"] if one["missed"]}
    assert {name: len(found) for name, found in told.items()} == {"layer_norm": 4, "gelu": 1}
    assert "x (1 + …) is multiplied by 0.4, not by 0.5" in told["gelu"][0]["reason"]
    assert (
        "  not by layer_norm: the mean is over axis 0 of 0 to 1, not over the last alone (" in done.stdout
        and "and 1 more)" in done.stdout
    )
    assert "  not by gelu: x (1 + …) is multiplied by 0.4, not by 0.5 (" in done.stdout


def test_an_instance_normalization_with_computed_scales_is_taken_apart_for_8_5():
    net = Net()
    count = net("Slice", net("Shape", "x"), net.c([1], np.int64), net.c([2], np.int64), net.c([0], np.int64))
    ones = net("ConstantOfShape", count, value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1]))
    zeros = net("ConstantOfShape", count, value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0]))
    net("Mul", net("InstanceNormalization", "x", ones, zeros, epsilon=1e-4), net.c(np.arange(WIDTH)))
    model = net.model()
    assert not {"InstanceNormalization", "ConstantOfShape", "Shape"} & set(ops(rewritten("layer_norm", model, "8.5")))
    assert ops(rewritten("layer_norm", model, "10")) == ["LayerNormalization", "Identity"]


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_the_scale_of_attention_goes_before_the_product(op, mask):
    net = Net(shape=("batch", 2, 3, WIDTH))
    scores = net(op, net("MatMul", "x", net("Transpose", "x", perm=[0, 1, 3, 2])), net.c(0.125 if op == "Mul" else 8))
    scores = net("Add", scores, net.c(np.full((3, 3), -2.0))) if mask else scores
    net("MatMul", net("Softmax", scores, axis=-1), "x")
    made = rewritten("attention", net.model())
    listed = ops(made)
    assert listed.index("Mul") < listed.index("MatMul") and op in ("Mul", "Div") and "Div" not in listed
    rewritten("attention", made, nodes=0)


def test_attention_of_three_dimensions_and_a_softmax_alone_stay():
    net = Net()
    net("Softmax", net("Mul", net("MatMul", "x", net("Transpose", "x", perm=[0, 2, 1])), net.c(0.125)), axis=-1)
    rewritten("attention", net.model(), nodes=0)


def test_what_constants_decide_is_folded_and_what_does_nothing_is_left_out():
    net = Net()
    sizes = net("Concat", net("Mul", net.c([1], np.int64), net.c([-1], np.int64)), net.c([3 * WIDTH], np.int64), axis=0)
    net("Add", net("Mul", net("Reshape", "x", sizes), net.c(1)), net.c(0))
    folded = rewritten("fold", net.model(), nodes=2)
    assert ops(folded) == ["Reshape", "Mul", "Add", "Identity"]
    without = rewritten("dead_ends", folded, nodes=3)
    assert ops(without) == ["Reshape"]
    assert [(one.name, one.type.tensor_type.shape.dim[0].dim_param) for one in without.graph.input] == [("x", "batch")]


def test_equal_nodes_are_merged_and_products_stay_products():
    net = Net(shape=(4, WIDTH))
    weights, bias = net.c(np.ones((WIDTH, 2))), net.c([1, 2])
    net(
        "Add",
        net("Exp", net("Add", net("MatMul", "x", weights), bias)),
        net("Exp", net("Add", net("MatMul", "x", weights), bias)),
    )
    made = rewritten("simplify", net.model(), nodes=3)
    assert ops(made).count("MatMul") == 1 and "Gemm" not in ops(made)


def test_inputs_that_nothing_reads_stay_when_a_graph_is_slimmed():
    net = Net()
    net("Mul", net("Mul", "x", net.c(1)), net.c(2))
    model = net.model()
    model.graph.input.append(helper.make_tensor_value_info("unread", TensorProto.BOOL, []))
    assert registry.IN_GRAPH["dead_ends"](model, "8.5") > 0
    assert [one.name for one in model.graph.input] == ["x", "unread"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("abc,cde->abde", ("", "ab", "de", "c")),
        ("aecd,abcd->acbe", ("ac", "b", "e", "d")),
        ("acbe,aecd->abcd", ("ac", "b", "d", "e")),
        ("BIJ, BJK -> BIK", ("B", "I", "K", "J")),
        ("abcd,cde->abe", ("", "ab", "e", "cd")),
        ("ii,ij->ij", None),
        ("...i,ij->...j", None),
        ("ij,jk,kl->il", None),
        ("ij,j->i", None),
        ("ab,cd->abcd", None),
        ("abz,bc->ac", None),
    ],
)
def test_equations_are_read(text, parts):
    found = einsum.parsed(text)
    if parts is None:
        assert found is None
        return
    assert (set(found.batch), set(found.left) | set(found.right), set(found.summed)) == (
        set(parts[0]),
        {*parts[1], *parts[2]},
        set(parts[3]),
    )


@pytest.mark.parametrize("target", ["8.5", "10"])
def test_attention_and_normalization_of_keras_become_ops_that_tensorrt_knows(target, tftrt, tmp_path):
    layers = tf.keras.layers
    x = tf.keras.Input((7, 16), name="x")
    y = layers.MultiHeadAttention(2, 8)(x, x)
    y = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(x + y))
    tf.keras.Model(x, layers.LayerNormalization(epsilon=1e-6, name="last")(y)).save(tmp_path / "m.keras")
    done = tftrt(
        "export",
        tmp_path / "m.keras",
        f"--output={tmp_path / 'm.onnx'}",
        f"--target={target}",
        f"--json={tmp_path / 'j.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"rewritten: {stacks.here().exported_einsums} nodes by einsum, " in done.stdout
        and "refused" not in done.stdout
        and "doubtful" not in done.stdout
    )
    (made,) = json.loads((tmp_path / "j.json").read_text())["files"]
    counted = {one["name"]: one["nodes"] for one in made["rewrites"] if not one["undone"]}
    found, facts = file.overview(str(tmp_path / "m.onnx")).ops, file.overview(str(tmp_path / "m.onnx")).facts
    # TensorRT 8.5 reads what Keras 3 writes as it is.
    normalized = target == "10" or not stacks.SAVED_INPUT
    assert "einsum" in facts["tftrt.rewrites"] and ("layer_norm" in facts["tftrt.rewrites"]) == normalized
    assert not {"Einsum", "BatchNormalization", "Shape", "Gather", "Squeeze"} & found.keys() and found["Softmax"] == 1
    if target == "10":
        assert (counted["layer_norm"], counted["gelu"], made["opset"]) == (2, 1, 20)
        assert (
            (found["LayerNormalization"], found["Gelu"]) == (2, 1)
            and "opset 20" in done.stdout
            and facts["tftrt.opset"] == "20"
        )
    else:
        assert counted.get("layer_norm", 0) == normalized and made["opset"] == 16 and "LayerNormalization" not in found


def test_a_suppression_of_classes_passes_with_an_open_batch(tftrt, tmp_path):
    source = onnx_sources.suppression(tmp_path / "saved", "combined open")
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--rewrite=-nms")
    assert done.returncode == 3 and "refused: EyeLike" in done.stdout
    for flags in ([], ["--rewrite=nms"]):
        done = tftrt(
            "export",
            source,
            f"--output={tmp_path / 'm.onnx'}",
            "--shapes=b:3x50x1x4;s:3x50x3",
            "--ranges=b:0:1;s:0:1",
            *flags,
        )
        assert done.returncode == 0 and "1 node by nms" in done.stdout, done.stdout + done.stderr
    found = file.overview(str(tmp_path / "m.onnx")).ops
    assert found["NonMaxSuppression"] == found["TopK"] == 1 and not {"EyeLike", "CumSum", "Range"} & found.keys()
    # In FP16 TensorRT makes 65504 of a larger number: what marks an empty place has to be one that stays itself.
    model = onnx.load(tmp_path / "m.onnx")
    held = [one.t for node in model.graph.node for one in node.attribute if one.type == one.TENSOR]
    floats = [
        numpy_helper.to_array(one) for one in (*model.graph.initializer, *held) if one.data_type == TensorProto.FLOAT
    ]
    assert floats and max(np.abs(one).max() for one in floats) == np.finfo(np.float16).max


def exported(tftrt, source, folder, *flags):
    """({op: count}, what the command printed) of an export that passes."""
    done = tftrt("export", source, f"--output={folder / 'm.onnx'}", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return file.overview(str(folder / "m.onnx")).ops, done.stdout


DILATED = {
    "one dimension": (3, lambda x, f: tf.nn.convolution(x, f[1], padding="SAME", dilations=2)),
    "causal": (3, lambda x, f: tf.keras.layers.Conv1D(5, 3, dilation_rate=4, padding="causal")(x)),
    "two dimensions": (4, lambda x, f: tf.nn.convolution(x, f, padding="SAME", dilations=[2, 3])),
    "without padding": (4, lambda x, f: tf.nn.convolution(x, f, padding="VALID", dilations=[2, 2])),
    "depthwise": (4, lambda x, f: tf.nn.depthwise_conv2d(x, f[..., :1], [1, 1, 1, 1], "SAME", dilations=[2, 2])),
    "of one pixel": (4, lambda x, f: tf.nn.convolution(x, f[:1, :1], padding="SAME", dilations=[2, 2])),
    "behind zeros": (
        4,
        lambda x, f: tf.nn.convolution(tf.pad(x, [[0, 0], [2, 1], [2, 1], [0, 0]]), f, padding="SAME", dilations=2),
    ),
}


def dilated(shape, body, path, keras):
    """A model of Keras, or of a function alone. Returns: the name of its input."""
    if not keras:
        spec = tf.TensorSpec((None, *shape), name="x")
        save(tf.function(lambda x: {"y": body(x)}, autograph=False, input_signature=[spec]), path)
        return "x"
    x = tf.keras.Input(shape, name="x")
    tf.saved_model.save(tf.keras.Model(x, body(x)), str(path))
    return stacks.SAVED_INPUT or "x"


@pytest.mark.parametrize("sizes", ["open", "known"])
@pytest.mark.parametrize("kind", DILATED)
def test_a_convolution_with_dilations_is_one_op_in_the_file(kind, sizes, tftrt, tmp_path):
    """tf2onnx's own form of it has a dozen nodes that compute paddings where sizes are open, and TensorRT 8.5 refuses them."""
    rank, body = DILATED[kind]
    filters = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype("f4")
    size = 16 if sizes == "known" else None
    # Keras 3 takes no function of TensorFlow between its layers.
    keras = not stacks.SAVED_INPUT or kind == "causal"
    name = dilated((*[size] * (rank - 2), 4), lambda x: body(x, filters), tmp_path / "m", keras)
    shapes = f"--shapes={name}:1x{'x'.join(['16'] * (rank - 2))}x4,3x{'x'.join(['16'] * (rank - 2))}x4"
    found, said = exported(tftrt, tmp_path / "m", tmp_path, shapes)
    assert found["Conv"] == 1 and "1 node by dilations" in said
    assert not {"Reshape", "Shape", "Mod", "Sub", "Slice", "Pad"} & found.keys() - (
        {"Pad"} if kind in ("causal", "behind zeros") else set()
    )


REVERSED = {
    "one axis": (lambda x: tf.reverse(x, [1]), (None, 7, 3)),
    "from the end": (lambda x: tf.reverse(x, [-2]), (None, 7, 3)),
    "several": (lambda x: tf.reverse(x, [0, 2]), (None, 7, 3)),
    "open": (lambda x: tf.reverse(x, [1]), (None, None, 3)),
    "whole numbers": (lambda x: tf.cast(tf.reverse(tf.cast(x, tf.int32), [1]), tf.float32), (None, 7, 3)),
}


@pytest.mark.parametrize("kind", REVERSED)
def test_a_tensor_in_the_opposite_order_is_one_slice(kind, tftrt, tmp_path):
    body, shape = REVERSED[kind]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(shape, name="x")])
    def serve(x):
        return {"y": body(x * 4.0) + 1.0}

    save(serve, tmp_path / "m")
    found, said = exported(tftrt, tmp_path / "m", tmp_path, "--shapes=x:1x7x3,4x7x3")
    assert found["Slice"] == 1 and "1 node by reverse" in said
    assert not {"ReverseSequence", "Transpose", "Shape"} & found.keys()
    without = ("--shapes=x:1x7x3,4x7x3", "--rewrite=-reverse,-reverse_sequence", "--allow_refused")
    found, _ = exported(tftrt, tmp_path / "m", tmp_path, *without)
    assert "ReverseSequence" in found


ENLARGED = {
    "open": ((None, None), (2, 2)),
    "open, each side otherwise": ((None, None), (2, 3)),
    "known": ((8, 6), (3, 3)),
}


@stacks.needs_keras_2
@pytest.mark.parametrize("kind", ENLARGED)
def test_a_resize_that_repeats_each_pixel_has_no_half_pixels(kind, tftrt, tmp_path):
    """TensorRT 8.5's parser refuses tf_half_pixel_for_nn with the rounding floor, seen on a GPU."""
    sizes, times = ENLARGED[kind]
    x = tf.keras.Input((*sizes, 3), name="x")
    tf.saved_model.save(
        tf.keras.Model(x, tf.keras.layers.UpSampling2D(times)(tf.keras.layers.ReLU()(x) + 1.0)), str(tmp_path / "m")
    )
    shapes = f"--shapes={stacks.SAVED_INPUT or 'x'}:1x8x6x3,2x8x6x3"
    found, said = exported(tftrt, tmp_path / "m", tmp_path, shapes)
    assert found["Resize"] == 1 and "1 node by nearest" in said
    done = tftrt("export", tmp_path / "m", f"--output={tmp_path / 'n.onnx'}", shapes, "--rewrite=-nearest")
    assert done.returncode == 3 and "the rounding round_prefer_floor alone" in done.stdout + done.stderr


def test_a_resize_between_pixels_is_refused_for_tensorrt_8_5_alone(tftrt, tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 4, 6, 3), name="x")])
    def serve(x):
        return {"y": tf.raw_ops.ResizeNearestNeighbor(images=x, size=(6, 9), half_pixel_centers=True) + 1.0}

    save(serve, tmp_path / "m")
    done = tftrt("export", tmp_path / "m", f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 3 and "Resize: to the nearest pixel by half pixels" in done.stdout + done.stderr
    assert not (tmp_path / "m.onnx").exists()
    found, _ = exported(tftrt, tmp_path / "m", tmp_path, "--target=10")
    assert found["Resize"] == 1


def counting(limit, most=None, first=0, condition=None):
    """A loop of rounds over the rows of x, which gathers what each gives."""

    def body(x):
        last = limit(x) if callable(limit) else limit
        gathered = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=(None, 3))

        def again(number, y, rows):
            return condition(number, y) if condition else number < last

        def round_of(number, y, rows):
            return number + 1, tf.tanh(y * 1.5), rows.write(number - first, y)

        _, y, rows = tf.while_loop(again, round_of, (first, x, gathered), maximum_iterations=most)
        return {"y": y, "rows": rows.stack()}

    return body


# {what: (a body, the rounds that the Loop tells, None for those that the graph computes)}.
COUNTED = {
    "to a number": (counting(5), 5),
    "not from zero": (counting(7, first=3), 4),
    "with a bound above": (counting(5, most=9), 5),
    "with a bound below": (counting(5, most=2), 2),
    "to a size": (counting(lambda x: tf.shape(x)[0] + 2), None),
}
OTHER_LOOPS = {
    "by a multiple": counting(6, condition=lambda number, y: number * 2 < 6),
    "by a value": counting(6, condition=lambda number, y: tf.reduce_sum(tf.abs(y)) > 6.0),
    "by floats": counting(2.5, condition=lambda number, y: tf.cast(number, tf.float32) < 2.5),
    "by both": counting(6, condition=lambda number, y: tf.logical_and(number < 6, tf.reduce_sum(tf.abs(y)) > 1.0)),
}


def loop_of(path):
    model = onnx.load(str(path))
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    (node,) = [one for one in model.graph.node if one.op_type == "Loop"]
    return node, constants.get(node.input[0])


@pytest.mark.parametrize("kind", COUNTED)
def test_a_loop_that_counts_says_how_often_it_runs(kind, tftrt, tmp_path):
    body, rounds = COUNTED[kind]
    serve = tf.function(body, autograph=False, input_signature=[tf.TensorSpec((None, 3), name="x")])
    save(serve, tmp_path / "m")
    _, said = exported(tftrt, tmp_path / "m", tmp_path, "--shapes=x:1x3,4x3", "--ranges=x:1:2")
    node, told = loop_of(tmp_path / "m.onnx")
    assert "1 node by loop_count" in said and node.input[0] and not node.input[1]
    assert told is None if rounds is None else int(told) == rounds


@pytest.mark.parametrize("kind", OTHER_LOOPS)
def test_a_loop_with_another_condition_keeps_it_and_is_named(kind, tftrt, tmp_path):
    serve = tf.function(OTHER_LOOPS[kind], autograph=False, input_signature=[tf.TensorSpec((None, 3), name="x")])
    save(serve, tmp_path / "m")
    _, said = exported(tftrt, tmp_path / "m", tmp_path, "--shapes=x:2x3", "--ranges=x:1:2")
    assert loop_of(tmp_path / "m.onnx")[0].input[1]
    assert "not by loop_count: it goes on by a condition of its own" in said


@stacks.needs_keras_2
@pytest.mark.parametrize("length", [6, None], ids=["known length", "open length"])
def test_a_masked_layer_of_keras_has_a_loop_of_as_many_rounds_as_steps(length, tftrt, tmp_path):
    layers = tf.keras.layers
    ids = tf.keras.Input((length,), dtype="int32", name="ids")
    steps = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(layers.Embedding(9, 3, mask_zero=True)(ids))
    tf.saved_model.save(tf.keras.Model(ids, steps), str(tmp_path / "m"))
    shapes = f"--shapes={stacks.SAVED_INPUT or 'ids'}:1x6,3x6"
    found, said = exported(tftrt, tmp_path / "m", tmp_path, shapes)
    assert "2 nodes by loop_count" in said and "ReverseSequence" not in found


def test_an_input_that_only_conditionals_read_is_named_with_the_flag(tftrt, tmp_path):
    source = unet_with_conditionals(tmp_path / "m")
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert "input training is read by conditionals alone: --freeze=training:false" in done.stdout
    _, said = exported(tftrt, source, tmp_path, "--freeze=training:false")
    assert "read by conditionals alone" not in said


def test_without_rewrites_the_graph_is_as_it_was_exported(tftrt, tmp_path):
    source = onnx_sources.rows(tmp_path / "saved", lambda x: tf.nn.gelu(x) + 3)
    for flags, expected in (
        (["--rewrite=none"], "Erf"),
        ([], "Gelu"),
        (["--opset=18"], "Erf"),
        (["--rewrite=-gelu"], "Erf"),
    ):
        done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--target=11", *flags)
        assert done.returncode == 0 and ("rewritten: " in done.stdout) == (expected == "Gelu")
        assert expected in file.overview(str(tmp_path / "m.onnx")).ops


WIDE = {
    "over the whole width": ((1, 5, 20), (4, 1, 3, 20), {"pads": [1, 0, 1, 0]}),
    "over a part of the width": ((1, 5, 24), (4, 1, 3, 17), {"pads": [1, 0, 1, 0]}),
    "over the height, with padding": ((1, 20, 3), (4, 1, 16, 1), {"pads": [7, 0, 8, 0]}),
    "over the whole height": ((2, 18, 3), (4, 2, 18, 1), {}),
    "with strides and dilations": (
        (3, 9, 40),
        (2, 3, 2, 16),
        {"strides": [2, 3], "dilations": [3, 2], "pads": [0, 4, 1, 5]},
    ),
    "without padding by its name": ((1, 5, 20), (4, 1, 3, 18), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", WIDE)
def test_the_long_side_of_a_kernel_becomes_channels(kind, bias):
    given, kernel, attributes = WIDE[kind]
    net, rng = Net(shape=("batch", *given)), np.random.default_rng(1)
    net(
        "Relu",
        net(
            "Conv",
            "x",
            net.c(rng.standard_normal(kernel)),
            *([net.c(rng.standard_normal(kernel[0]))] if bias else []),
            **attributes,
        ),
    )
    model = net.model()
    wanted = run(model)
    assert registry.IN_GRAPH["wide_conv"](model, "8.5") == 1
    onnx.checker.check_model(
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True), full_check=True
    )
    found = run(model)
    assert found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    (convolution,) = (node for node in model.graph.node if node.op_type == "Conv")
    held = {one.name: list(one.dims) for one in model.graph.initializer}[convolution.input[1]]
    assert held[1] == given[0] * max(given[1:]) and held[3] == 1
    # --fp32_nodes still means the convolution.
    assert convolution.name == "n0" and len({node.name for node in model.graph.node}) == len(model.graph.node)
    (empty,) = onnxruntime.InferenceSession(model.SerializeToString()).run(
        None, {"x": np.zeros((0, *given), np.float32)}
    )
    assert empty.shape == (0, *wanted.shape[1:])


def test_what_a_rewrite_writes_has_no_name_that_is_there_already():
    net = Net(shape=("batch", 1, 5, 20))
    net("Relu", net("Conv", "x", net.c(np.random.default_rng(1).standard_normal((4, 1, 3, 20)))))
    net.constants[0].name = net.nodes[0].input[1] = "t0/kernel"
    net.nodes[1].name, net.nodes[1].output[0] = "n0/turned", "t0/folded"
    model = net.model()
    wanted = run(model)
    assert registry.IN_GRAPH["wide_conv"](model, "8.5") == 1 and np.allclose(run(model), wanted, rtol=1e-4, atol=1e-5)
    onnx.checker.check_model(
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True), full_check=True
    )
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


@pytest.mark.parametrize(
    ("given", "kernel", "attributes"),
    [
        ((8, 5, 20), (4, 8, 3, 20), {}),
        ((2, 5, 20), (4, 1, 3, 20), {"group": 2}),
        ((1, 5, 20), (4, 1, 3, 15), {}),
        ((1, 5, 80), (4, 1, 3, 20), {}),
        ((1, 5, "width"), (4, 1, 3, 20), {}),
        ((1, 5, 20), (4, 1, 3, 20), {"auto_pad": "SAME_UPPER"}),
        ((1, 2, 2000), (4, 1, 2, 1000), {}),
    ],
    ids=["channels", "groups", "short", "much work", "open", "padding by name", "many weights"],
)
def test_other_convolutions_stay(given, kernel, attributes):
    net = Net(shape=("batch", *given))
    net("Conv", "x", net.c(np.ones(kernel)), **attributes)
    assert registry.IN_GRAPH["wide_conv"](net.model(), "8.5") == 0


def test_a_convolution_whose_kernel_is_computed_stays():
    net = Net(shape=("batch", 1, 5, 20))
    net("Conv", "x", net("Mul", net.c(np.ones((4, 1, 3, 20))), net.c(2)))
    assert registry.IN_GRAPH["wide_conv"](net.model(), "8.5") == 0


PADDED = {
    "channels": [0, 0, 1, 1, 0, 0, 1, 1],
    "one side": [0, 0, 1, 0, 0, 0, 0, 0],
    "uneven": [0, 0, 2, 0, 0, 0, 1, 1],
}


def padded(pool="MaxPool", before="Relu", pads=PADDED["channels"], value=0.0, mode="constant", opset=18, **attributes):
    """x [batch, 3, 9, 10] through an op, a padding and a pooling with a window of 3 x 3."""
    net = Net(shape=("batch", 3, 9, 10), opset=opset)
    limits = [net.c(one) for one in {"Clip": (0, 6), "below": (-1, 6), "crossed": (0, -2)}.get(before, ())]
    inner = net("Clip" if limits else "Relu" if before == "turned" else before, "x", *limits) if before else "x"
    inner = net("Transpose", inner, perm=[0, 1, 3, 2]) if before == "turned" else inner
    net(
        pool,
        net("Pad", inner, net.c(pads, np.int64), net.c(value), mode=mode),
        **{"kernel_shape": [3, 3], "strides": [2, 2]} | attributes,
    )
    return net.model()


@pytest.mark.parametrize("pads", PADDED)
@pytest.mark.parametrize(
    ("pool", "before"), [("MaxPool", "Relu"), ("MaxPool", "Clip"), ("MaxPool", "turned"), ("AveragePool", "")]
)
def test_zeros_before_a_pooling_become_its_own_padding(pool, before, pads):
    model = padded(pool, before, PADDED[pads])
    wanted = run(model)
    assert registry.IN_GRAPH["pad_pool"](model, "8.5") == 1 and "Pad" not in ops(model)
    onnx.checker.check_model(
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True), full_check=True
    )
    assert (
        np.array_equal(run(model), wanted)
        if pool == "MaxPool"
        else np.allclose(run(model), wanted, rtol=1e-6, atol=1e-7)
    )


@pytest.mark.parametrize(
    "given",
    [
        {"auto_pad": "VALID"},
        {"pool": "AveragePool", "auto_pad": "VALID"},
        {"pool": "AveragePool", "before": "", "opset": 19},
        {"pool": "AveragePool", "before": "", "opset": 19, "pads": PADDED["one side"], "made": 0},
        {"pool": "AveragePool", "before": "", "opset": 22, "pads": [0, 0, 2, 0, 0, 0, 2, 0], "made": 0},
    ],
    ids=str,
)
def test_a_pooling_that_pads_gives_what_the_padding_before_it_gave(given):
    model = padded(**{name: value for name, value in given.items() if name != "made"})
    wanted = run(model)
    assert registry.IN_GRAPH["pad_pool"](model, "10") == given.get("made", 1)
    assert np.allclose(run(model), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "changed",
    [
        {"before": "Sqrt"},
        {"before": "Abs"},
        {"before": ""},
        {"before": "below"},
        {"before": "crossed"},
        {"value": 1.0},
        {"mode": "reflect"},
        {"pads": [0, 1, 1, 1, 0, 0, 1, 1]},
        {"pads": [0, 0, -1, 1, 0, 0, 1, 1]},
        {"pads": [0, 0, 3, 1, 0, 0, 1, 1]},
        {"pool": "AveragePool", "kernel_shape": [1, 1]},
        {"ceil_mode": 1},
        {"auto_pad": "SAME_UPPER"},
        {"dilations": [2, 2]},
    ],
    ids=str,
)
def test_other_paddings_before_a_pooling_stay(changed):
    assert registry.IN_GRAPH["pad_pool"](padded(**changed), "8.5") == 0


def test_a_rewrite_in_addition_is_made_and_named(tftrt, tmp_path):
    words = [
        "export",
        onnx_files.wide(tmp_path / "m.onnx"),
        f"--output={tmp_path / 'wide.onnx'}",
        "--target=10",
        "--rewrite=+wide_conv",
    ]
    done = tftrt(*words)
    assert done.returncode == 0 and "rewritten: 1 node by wide_conv" in done.stdout and "PASSED" in done.stdout, (
        done.stderr
    )
    assert file.overview(str(tmp_path / "wide.onnx")).ops["Transpose"] == 2


def asked(folder, *names, target="10", raised=False):
    """A Request about m.onnx of a folder."""
    return rewriting.Request(
        onnx=str(folder / "m.onnx"),
        output=str(folder / "out.onnx"),
        weights="",
        rewrites=names,
        target=target,
        raised=raised,
    )


def test_a_file_may_grow_by_a_rewrite_that_is_asked_for(tmp_path):
    net = Net(shape=("batch", 1, 8, 200))
    net("Conv", "x", net.c(np.ones((64, 1, 1, 100))))
    onnx.save(net.model(), tmp_path / "m.onnx")
    done = rewrite_job.job(asked(tmp_path, "wide_conv", target="8.5"))
    assert done.changed and not done.rewrites[0].undone and (tmp_path / "out.onnx").stat().st_size > 4e6


def test_the_names_of_the_rewrites_are_those_that_can_be_made():
    while_converting = {*converting.CONVERTING, *converting.BEFORE}
    assert {*registry.IN_GRAPH, *while_converting} == REWRITES.keys()
    assert {name for name, one in REWRITES.items() if one.converting} == while_converting
    assert all(set(one.default) <= set(one.possible) <= set(TARGETS) for one in REWRITES.values())


def test_which_rewrites_are_made():
    all_of_8_5 = rewriting.chosen((), "8.5")
    assert "gelu" not in all_of_8_5 and "attention" not in all_of_8_5 and {"nms", "fold", "simplify"} <= set(all_of_8_5)
    assert rewriting.chosen(["-nms", "-fold"], "8.5") == tuple(one for one in all_of_8_5 if one not in ("nms", "fold"))
    all_of_10 = rewriting.chosen((), "10")
    assert (
        rewriting.chosen(["+wide_conv"], "10") == (*all_of_10, "wide_conv")
        and "wide_conv" in all_of_8_5
        and "wide_conv" not in all_of_10
    )
    assert "fold" not in rewriting.chosen(["+wide_conv", "-fold"], "10") and rewriting.chosen(["wide_conv"], "8.5") == (
        "wide_conv",
    )
    assert (
        rewriting.chosen(["simplify", "nms"], "8.5") == ("nms", "simplify") and rewriting.chosen(["none"], "8.5") == ()
    )
    assert "nms" not in rewriting.chosen((), "onnxruntime") and "gelu" in rewriting.chosen((), "11")
    assert "gelu" not in rewriting.chosen((), "11", opset=18)


@pytest.mark.parametrize("asked_for", ["einsum", "+nms", "simplify,reverse"])
def test_what_is_made_while_tensorflows_graph_becomes_onnx_is_not_made_in_an_onnx_file(asked_for, capsys, tmp_path):
    """The flag did nothing, and nothing said so."""
    source = onnx_files.product(tmp_path / "in.onnx")
    command = ["export", str(source), f"--output={tmp_path / 'm.onnx'}", f"--rewrite={asked_for}"]
    assert cli.main(command) == 2
    cause, help_text = capsys.readouterr().err.splitlines()
    assert "this model is none of TensorFlow's" in cause and "leave it out" in help_text
    assert rewriting.chosen(["-einsum"], "8.5", converting=False)


@pytest.mark.parametrize(
    ("flags", "said", "mend"),
    [
        (["--rewrite=frobnicate"], "--rewrite: no rewrite 'frobnicate'", f"there are: {', '.join(REWRITES)}, none"),
        (["--rewrite=gelu,-fold"], "--rewrite=gelu,-fold mixes", "those to leave out (-NAME) or to add (+NAME)"),
        (["--rewrite=none,fold"], "mixes", "none"),
        (["--rewrite=gelu"], "TensorRT 8.5 does not take what it writes", "another --target"),
        (["--rewrite=+gelu"], "TensorRT 8.5 does not take what it writes", "another --target"),
        (["--rewrite=+wide"], "no rewrite 'wide'", "wide_conv"),
        (["--rewrite=gelo"], "no rewrite 'gelo'", "did you mean 'gelu'?"),
        (["--rewrite=hardswish"], "no rewrite 'hardswish'", "did you mean 'hard_swish'?"),
        (["--rewrite=++fold"], "no rewrite '+fold'", "did you mean 'fold'?"),
        (["--rewrite=+-fold"], "no rewrite '-fold'", "did you mean 'fold'?"),
        (["--rewrite=+none"], "no rewrite 'none'", "give none alone"),
        (["--rewrite=fold,+wide_conv"], "mixes", "to add (+NAME)"),
        (["--rewrite=+fold,-fold"], "--rewrite=+fold,-fold adds fold and leaves it out", "leave one"),
        (["--rewrite=gelu", "--target=10", "--opset=17"], "writes opset 20, and --opset=17", "leave one"),
    ],
)
def test_rewrites_that_cannot_be_made_are_one_line(flags, said, mend, capsys, tmp_path):
    assert cli.main(["export", str(tmp_path / "none"), f"--output={tmp_path / 'm.onnx'}", *flags]) == 2
    cause, help_text = capsys.readouterr().err.splitlines()
    assert said in cause and mend in help_text


@dataclasses.dataclass(frozen=True)
class Try:
    rewrites: tuple
    problem: str


@pytest.mark.parametrize(
    ("wrong", "kept", "undone"),
    [
        ((), ["nms", "fold", "simplify"], []),
        (("simplify",), ["nms", "fold"], ["simplify"]),
        (("fold",), ["nms"], ["fold", "simplify"]),
    ],
)
def test_a_rewrite_with_other_answers_is_undone_and_named(wrong, kept, undone):
    def attempt(names):
        made.append(names)
        return Try(
            tuple(Rewritten(name=one, nodes=2) for one in names), "y: snr_db is 3" if set(wrong) & set(names) else ""
        )

    made = []
    found, rewrites = rewriting.settle(("nms", "fold", "simplify"), attempt)
    assert [one.name for one in found.rewrites] == kept and not found.problem
    assert {one.name: one.undone for one in rewrites if one.undone} == dict.fromkeys(
        undone, "with it the answers differ: y: snr_db is 3"
    )
    assert len(made) == (2 + len(undone) if undone else 1)


def test_an_export_that_is_wrong_without_rewrites_has_not_been_spoiled_by_them():
    def attempt(names):
        return Try(tuple(Rewritten(name=one, nodes=int(one == "fold")) for one in names), "y: snr_db is 3")

    found, rewrites = rewriting.settle(("nms", "fold", "simplify"), attempt)
    assert found.problem and not rewrites


def test_a_rewrite_that_fails_or_spreads_constants_out_is_left_out(tmp_path, monkeypatch):
    net = Net()
    net(
        "Add",
        net("Mul", "x", net.c(1)),
        net("Expand", net.c(np.ones((1, 3, WIDTH))), net.c([30_000, 3, WIDTH], np.int64)),
    )
    onnx.save(net.model(), tmp_path / "m.onnx")
    done = rewrite_job.job(asked(tmp_path, "fold"))
    assert (
        not done.changed
        and "the file would grow by 2 MB" in done.rewrites[0].undone
        and not (tmp_path / "out.onnx").exists()
    )
    # ONNX has no Gelu in this opset, so the checker refuses it.
    gelu = Net(18)
    GELUS["half last"][0](gelu)
    onnx.save(gelu.model(), tmp_path / "m.onnx")
    done = rewrite_job.job(asked(tmp_path, "gelu", "fold"))
    assert not done.changed and done.rewrites[0].undone.startswith("it failed: ") and not done.rewrites[1].undone
    done = rewrite_job.job(asked(tmp_path, "gelu", raised=True))
    assert done.changed.opset == 20 and not done.rewrites[0].undone
    monkeypatch.setattr(rewrite_job, "_MOST_BYTES", 10)
    done = rewrite_job.job(asked(tmp_path, "gelu"))
    assert not done.changed and "too much for it" in done.rewrites[0].undone


def reverse_sequences(path, shape, time, dtype="float32", rank_known=True):
    """A file that reverses x along an axis by the lengths n."""
    value = {"float32": onnx.TensorProto.FLOAT, "int32": onnx.TensorProto.INT32}[dtype]
    ends = [
        onnx.helper.make_tensor_value_info("x", value, shape),
        onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [shape[1 - time]]),
    ]
    nodes = [
        onnx.helper.make_node("Identity", ["x"], ["a"]),
        onnx.helper.make_node("ReverseSequence", ["a", "n"], ["b"], "turned", batch_axis=1 - time, time_axis=time),
        onnx.helper.make_node("Identity", ["b"], ["y"]),
    ]
    outputs = [onnx.helper.make_tensor_value_info("y", value, shape)]
    graph = onnx.helper.make_graph(nodes, "g", ends, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model) if rank_known else model, path)
    return model


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("tail", [(), (3,), (2, 3)], ids=["2 axes", "3 axes", "4 axes"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_sequences_reversed_by_their_lengths_are_one_gather_of_any_batch(time, tail, dtype, tmp_path):
    shape = ["T", "B", *tail] if time == 0 else ["B", "T", *tail]
    reverse_sequences(tmp_path / "m.onnx", shape, time, dtype)
    model = onnx.load(tmp_path / "m.onnx")
    assert reverse_sequence.rewrite(model, "8.5") == 1
    onnx.checker.check_model(model, full_check=True)
    assert "ReverseSequence" not in {one.op_type for one in model.graph.node}
    session, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng(0)
    for batch, steps in ((1, 1), (4, 6), (3, 1), (0, 5), (2, 0)):
        sizes = [steps, batch] if time == 0 else [batch, steps]
        x = rng.normal(size=(*sizes, *tail)).astype(dtype)
        if dtype == "float32" and x.size:
            x.flat[0], x.flat[-1] = np.nan, np.inf
        lengths = rng.integers(0, steps + 1, batch)
        # TensorFlow's own answer: ONNX Runtime 1.23.2 answers otherwise for sequences of length 0.
        wanted = tf.reverse_sequence(x, lengths, seq_axis=time, batch_axis=1 - time).numpy()
        np.testing.assert_array_equal(session.run(None, {"x": x, "n": lengths})[0], wanted)


def test_sequences_of_an_unknown_rank_stay_and_are_named(tmp_path):
    reverse_sequences(tmp_path / "m.onnx", ["B", "T", 3], 1, rank_known=False)
    model = onnx.load(tmp_path / "m.onnx")
    assert reverse_sequence.rewrite(model, "8.5") == 0
    assert list(reverse_sequence.missed(model, "8.5")) == [("turned", "how many dimensions its data has is not known")]


def test_an_op_of_another_domain_is_not_taken_for_onnxs(tmp_path):
    reverse_sequences(tmp_path / "m.onnx", ["B", "T", 3], 1)
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.node[1].domain = "mine"
    assert reverse_sequence.rewrite(model, "8.5") == 0 and not list(reverse_sequence.missed(model, "8.5"))
    assert model.graph.node[1].op_type == "ReverseSequence"


def test_reversed_sequences_of_an_open_batch_are_exported_for_tensorrt_8_5(tftrt, tmp_path):
    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec((None, None, 3), name="x"), tf.TensorSpec((None,), tf.int32, name="n")],
    )
    def serve(x, n):
        return {"y": tf.reverse_sequence(x * 2.0, n, seq_axis=1, batch_axis=0) + 1.0}

    save(serve, tmp_path / "m")
    flags = ("--shapes=x:4x7x3;n:4", "--ranges=n:0:7")
    found, said = exported(tftrt, tmp_path / "m", tmp_path, *flags)
    assert found["GatherElements"] == 1 and "1 node by reverse_sequence" in said and "ReverseSequence" not in found
    done = tftrt(
        "export",
        tmp_path / "m",
        f"--output={tmp_path / 'n.onnx'}",
        *flags,
        "--target=8.5",
        "--rewrite=-reverse_sequence",
    )
    assert (
        done.returncode == 3 and "how many sequences there are (the batch) has to be known, and is open" in done.stdout
    )
    # They are no lists of tensors.
    said = done.stdout + done.stderr
    assert "give the sequences a number that is known" in said and "lists of tensors" not in said


def suppressed(limit, boxes=12):
    """A NonMaxSuppression of boxes [1, boxes, 4], which are the input, with a limit; as floats, because that is what `Net` gives."""
    net = Net(shape=(1, boxes, 4))
    scores = net("Transpose", net("ReduceMax", "x", net.c([-1], np.int64), keepdims=1), perm=[0, 2, 1])
    chosen = net("NonMaxSuppression", "x", scores, net.c(limit, np.int64), net.c(0.3), net.c(-9.0), center_point_box=1)
    net("Cast", chosen, to=TensorProto.FLOAT)
    return net.model()


@pytest.mark.parametrize("limit", [2**63 - 1, [13]])
def test_a_limit_beyond_the_boxes_is_their_number(limit):
    model = suppressed(limit)
    wanted = run(model)
    assert registry.IN_GRAPH["nms_limit"](model, "8.5") == 1
    (node,) = (one for one in model.graph.node if one.op_type == "NonMaxSuppression")
    held = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    assert held[node.input[2]] == [12] and not any((value == limit).any() for value in held.values())
    onnx.checker.check_model(model, full_check=True)
    assert np.array_equal(run(model), wanted) and len(wanted) > 1


def test_limits_that_count_and_boxes_whose_number_is_open_stay():
    assert registry.IN_GRAPH["nms_limit"](suppressed(12), "8.5") == 0
    assert registry.IN_GRAPH["nms_limit"](suppressed(2**63 - 1, "boxes"), "8.5") == 0


def unread(model):
    """What the parser of TensorRT 8 would not read of its nodes."""
    return [one.unread for one in model_file.nodes(model) if one.unread]


@pytest.mark.parametrize(
    ("op", "given", "said"),
    [
        (
            "ScatterElements",
            {"reduction": "add"},
            ["the parser does not read its reduction (add), and would overwrite"],
        ),
        ("ScatterElements", {"reduction": "none"}, []),
        ("ScatterND", {"reduction": "mul"}, ["the parser does not read its reduction (mul), and would overwrite"]),
        ("ScatterND", {}, []),
        ("LSTM", {"layout": 1}, ["the parser does not read its layout, and would take the batch for the time"]),
        ("GRU", {"layout": 1}, ["the parser does not read its layout, and would take the batch for the time"]),
        ("LSTM", {"layout": 0}, []),
    ],
)
def test_an_attribute_that_the_parser_does_not_read_is_named(op, given, said):
    net = Net()
    second = net.c(np.zeros((1, 3, 1)), np.int64) if op.startswith("Scatter") else "x"
    net(op, "x", second, "x", **given)
    assert unread(net.model()) == said


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"start": 1, "end": 2}, [5]),
        ({"start": -2}, [5, 3]),
        ({"end": -1}, [2, 5]),
        ({"start": 2, "end": 9}, [3]),
        ({"start": 2, "end": 1}, []),
    ],
)
def test_the_sizes_of_some_dimensions_are_a_slice_of_all(given, part):
    net = Net(shape=("n", 5, 3))
    net("Cast", net("Shape", "x", **given), to=TensorProto.FLOAT)
    model = net.model()
    assert unread(model) == ["of some sizes (start, end) the parser gives all"]
    assert registry.IN_GRAPH["shape_part"](model, "8.5") == 1
    onnx.checker.check_model(model, full_check=True)
    (node,) = (one for one in model.graph.node if one.op_type == "Shape")
    assert not node.attribute and not unread(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"x": np.zeros((2, 5, 3), np.float32)})
    np.testing.assert_array_equal(found, part)


@pytest.mark.parametrize("given", [{}, {"start": 0}, {"end": 3}, {"start": -3, "end": 7}])
def test_a_shape_that_gives_all_sizes_stays(given):
    net = Net(shape=("n", 5, 3))
    net("Cast", net("Shape", "x", **given), to=TensorProto.FLOAT)
    model = net.model()
    assert not unread(model)
    assert registry.IN_GRAPH["shape_part"](model, "8.5") == 0


def normalized(dtype, scale=None):
    """x as `dtype`, normalized with scales 1.5, -2 and 0.25, unless they are computed (the name of a tensor)."""
    net = Net(opset=16, shape=("n", 3, 4, 5))
    x = net("Cast", "x", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    constants = [net.c(values, dtype) for values in ([1.5, -2, 0.25], [0.5, 0, -1])]
    if scale:
        constants[0] = net("Mul", constants[0], constants[0])
    net("Cast", net("InstanceNormalization", x, *constants, epsilon=1e-3), to=TensorProto.FLOAT)
    return net.model()


@pytest.mark.parametrize("within", [False, True])
def test_a_default_that_is_not_the_parsers_is_written(within):
    nodes = [helper.make_node("Trilu", ["x"], ["t"], name="upper")]
    if within:
        kept = helper.make_node("Identity", ["x"], ["e"])
        branches = {
            name: helper.make_graph(inner, name, [], [helper.make_tensor_value_info(end, TensorProto.FLOAT, None)])
            for name, inner, end in (("then_branch", nodes, "t"), ("else_branch", [kept], "e"))
        }
        nodes = [helper.make_node("If", ["yes"], ["t"], name="if", **branches)]
    net = Net(shape=("n", 4, 4))
    net.constants.append(numpy_helper.from_array(np.array(True), "yes"))
    net.nodes += nodes
    model = net.model()
    assert unread(model) == ["it leaves out upper, which is 1 then, and the parser takes 0"]
    assert not unread(rewritten("defaults", model)) and "defaults" in rewriting.chosen((), "10")
    assert registry.IN_GRAPH["defaults"](rewritten("defaults", model), "10") == 0


def test_a_roi_align_without_a_count_of_samples_gets_onnxs():
    net = Net(opset=16, shape=(1, 2, 8, 8))
    net("RoiAlign", "x", net.c([[0, 0, 5, 6], [1, 1, 7, 7]]), net.c([0, 0], np.int64), output_height=2, output_width=2)
    model = net.model()
    assert unread(model) == ["it leaves out sampling_ratio, which is 0 then, and the parser takes 1"]
    assert not unread(rewritten("defaults", model))


def test_an_instance_normalization_in_float16_is_one_in_float32():
    model, plain = normalized(np.float16), normalized(np.float32)
    assert unread(model) == ["the parser reads its scales as float32, and they are float16"] and not unread(plain)
    assert registry.IN_GRAPH["instance_norm"](plain, "8.5") == 0
    assert registry.IN_GRAPH["instance_norm"](model, "8.5") == 1
    onnx.checker.check_model(model, full_check=True)
    assert not unread(model)
    (node,) = (one for one in model.graph.node if one.op_type == "InstanceNormalization")
    assert node.name == next(one.name for one in plain.graph.node if one.op_type == "InstanceNormalization")
    x = np.random.default_rng(0).normal(3, 2, (2, 3, 4, 5)).astype(np.float32)
    found, wanted = (
        onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0] for one in (model, plain)
    )
    np.testing.assert_allclose(found, wanted, atol=5e-3)


def test_an_instance_normalization_whose_scales_are_computed_stays_and_is_named():
    model = normalized(np.float16, scale="computed")
    assert registry.IN_GRAPH["instance_norm"](model, "8.5") == 0
    assert unread(model) == ["the parser reads its scales as float32, and they are float16"]


def test_a_tensor_that_is_named_as_a_new_one_would_be_is_another(tmp_path):
    reverse_sequences(tmp_path / "m.onnx", ["B", "T", 3], 1)
    model = onnx.load(tmp_path / "m.onnx")
    for node in model.graph.node:
        node.input[:] = ["b/sizes" if name == "a" else name for name in node.input]
        node.output[:] = ["b/sizes" if name == "a" else name for name in node.output]
    model = onnx.shape_inference.infer_shapes(model)
    assert reverse_sequence.rewrite(model, "8.5") == 1
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    (found,) = session.run(None, {"x": x, "n": np.array([2, 1])})
    np.testing.assert_array_equal(found, [x[0, ::-1], x[1]])
    assert not any("\0" in name for node in model.graph.node for name in (*node.input, *node.output))
