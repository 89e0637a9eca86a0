"""Two rewrites of exported graphs: hard swishes and hard sigmoids as one op, and constant scales and shifts around convolutions in their weights."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests import onnx_files
from tests.rooms.tensorrt.test_export_rewrites import WIDTH, Net, ops, run
from tftrt_tools.tensorrt.exporting.job.rewrites import registry

PICTURE = ("batch", 4, 9, 9)


def swish(net, x, shift=3.0, limits=(0.0, 6.0), number=6.0, form="product first"):
    gate = net("Clip", net("Add", x, net.c(shift)), net.c(limits[0]), net.c(limits[1]))
    if form == "product first":
        return net("Div", net("Mul", x, gate), net.c(number))
    if form == "gate first":
        return net("Mul", net("Div", gate, net.c(number)), x)
    assert form == "sixth"
    return net("Mul", net("Mul", gate, x), net.c(1 / number))


def same(name, model, nodes, target="8.5"):
    """The model with a rewrite that changes so many nodes; its answers are those of the model."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    assert registry.IN_GRAPH[name](made, target) == nodes
    inferred = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    onnx.checker.check_model(inferred, full_check=True)
    np.testing.assert_allclose(run(made), run(model), rtol=2e-5, atol=2e-5)
    return made


@pytest.mark.parametrize("form", ["product first", "gate first", "sixth"])
def test_a_hard_swish_is_one_op(form):
    net = Net()
    swish(net, net("Mul", "x", net.c(4.0)), form=form)
    assert ops(same("hard_swish", net.model(), 1)) == ["Mul", "HardSwish", "Identity"]


def test_a_scale_behind_a_hard_swish_stays_beside_it():
    net = Net()
    net("Mul", net.c([0.25]), swish(net, "x"))
    assert ops(same("hard_swish", net.model(), 1)) == ["HardSwish", "Mul", "Identity"]


def test_a_hard_sigmoid_is_one_op_and_that_of_a_hard_swish_is_not_counted():
    net = Net()
    gate = net("Div", net("Clip", net("Add", "x", net.c(3.0)), net.c(0.0), net.c(6.0)), net.c(6.0))
    net("Add", gate, swish(net, "x"))
    assert ops(same("hard_swish", net.model(), 2)) == ["HardSigmoid", "HardSwish", "Add", "Identity"]


def test_a_hard_sigmoid_that_others_read_too():
    net = Net()
    gate = net("Div", net("Clip", net("Add", "x", net.c(3.0)), net.c(0.0), net.c(6.0)), net.c(6.0))
    net("Add", gate, net("Mul", "x", gate))
    made = same("hard_swish", net.model(), 1)
    assert sorted(ops(made)) == ["Add", "HardSigmoid", "Identity", "Mul"]


@pytest.mark.parametrize(
    "changed",
    [{"shift": 2.0}, {"limits": (0.0, 5.0)}, {"limits": (-1.0, 6.0)}, {"number": 5.0}, {"shift": [[[[3.0]]]]}],
    ids=str,
)
def test_what_only_resembles_a_hard_swish_stays(changed):
    net = Net()
    swish(net, "x", **changed)
    same("hard_swish", net.model(), 0)


def test_another_factor_is_no_hard_swish():
    net = Net()
    gate = net("Clip", net("Add", "x", net.c(3.0)), net.c(0.0), net.c(6.0))
    net("Div", net("Mul", net("Exp", "x"), gate), net.c(6.0))
    same("hard_swish", net.model(), 0)


def conv(net, x, kernel=(6, 4, 3, 3), bias=True, seed=0, **given):
    rng = np.random.default_rng(seed)
    more = [net.c(rng.standard_normal(kernel[0]))] if bias else []
    return net("Conv", x, net.c(rng.standard_normal(kernel)), *more, **given)


