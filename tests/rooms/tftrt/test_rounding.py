"""Rounding that is switched node by node inside a graph: off it changes nothing, on it is the formula."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests.engine_models import Recurrent
from tests.zoo import zoo_inputs
from tftrt_tools.accuracy import harm, simulation_job
from tftrt_tools.models.execution import run as runs
from tftrt_tools.models.savedmodel.job import inline, rounding, rounding_sites
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

MODELS = {"digits_cnn": False, "mobilenet_v2": False, "ranker": False, "lstm_tagger": True, "bert_encoder": False}


@pytest.fixture(scope="module")
def inlined(zoo_model):
    """A function (name) -> (root, frozen, GraphDef with its segments inlined, {engine: tensors})."""
    known = {}

    def get(name):
        if name not in known:
            root = tf.saved_model.load(str(zoo_model(name)))
            frozen = graph_pass.freeze("serving_default", root.signatures["serving_default"])
            converted = graph_pass.run(frozen, Settings(use_dynamic_shape=MODELS[name])).graph_def
            known[name] = (root, frozen, *inline.inline_segments(converted))
        return known[name]

    return get


def gated(precision, graph_def, tensors):
    if precision == "FP16":
        sites = rounding_sites.fp16_sites(graph_def, tensors)
        return sites, rounding.add_fp16(graph_def, sites)
    sites = rounding_sites.int8_sites(graph_def, tensors)
    return sites, rounding.add_int8(graph_def, sites)


@pytest.mark.parametrize("precision", ["INT8", "FP16"])
@pytest.mark.parametrize("name", MODELS)
def test_with_all_gates_off_the_model_answers_as_before_and_with_them_on_otherwise(name, precision, inlined, tmp_path):
    _, frozen, graph_def, tensors = inlined(name)
    sites, put_in = gated(precision, graph_def, tensors)
    ((_, path),) = runs.save_calls([runs.Call("serving_default", zoo_inputs(name)["serving_default"])], tmp_path)
    one = simulation_job._Passed(
        name="serving_default", frozen=frozen, graph_def=None, inlined=graph_def, inner=tensors, paths=(path,)
    )
    scales = {"coarse": dict.fromkeys(put_in.tensors, 0.01), "fine": dict.fromkeys(put_in.tensors, 0.0100001)}
    simulated = simulation_job._Simulation(one, sites, put_in, scales, "coarse")
    off, on = np.zeros(len(sites), bool), np.ones(len(sites), bool)
    compared, fidelity, rows = simulated.sweep({"off": off, "on": on, "other": on}, "testing", {"other": "fine"})
    effects = {key: [harm.Effect.of(one) for one in found] for key, found in compared.items()}
    assert all(effect.noise == 0 for effect in effects["off"])
    assert fidelity > 100 and rows == 4
    assert all(0 < effect.noise < 10 for effect in effects["on"])
    assert (effects["other"] != effects["on"]) == (precision == "INT8")


def test_the_given_graph_is_left_as_it_is(inlined):
    _, _, graph_def, tensors = inlined("digits_cnn")
    before = graph_pb2.GraphDef.FromString(graph_def.SerializeToString())
    for precision in ("INT8", "FP16"):
        gated(precision, graph_def, tensors)
    assert graph_def == before


def test_int8_rounds_what_enters_convolutions_products_and_pools_and_not_the_normalisation_between(inlined):
    _, _, graph_def, tensors = inlined("mobilenet_v2")
    ops = {site.op for site in rounding_sites.int8_sites(graph_def, tensors)}
    assert (
        ops <= {"Conv2D", "DepthwiseConv2dNative", "MatMul", "AddV2"}
        and {"Conv2D", "DepthwiseConv2dNative", "AddV2"} <= ops
    )


def test_inside_a_loop_nodes_are_found_too():
    model = Recurrent()
    frozen = graph_pass.freeze("serving_default", model.__call__.get_concrete_function())
    graph_def, tensors = inline.inline_segments(graph_pass.run(frozen, Settings(use_dynamic_shape=True)).graph_def)
    assert any("while" in site.name and site.op == "MatMul" for site in rounding_sites.int8_sites(graph_def, tensors))


def made(body, *specs):
    """(GraphDef of `body`, its tensors as if all its nodes were inside the engine "engine")."""
    function = tf.function(body).get_concrete_function(*specs)
    graph_def = graph_pb2.GraphDef()
    tensors = {}
    for node in function.graph.as_graph_def().node:
        copy = graph_def.node.add()
        copy.CopyFrom(node)
        if node.op != "Placeholder":
            copy.name = f"engine/{node.name}"
            tensors[f"{node.name}:0"] = f"engine/{node.name}:0"
        copy.input[:] = [source if source.startswith("x") else f"engine/{source}" for source in node.input]
    return graph_def, {"engine": tensors}


def answers(put_in, on, fetched, scales=(), **inputs):
    module = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(put_in.graph_def, name=""), [])
    names = list(inputs)
    fed = {
        put_in.gates: on,
        **({put_in.scales: np.float32(scales)} if put_in.tensors else {}),
        **{f"{name}:0": inputs[name] for name in names},
    }
    return module.prune(list(fed), fetched)(*map(tf.constant, fed.values())).numpy()


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def int8(x, scale):
    return (np.clip(np.floor(x / scale + 0.5), -128, 127) * scale).astype("float32")


def weights_by_channel(w, *channels):
    scale = np.abs(w).max(axis=tuple(axis for axis in range(w.ndim) if axis not in channels), keepdims=True) / 127
    return (np.round(w / scale) * scale).astype("float32")


W = normal(3, 3, 4, 6, seed=1) * np.geomspace(0.01, 10, 6, dtype="float32")
PRODUCTS = {
    "convolution": (lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), (2, 5, 5, 4), W, (3,)),
    "depthwise convolution": (
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"),
        (2, 5, 5, 4),
        W[..., :2],
        (2, 3),
    ),
    "transposed convolution": (lambda x, w: tf.nn.conv2d_transpose(x, w, (2, 10, 10, 4), 2), (2, 5, 5, 6), W, (2,)),
    "convolution in three dimensions": (
        lambda x, w: tf.nn.conv3d(x, w, [1] * 5, "SAME"),
        (1, 3, 3, 3, 4),
        W[None],
        (4,),
    ),
    "matrix product": (lambda x, w: tf.matmul(x, w), (5, 4), W[0, 0], (1,)),
    "matrix product, transposed": (lambda x, w: tf.matmul(x, w, transpose_b=True), (5, 6), W[0, 0], (0,)),
    "product from the left": (lambda x, w: tf.matmul(w, x), (6, 5), W[0, 0], (0,)),
    "batched product": (lambda x, w: tf.raw_ops.BatchMatMulV2(x=x, y=w), (2, 5, 4), W[0, 0], (1,)),
}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_int8_is_the_formula_for_inputs_and_for_weights_by_output_channel(kind):
    product, shape, w, channels = PRODUCTS[kind]
    graph_def, tensors = made(
        lambda x: tf.identity(product(x, tf.constant(w)), name="y"), tf.TensorSpec(shape, tf.float32, name="x")
    )
    (site,) = rounding_sites.int8_sites(graph_def, tensors)
    put_in = rounding.add_int8(graph_def, [site])
    assert put_in.tensors == ("x:0",)
    x = normal(*shape)
    got = answers(put_in, [True], "engine/y:0", [0.02], x=x)
    expected = product(tf.constant(int8(x, 0.02)), tf.constant(weights_by_channel(w, *channels))).numpy()
    plain = product(tf.constant(x), tf.constant(w)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert np.abs(expected - plain).max() > 1e-3 * np.abs(plain).max()
    np.testing.assert_allclose(answers(put_in, [False], "engine/y:0", [0.02], x=x), plain, rtol=1e-6, atol=1e-6)


def test_values_beyond_the_range_are_clipped():
    graph_def, tensors = made(
        lambda x: tf.identity(tf.matmul(x, np.eye(3, dtype="float32")), name="y"),
        tf.TensorSpec((1, 3), tf.float32, name="x"),
    )
    put_in = rounding.add_int8(graph_def, rounding_sites.int8_sites(graph_def, tensors))
    got = answers(put_in, [True], "engine/y:0", [1.0], x=np.float32([[-1000, 1000, 0.4]]))
    np.testing.assert_allclose(got, [[-128, 127, 0]], atol=1e-4)


def test_fp16_is_the_formula_for_inputs_weights_and_outputs():
    w = W[0, 0]
    graph_def, tensors = made(
        lambda x: tf.identity(tf.matmul(x, tf.constant(w)), name="y"), tf.TensorSpec((5, 4), tf.float32, name="x")
    )
    (site,) = rounding_sites.fp16_sites(graph_def, tensors)
    put_in = rounding.add_fp16(graph_def, [site])
    x = normal(5, 4)
    half = (
        (x.astype("float16").astype("float32") @ w.astype("float16").astype("float32"))
        .astype("float16")
        .astype("float32")
    )
    np.testing.assert_allclose(answers(put_in, [True], "engine/y:0", x=x), half, rtol=2e-3)
    assert np.array_equal(
        answers(put_in, [True], "engine/y:0", x=x).astype("float16"), answers(put_in, [True], "engine/y:0", x=x)
    )


def test_constants_beyond_fp16_become_its_largest_number_as_in_tensorrt():
    """Transformers' DistilBERT takes 1e30 from the scores of what is masked; as infinity times 0 that is not a number."""

    def body(mask):
        return tf.identity(tf.nn.softmax((1.0 - mask) * tf.constant(-1e30) + tf.constant([[1.0, 2.0, 3.0]])), name="y")

    graph_def, tensors = made(body, tf.TensorSpec((2, 3), tf.float32, name="x"))
    sites = rounding_sites.fp16_sites(graph_def, tensors)
    mask = np.float32([[1, 1, 0], [1, 1, 1]])
    got = answers(rounding.add_fp16(graph_def, sites), [True] * len(sites), "engine/y:0", x=mask)
    np.testing.assert_allclose(got, [[0.269, 0.731, 0], [0.09, 0.245, 0.665]], atol=1e-3)


