"""Transposed convolutions with an open batch: written as plain ones with the same answers."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.prepared_models import answers, original, prepared, save, unet_with_conditionals
from tftrt_tools.models.savedmodel.job import graph, transposed
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def model(kernel, stride, padding, results, sizes, path, batch=None):
    """One of 3 channels of `sizes`, to 4 channels of `results`, with another op on each side."""
    filters = np.random.default_rng(0).normal(size=(*kernel, 4, 3)).astype("f4")

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((batch, *sizes, 3), name="x")])
    def serve(x):
        whole = [batch, *results, 4] if batch else tf.stack([tf.shape(x)[0], *results, 4])
        y = tf.nn.conv3d_transpose(x * 2.0, filters, whole, stride, padding)
        return {"y": tf.nn.relu(y) + 1.0}

    return save(serve, path)


def results(size, kernel, stride, padding):
    """All sizes of which the forward convolution makes `size`."""
    forward = {"SAME": lambda whole: -(-whole // stride), "VALID": lambda whole: (whole - kernel) // stride + 1}[
        padding
    ]
    return [whole for whole in range(1, size * stride + kernel + 1) if forward(whole) == size]


CASES = [
    (padding, kernel, stride, size)
    for padding, kernel, stride, size in itertools.product(("SAME", "VALID"), (1, 2, 3, 4, 5), (1, 2, 3), (1, 3))
    if (kernel, stride) != (1, 3)  # more zeros than are allowed
]


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_answers_as_the_transposed_one(case, dimensions):
    padding, kernel, stride, size = case
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, size, size + 1, size, 3)[: dimensions + 1] + (3,)).astype("f4")
    filters = rng.normal(size=(kernel,) * dimensions + (4, 3)).astype("f4")
    transpose = {2: tf.nn.conv2d_transpose, 3: tf.nn.conv3d_transpose}[dimensions]
    for whole in results(size, kernel, stride, padding):
        other = results(size + 1, kernel, stride, padding)[-1]
        with tf.Graph().as_default() as graph:
            data = tf.compat.v1.placeholder(tf.float32, (None, *x.shape[1:]), "x")
            sizes = tf.stack([tf.shape(data)[0], *[whole, other, whole][:dimensions], 4])
            tf.identity(transpose(data, filters, sizes, stride, padding, name="t"), name="y")
        graph_def = graph.as_graph_def()
        assert len(transposed.rewrite(graph_def)) == 1
        with tf.Graph().as_default() as rewritten:
            tf.import_graph_def(graph_def, name="")
        expected, found = (tf.compat.v1.Session(graph=one).run("y:0", {"x:0": x}) for one in (graph, rewritten))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_unet_of_volumes_goes_into_one_engine(dynamic, tmp_path):
    path = unet_with_conditionals(tmp_path / "m")
    settings = {"use_dynamic_shape": dynamic, "freeze": "training:false"}
    frozen = prepared(path, **settings)
    done = graph_pass.run(frozen, Settings(**settings))
    assert len(frozen.preparation.transposed) == 1 and len(done.engines) == 1 and not done.native_ops


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(("kernel", "padding"), [(2, "same"), (3, "same"), (4, "same"), (3, "valid"), (5, "valid")])
def test_upsampling_of_keras_goes_into_one_engine(kernel, padding, dynamic, tmp_path):
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((12, 16, 3), name="x")
    x = layers.Conv2D(8, 3, 2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(6, kernel, 2, padding=padding, activation="relu")(x)
    tf.saved_model.save(tf.keras.Model(inputs, layers.Conv2D(4, 3)(x)), str(tmp_path / "m"))
    frozen = prepared(tmp_path / "m", use_dynamic_shape=dynamic)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic))
    if dynamic or padding == "same":
        assert len(frozen.preparation.transposed) == 1 and len(done.engines) == 1 and not done.native_ops
    else:
        assert not frozen.preparation.transposed
    data = np.random.default_rng(0).normal(size=(3, 12, 16, 3)).astype("f4")
    expected = original(tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"], data)
    np.testing.assert_allclose(answers(frozen, data)[0], expected, rtol=1e-4, atol=1e-4)


def test_different_sides_keep_their_own_sizes(tmp_path):
    path = model((2, 3, 4), (1, 2, 3), "SAME", (3, 8, 12), (3, 4, 4), tmp_path / "m")
    frozen = prepared(path)
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 4, 3)).astype("f4")
    expected = tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(x))["y"].numpy()
    assert frozen.preparation.transposed
    np.testing.assert_allclose(answers(frozen, x)[0], expected, rtol=1e-4, atol=1e-4)


def test_all_that_stands_for_a_layer_is_in_the_precision_that_its_name_asks_for(tmp_path):
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((8, 8, 3), name="x")
    for _ in range(2):
        x = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(4, 2, 2, name="up")(x)
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    tf.saved_model.save(tf.keras.Model(inputs, layers.Conv2D(4, 3)(x)), str(tmp_path / "m"))
    settings = {
        "use_dynamic_shape": True,
        "precision_mode": "FP16",
        "fp32_nodes": f".*/{stacks.node('up/conv2d_transpose')}",
        "minimum_segment_size": 1,
    }
    frozen = prepared(tmp_path / "m", **settings)
    done = graph_pass.run(frozen, Settings(**settings))
    high = [engine for engine in done.engines if engine.precision == "FP32"]
    taken = graph.native_segments(done.graph_def)[high[0].name].function.node_def
    assert len(high) == 1 and {"Conv2D", "Reshape", "Transpose"} <= {node.op for node in taken}


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (((2, 2, 2), 2, "SAME", (4, 4, 4), (2, 2, 2), 3), {}),
        (((2, 2, 2), 2, "SAME", (4, 4, 4), (None, None, None)), {}),
        (((1, 1, 1), 3, "SAME", (6, 6, 6), (2, 2, 2)), {}),
        (((2, 2, 2), 2, "SAME", (4, 4, 4), (2, 2, 2)), {"keep_native_nodes": ".*transpose.*"}),
    ],
    ids=["constant sizes", "open sizes", "too many zeros", "kept by the user"],
)
def test_others_stay(arguments, settings, tmp_path):
    *given, batch = (*arguments, None)[:6]
    frozen = prepared(model(*given, tmp_path / "m", batch), **settings)
    assert not frozen.preparation.transposed and "Conv3DBackpropInputV2" in {node.op for node in frozen.graph_def.node}