def floats(*shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape) + 2


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "values",
    [2.5, floats(1), floats(6, 1, 1), floats(1, 6, 1, 1), floats(1, 1, 1, 1)],
    ids=lambda one: str(np.shape(one)),
)
@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub", "turned Mul", "turned Add", "turned Sub"])
def test_a_constant_behind_a_convolution_is_in_its_weights(op, values, bias):
    net = Net(shape=PICTURE)
    out = conv(net, "x", bias=bias, pads=[1, 1, 1, 1])
    pair = (out, net.c(values))
    net(op.split()[-1], *(pair[::-1] if op.startswith("turned") else pair))
    made = same("conv_scale", net.model(), 1)
    assert ops(made) == ["Conv", "Identity"]
    # By this name people choose its precision.
    assert made.graph.node[0].name == "n0"


@pytest.mark.parametrize("group, kernel", [(1, (6, 4, 3, 3)), (4, (4, 1, 3, 3)), (2, (6, 2, 1, 1))])
def test_constants_on_both_sides_of_a_convolution(group, kernel):
    net = Net(shape=PICTURE)
    x = net("Add", net("Mul", "x", net.c(floats(4, 1, 1))), net.c(floats(4, 1, 1, seed=6)))
    out = conv(net, x, kernel, group=group)
    net("Sub", net.c(0.5), net("Mul", out, net.c(floats(kernel[0], 1, 1))))
    assert ops(same("conv_scale", net.model(), 1)) == ["Conv", "Identity"]


def test_a_shift_in_front_of_a_padding_stays_and_a_scale_does_not():
    net = Net(shape=PICTURE)
    conv(net, net("Mul", net("Add", "x", net.c(1.0)), net.c(3.0)), pads=[1, 1, 1, 1])
    assert ops(same("conv_scale", net.model(), 1)) == ["Add", "Conv", "Identity"]
    net = Net(shape=PICTURE)
    conv(net, net("Add", "x", net.c(1.0)), auto_pad="SAME_UPPER")
    same("conv_scale", net.model(), 0)


def test_a_constant_between_two_convolutions_is_taken_once():
    net = Net(shape=PICTURE)
    conv(net, net("Mul", conv(net, "x"), net.c(3.0)), (5, 6, 1, 1), seed=1)
    assert ops(same("conv_scale", net.model(), 1)) == ["Conv", "Conv", "Identity"]


def test_what_others_read_or_what_is_no_channels_constant_stays():
    net = Net(shape=PICTURE)
    out = conv(net, "x")
    net("Add", net("Mul", out, net.c(2.0)), net("Exp", out))
    same("conv_scale", net.model(), 0)
    for values in (floats(7), floats(1, 1, 7, 7), floats(1, 1, 6, 1, 1), floats(2, 6, 1, 1)):
        net = Net(shape=(2, *PICTURE[1:]))
        net("Mul", conv(net, "x"), net.c(values))
        same("conv_scale", net.model(), 0)
    net = Net(shape=PICTURE)
    out = conv(net, "x")
    net("Mul", out, out)
    same("conv_scale", net.model(), 0)


def test_numbers_that_float32_cannot_hold_stay():
    net = Net(shape=PICTURE)
    net("Mul", net("Mul", conv(net, "x"), net.c(1e38)), net.c(1e-38))
    same("conv_scale", net.model(), 1)
    net = Net(shape=PICTURE)
    net("Mul", conv(net, "x"), net.c(3e38))
    assert registry.IN_GRAPH["conv_scale"](net.model(), "8.5") == 0
    net = Net(shape=PICTURE)
    net("Div", conv(net, "x"), net.c(0.0))
    assert registry.IN_GRAPH["conv_scale"](net.model(), "8.5") == 0


def test_a_tensor_that_is_an_output_stays():
    net = Net(shape=PICTURE)
    inner = conv(net, "x")
    net("Mul", inner, net.c(2.0))
    model = net.model(more=[inner])
    assert registry.IN_GRAPH["conv_scale"](model, "8.5") == 0
    net = Net(shape=PICTURE)
    inner = net("Mul", "x", net.c(2.0))
    conv(net, inner)
    assert registry.IN_GRAPH["conv_scale"](net.model(more=[inner]), "8.5") == 0