def test_an_infinite_constant_stays_infinite():
    graph_def, tensors = made(
        lambda x: tf.identity(x + tf.constant([np.inf, -1e9, 1.0]), name="y"),
        tf.TensorSpec((1, 3), tf.float32, name="x"),
    )
    sites = rounding_sites.fp16_sites(graph_def, tensors)
    got = answers(rounding.add_fp16(graph_def, sites), [True], "engine/y:0", x=np.float32([[0, 0, 0]]))
    np.testing.assert_array_equal(got, [[np.inf, -65504, 1]])


def test_a_node_that_is_on_rounds_its_output_for_a_reader_that_is_off():
    def body(x):
        return tf.identity(tf.exp(tf.exp(x)), name="y")

    graph_def, tensors = made(body, tf.TensorSpec((3,), tf.float32, name="x"))
    sites = rounding_sites.fp16_sites(graph_def, tensors)
    assert [site.op for site in sites] == ["Exp", "Exp"]
    put_in = rounding.add_fp16(graph_def, sites)
    x = np.float32([0.1, 0.7, -1.3])
    first = tf.exp(x.astype("float16").astype("float32")).numpy().astype("float16").astype("float32")
    np.testing.assert_array_equal(answers(put_in, [True, False], "engine/y:0", x=x), tf.exp(first).numpy())


def test_bias_and_normalisation_by_constants_are_part_of_the_kernel_and_a_sum_of_two_tensors_is_not():
    def body(x):
        y = tf.nn.relu(tf.matmul(x, np.eye(4, dtype="float32")) * tf.constant(2.0) + tf.constant([1.0, 2, 3, 4]))
        return tf.identity(y + x, name="y")

    graph_def, tensors = made(body, tf.TensorSpec((2, 4), tf.float32, name="x"))
    sites = rounding_sites.int8_sites(graph_def, tensors)
    assert [(site.op, len(site.activations)) for site in sites] == [("MatMul", 1), ("AddV2", 2)]
