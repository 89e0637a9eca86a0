"""The share by computation: counted as TensorFlow's own statistics count, and known for known networks."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.command_here import run_tftrt
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.flops import Flops, together
from tftrt_tools.models.savedmodel.job import flop_count
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.conversion.job import graph_pass, loop_flops, planner
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult


def counted(body, *shapes, sizes=None):
    """Flops of a function of float tensors, of which nothing is in an engine; sizes: {placeholder: shape}."""
    specs = [tf.TensorSpec(shape, name=f"x{index}") for index, shape in enumerate(shapes)]
    graph_def = tf.function(body, autograph=False, input_signature=specs).get_concrete_function().graph.as_graph_def()
    return flop_count.count(graph_def, graph_def, sizes or {})


def of_tensorflow(body, *shapes):
    with tf.Graph().as_default() as graph:
        body(*[tf.compat.v1.placeholder(tf.float32, shape) for shape in shapes])
    counts = [
        tf_private.ops.get_stats_for_node_def(graph, node, "flops").value
        for node in graph.as_graph_def().node
        if node.op in flop_count.OPS
    ]
    return sum(counts)


CASES = {
    "Conv2D": (lambda x, w: tf.nn.conv2d(x, w, (1, 2), "SAME", dilations=1), (2, 9, 8, 6), (3, 2, 6, 4)),
    "Conv2D of groups": (lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"), (2, 9, 8, 6), (3, 2, 3, 4)),
    "Conv3D": (lambda x, w: tf.nn.conv3d(x, w, (1, 1, 2, 1, 1), "SAME"), (2, 5, 6, 7, 3), (2, 3, 1, 3, 4)),
    "DepthwiseConv2dNative": (
        lambda x, w: tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), "VALID"),
        (2, 9, 8, 6),
        (3, 2, 6, 2),
    ),
    "Conv2DBackpropInput": (
        lambda x, w: tf.nn.conv2d_transpose(x, w, (2, 8, 6, 5), 2, "SAME"),
        (2, 4, 3, 7),
        (3, 2, 5, 7),
    ),
    "MatMul": (lambda x, y: tf.matmul(x, y, transpose_a=True), (5, 3), (5, 4)),
    "BatchMatMulV2": (lambda x, y: tf.matmul(x, y, transpose_b=True), (2, 1, 5, 3), (3, 4, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_counted_as_tensorflow_counts(case):
    assert counted(*CASES[case]) == Flops(inside=0, total=of_tensorflow(*CASES[case]))


def test_products_that_grappler_folds_into_filters_are_known(tmp_path):
    """As Keras 3 exports a BatchNormalization: the pass multiplies the filters, and calls the convolution like the product."""
    rng = np.random.default_rng(0)
    filters, plane, rows, dense = (
        tf.Variable(rng.normal(size=shape).astype("f4")) for shape in ((3, 3, 3, 8), (3, 3, 8, 1), (3, 8, 6), (6, 4))
    )
    variances = [tf.Variable(rng.uniform(0.5, 1, size=size).astype("f4")) for size in (8, 8, 6, 4)]

    def normalized(x, variance):
        return tf.nn.relu(x * tf.math.rsqrt(tf.reshape(variance, [1] * (len(x.shape) - 1) + [-1]) + 1e-3) - 0.5)

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 3), name="x")])
    def serve(x):
        h = normalized(tf.nn.conv2d(x, filters, 1, "VALID"), variances[0])
        h = normalized(tf.nn.depthwise_conv2d(h, plane, (1, 1, 1, 1), "SAME"), variances[1])
        h = normalized(tf.nn.conv1d(tf.reduce_mean(h, 1), rows, 1, "SAME"), variances[2])
        return {"y": tf.nn.softmax(normalized(tf.reduce_mean(h, 1) @ dense * 2.0, variances[3]))}

    known = 2 * (36 * 8 * 27 + 36 * 8 * 9 + 6 * 6 * 3 * 8 + 6 * 4)
    frozen = graph_pass.freeze("serve", serve.get_concrete_function())
    for dynamic in (False, True):
        passed = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic))
        one = flop_count.count(frozen.graph_def, passed.graph_def, frozen.one_row(()))
        assert (one.total, one.unknown) == (known, ()) and one.inside > 0
        before = {node.name: node.op for node in frozen.graph_def.node}
        assert [
            node for nodes in flop_count._counted(passed.graph_def) for node in nodes if before[node.name] != node.op
        ]
    kept = graph_pass.run(frozen, Settings(minimum_segment_size=10**6))
    assert flop_count.count(frozen.graph_def, kept.graph_def, frozen.one_row(())) == Flops(inside=0, total=known)


def test_what_tensorflow_does_not_count():
    assert counted(lambda x, y: tf.matmul(x, y, transpose_a=True), (2, 5, 3), (2, 5, 4)).total == 2 * 2 * 3 * 4 * 5
    assert counted(lambda x, y: tf.einsum("abc,cde->abde", x, y), (2, 3, 4), (4, 5, 6)).total == 2 * (2 * 3 * 5 * 6) * 4
    assert (
        counted(lambda x, y: tf.einsum("...ab,bc->...ac", x, y), (7, 2, 3, 4), (4, 5)).total == 2 * (7 * 2 * 3 * 5) * 4
    )
    assert counted(lambda x: tf.einsum("ab->ba", x), (2, 3)).total == 0
    transposed = lambda x, w: tf.nn.conv3d_transpose(x, w, (1, 4, 6, 8, 5), 2, "SAME")
    assert counted(transposed, (1, 2, 3, 4, 7), (3, 2, 1, 5, 7)).total == 2 * (2 * 3 * 4 * 7) * (3 * 2 * 1 * 5)
    nchw = lambda x, w: tf.nn.conv2d(x, w, 1, "VALID", data_format="NCHW")
    assert counted(nchw, (2, 6, 9, 8), (3, 2, 6, 4)).total == 2 * (2 * 4 * 7 * 7) * 3 * 2 * 6


def test_open_sizes_are_told_and_given_ones_are_taken():
    dense = lambda x: tf.matmul(x, tf.ones((4, 8)), name="dense")
    open_one = counted(dense, (None, 4))
    assert (open_one.total, open_one.unknown, open_one.share, open_one.text()) == (0, ("dense",), None, "not known")
    assert open_one.note() == "FLOPs are not known: the sizes of dense are open"
    assert counted(dense, (None, 4), sizes={"x0": (3, 4)}) == Flops(inside=0, total=2 * 3 * 4 * 8)
    # A size that the graph refuses is as good as none.
    assert counted(dense, (None, 4), sizes={"x0": (3, 5)}).unknown == ("dense",)


def test_of_a_loop_the_first_round_is_counted():
    def body(x):
        return tf.while_loop(
            lambda i, _: i < 5, lambda i, y: (i + 1, tf.matmul(y, tf.ones((4, 4)), name="step")), (0, x)
        )[1]

    with tf.Graph().as_default() as graph:
        tf.compat.v1.disable_control_flow_v2()
        try:
            body(tf.compat.v1.placeholder(tf.float32, (1, 4)))
        finally:
            tf.compat.v1.enable_control_flow_v2()
    graph_def = graph.as_graph_def()
    one = flop_count.count(graph_def, graph_def, {})
    assert (one.total, one.loops) == (2 * 4 * 4, ("while/step",)) and "first round" in one.note()
    # A loop that stayed a function is not looked into.
    assert counted(body, (1, 4)).unknown


@pytest.mark.parametrize(
    ("shape", "calls"), [((None, 5, 4), ()), ((None, None, 4), ({"x": (8, 5, 4)},))], ids=["known", "asked for"]
)
def test_each_round_of_a_loop_counts_where_the_sizes_of_a_call_are_known(shape, calls):
    lstm = tf.keras.layers.LSTM(8)
    frozen = graph_pass.freeze(
        "serve", tf.function(lstm, input_signature=[tf.TensorSpec(shape, name="x")]).get_concrete_function()
    )
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    specs = [InputSpec("x", "float32", shape)]
    once = flop_count.count(frozen.graph_def, passed.graph_def, frozen.one_row(calls))
    every = loop_flops.count(frozen, passed.graph_def, specs, calls)
    step = 2 * (4 * 32 + 8 * 32)
    assert (
        once.total == step
        and len(once.loops) == 2
        and every.total == 5 * step
        and (every.loops, every.rounds) == ((), once.loops)
    )
    assert (
        every.inside == 5 * once.inside
        and "all rounds of a call" in every.note()
        and Flops.from_dict(every.to_dict()) == every
    )
    if not calls:
        return
    unknown = loop_flops.count(frozen, passed.graph_def, specs, ())
    assert unknown.unknown and not unknown.rounds and unknown.text() == "not known"


def test_a_loop_whose_sizes_grow_counts_each_round_as_it_is():
    def body(x):
        grown = tf.while_loop(
            lambda y: tf.shape(y)[1] < 5,
            lambda y: (tf.concat([y, tf.matmul(y, tf.ones((1, 4, 4)), name="step")[:, :1]], 1),),
            (x,),
            shape_invariants=(tf.TensorShape((None, None, 4)),),
        )[0]
        return {"y": grown}

    frozen = graph_pass.freeze(
        "serve", tf.function(body, input_signature=[tf.TensorSpec((None, 2, 4), name="x")]).get_concrete_function()
    )
    found = loop_flops.count(frozen, frozen.graph_def, [InputSpec("x", "float32", (None, 2, 4))], ())
    assert found.total == 2 * 4 * 4 * (2 + 3 + 4) and len(found.rounds) == 1


def test_an_lstm_and_a_lookup_have_sizes():
    lstm = tf.keras.layers.LSTM(8)
    one = tf.function(lstm, input_signature=[tf.TensorSpec((None, None, 4), name="x")]).get_concrete_function()
    graph_def = tf_private.freeze(one)[0]
    assert flop_count.count(graph_def, graph_def, {}).unknown
    counts = flop_count.count(graph_def, graph_def, {"x": (1, 5, 4)})
    # Keras traces a step outside the loop as well, which the pass would take away.
    assert counts.total == 2 * 2 * (4 * 32 + 8 * 32) and len(counts.loops) == 2 and not counts.unknown

    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1.0])), 0.0)
    found = tf.function(lambda x: tf.matmul(table.lookup(x), tf.ones((3, 2)))).get_concrete_function(
        tf.TensorSpec((2, 3), tf.string)
    )
    graph_def = found.graph.as_graph_def()
    assert flop_count.count(graph_def, graph_def, {}).total == 2 * 2 * 2 * 3


def test_resnet50_has_its_known_computation(tmp_path):
    """4.1 G multiplications with additions at 224 x 224 (He et al. 2015 give 3.8 for the variant with strides in the first convolutions,
    which this one is)."""
    with tf.device("/CPU:0"):
        model = tf.keras.applications.ResNet50(weights=None)
    function = tf.function(model).get_concrete_function(tf.TensorSpec((1, 224, 224, 3)))
    graph_def = tf_private.freeze(function)[0]
    assert flop_count.count(graph_def, graph_def, {}).total / 2 == pytest.approx(3.86e9, rel=0.01)


def test_a_plan_counts_what_is_inside(zoo_model):
    [digits] = planner.plan(zoo_model("digits_cnn"), Settings()).signatures
    assert digits.flops.inside == digits.flops.total > 0 and digits.flops.share == 1.0
    [kept] = planner.plan(zoo_model("digits_cnn"), Settings(keep_native_ops=("Conv2D",))).signatures
    assert 0 < kept.flops.inside < kept.flops.total == digits.flops.total


def test_sums_and_old_manifests():
    assert together([None, None]) is None and together([]) is None
    assert together([Flops(inside=1, total=2), None, Flops(inside=3, total=4, unknown=("a",), loops=("b",))]) == Flops(
        inside=4, total=6, unknown=("a",), loops=("b",)
    )
    assert Flops(inside=0, total=0).share is None and Flops(inside=0, total=0).text() == "none to do"
    assert (
        Flops(inside=1, total=4).text() == "25% of 4" and Flops(inside=0, total=8_180_000_000).text() == "0% of 8.18 G"
    )
    plain = SignatureResult.untouched("f", ()).to_dict()
    assert SignatureResult.from_dict({key: value for key, value in plain.items() if key != "flops"}).flops is None
    assert Flops.from_dict(json.loads(json.dumps(Flops(inside=1, total=2, unknown=("a",)).to_dict()))) == Flops(
        inside=1, total=2, unknown=("a",)
    )


def test_the_commands_print_it_and_the_manifest_keeps_it(converted, zoo_model, tmp_path):
    model = converted("digits_cnn")
    manifest = json.loads((model / "assets.extra/tftrt/manifest.json").read_text())
    assert manifest["flops"]["share"] == 1.0 and manifest["flops"] == manifest["signatures"][0]["flops"]
    seen = run_tftrt("inspect", model)
    assert "share of FLOPs" in seen.stdout and "100% of" in seen.stdout
    # Sizes that the signature leaves open are those of --shapes.
    segmenter = zoo_model("dynamic_segmenter")
    assert "tftrt inspect --shapes=" in run_tftrt("inspect", segmenter).stdout
    [name] = tf.saved_model.load(str(segmenter)).signatures["serving_default"].structured_input_signature[1]
    given = run_tftrt("inspect", segmenter, f"--shapes={name}:2x64x48x3")
    assert (
        given.returncode == 0
        and "tftrt inspect --shapes=" not in given.stdout
        and np.char.count(given.stdout, "% of ") == 1
    )