def test_weights_that_two_convolutions_share_are_changed_for_one():
    net = Net(shape=PICTURE)
    kernel = net.c(np.random.default_rng(0).standard_normal((6, 4, 3, 3)))
    first = net("Mul", net("Conv", "x", kernel), net.c(3.0))
    net("Add", first, net("Conv", "x", kernel))
    assert ops(same("conv_scale", net.model(), 1)).count("Mul") == 0


def grey(net, x, op="Mul", kernel=(6, 3, 3, 3)):
    """One channel, spread to three by a constant, into a convolution of three."""
    return conv(net, net(op, x, net.c(floats(3, 1, 1))), kernel)


@pytest.mark.parametrize("op", ["Mul", "Add"])
@pytest.mark.parametrize("shape", [("batch", 1, 9, 9), ("batch", "channels", 9, 9)], ids=str)
def test_a_constant_that_spreads_one_channel_stays(op, shape):
    net = Net(shape=shape)
    grey(net, "x", op)
    made = net.model()
    wanted = ops(made)
    assert registry.IN_GRAPH["conv_scale"](made, "8.5") == 0 and ops(made) == wanted


def test_a_constant_that_adds_a_dimension_stays():
    net = Net(shape=(3, 9, 9))
    conv(net, net("Mul", "x", net.c(floats(1, 3, 1, 1))), (6, 3, 3, 3))
    assert registry.IN_GRAPH["conv_scale"](net.model(), "8.5") == 0


@pytest.mark.parametrize("form", ["product first", "gate first", "sixth"])
def test_a_six_of_more_dimensions_than_x_is_no_hard_swish(form):
    net = Net(shape=("batch", 5))
    swish(net, "x", number=np.float32([[[6.0]]]), form=form)
    same("hard_swish", net.model(), 0)


def test_a_half_or_a_gamma_of_more_dimensions_than_x_is_none_either():
    net = Net(opset=20, shape=(2, WIDTH))
    half = net.c([[[0.5]]])
    net("Mul", net("Mul", "x", net("Add", net("Erf", net("Div", "x", net.c(2**0.5))), net.c(1.0))), half)
    same("gelu", net.model(), 0, "10")
    net = Net(shape=(2, WIDTH))
    centred = net("Sub", "x", net.mean("x"))
    deviation = net("Sqrt", net("Add", net.mean(net("Mul", centred, centred)), net.c(1e-5)))
    net("Mul", net("Div", centred, deviation), net.c(floats(1, 1, WIDTH)))
    same("layer_norm", net.model(), 0, "10")


def test_weights_in_float16_stay():
    kernel = helper.make_tensor("k", TensorProto.FLOAT16, (1, 1, 1, 1), [2.0])
    scale = helper.make_tensor("s", TensorProto.FLOAT16, (), [2.0])
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, (1, 1, 3, 3)) for name in "xy"]
    nodes = [helper.make_node("Conv", ["x", "k"], ["t"]), helper.make_node("Mul", ["t", "s"], ["y"])]
    graph = helper.make_graph(nodes, "g", io[:1], io[1:], [kernel, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert registry.IN_GRAPH["conv_scale"](model, "8.5") == 0


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_an_exported_mobile_net_has_one_convolution_and_one_hard_swish_in_a_block(precision, tftrt, tmp_path):
    source, place = onnx_files.mobile(tmp_path / "m.onnx"), tmp_path / "file.onnx"
    done = tftrt("export", source, f"--output={place}", f"--precision={precision}", "--target=8.5")
    assert done.returncode == 0 and "4 nodes by hard_swish" in done.stdout and "4 nodes by conv_scale" in done.stdout, (
        done.stdout + done.stderr
    )
    listed = [one for one in ops(onnx.load(place)) if one != "Cast"]
    # The scale behind a hard swish stays in front of a convolution that does not pad; this one pads zeros, which no scale changes.
    assert listed == [*["Conv", "HardSwish"] * 4, "Mul"], listed
