"""Repeated rows, columns and elements (tf.repeat, Keras 3's UpSampling): written so that TF-TRT sees their sizes, with the same answers."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, compared, in_one_engine, odd_values, original, prepared
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel.job import repeated
from tftrt_tools.models.savedmodel.preparation import NEAREST, Preparation
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def rows_and_columns(height, width):
    """Keras 3's UpSampling2D of nearest neighbours."""
    return lambda x: tf.repeat(tf.repeat(x, height, axis=1), width, axis=2)


# {what: (body, shape of x, how many are resizes, how many others)}.
REPEATS = {
    "rows and columns": (rows_and_columns(2, 2), (None, 3, 5, 4), 1, 0),
    "many times": (rows_and_columns(7, 41), (None, 5, 3, 1), 1, 0),
    "rows alone": (lambda x: tf.repeat(x, 3, axis=1), (None, 3, 5, 4), 1, 0),
    "columns before rows": (lambda x: tf.repeat(tf.repeat(x, 2, axis=2), 3, axis=1), (None, 3, 5, 4), 1, 0),
    "once": (rows_and_columns(2, 1), (None, 3, 5, 4), 1, 0),
    "a fixed batch": (rows_and_columns(2, 2), (2, 3, 5, 4), 1, 0),
    "of open sizes": (rows_and_columns(2, 3), (None, None, None, 4), 1, 0),
    "of an open height": (rows_and_columns(2, 3), (None, None, 5, 4), 1, 0),
    "nothing known": (rows_and_columns(2, 3), (None, None, None, None), 1, 0),
    "an axis from the end": (lambda x: tf.repeat(x, 2, axis=-2), (None, 3, 5, 4), 1, 0),
    "both are read": (
        lambda x: tf.concat([tf.repeat(y := tf.repeat(x, 2, axis=1), 2, axis=2), tf.repeat(y, 2, axis=2)], -1),
        (None, 3, 5, 4),
        2,
        0,
    ),
    "the first is read, too": (
        lambda x: tf.repeat(y := tf.repeat(x, 2, axis=1), 2, axis=2)[:, :, ::2] + y,
        (None, 3, 5, 4),
        2,
        0,
    ),
    "channels": (lambda x: tf.repeat(x, 2, axis=3), (None, 3, 5, 4), 0, 1),
    "a row of the batch": (lambda x: tf.repeat(x, 2, axis=0), (None, 3, 5, 4), 0, 1),
    "a sequence": (lambda x: tf.repeat(x, 2, axis=1), (None, 5, 4), 0, 1),
    "a sequence of open length": (lambda x: tf.repeat(x, 2, axis=1), (None, None, 4), 0, 1),
    "a vector": (lambda x: tf.repeat(x[:, tf.newaxis], 3, axis=1), (None, 4), 0, 1),
    "a volume": (lambda x: tf.repeat(tf.repeat(tf.repeat(x, 2, 1), 3, 2), 2, 3), (None, 2, 3, 2, 4), 0, 3),
    "a volume of open sizes": (
        lambda x: tf.repeat(tf.repeat(tf.repeat(x, 2, 1), 3, 2), 2, 3),
        (None, None, None, 2, 4),
        0,
        3,
    ),
}


@pytest.mark.parametrize("kind", REPEATS)
def test_a_repeat_answers_the_same_bit_for_bit(kind):
    body, shape, enlarged, others = REPEATS[kind]
    rng = np.random.default_rng(0)
    sizes = [(batch, 3, 5, 2, 4) for batch in ((2,) if shape[0] else (0, 1, 3))]
    feeds = [
        [odd_values(rng, [own or given for own, given in zip(shape, size[: len(shape)], strict=True)])]
        for size in sizes
    ]
    written, answered = compared(body, [shape], repeated.rewrite, *feeds)
    assert tuple(map(len, written)) == (enlarged, others)
    for expected, found in answered:
        assert expected.shape == found.shape and expected.tobytes() == found.tobytes()


def test_each_pixel_of_a_large_picture_is_repeated():
    x = np.arange(4096, dtype="f4").reshape(1, 1, -1, 1)
    for times in (2, 3, 7, 49, 64):
        _, [(expected, found)] = compared(rows_and_columns(1, times), [(None, 1, None, 1)], repeated.rewrite, [x])
        np.testing.assert_array_equal(found, expected)


def test_pictures_of_integers_keep_the_tile():
    x = np.arange(24, dtype=np.int32).reshape(1, 2, 3, 4)
    written, [(expected, found)] = compared(
        rows_and_columns(2, 2), [((None, 2, 3, 4), tf.int32)], repeated.rewrite, [x]
    )
    assert tuple(map(len, written)) == (0, 2)
    np.testing.assert_array_equal(found, expected)


def tiled(shape, multiples=(1, 1, 2, 1)):
    return lambda x: tf.reshape(tf.tile(x[:, :, tf.newaxis], multiples), shape(tf.shape(x)))


# {what: a body of ? x ? x 4 elements that is no repeat}.
OTHERS = {
    "as many times as an element says": lambda x: tf.repeat(x, [1, 2, 3], axis=1),
    "a number that is sent": lambda x: tf.repeat(x, tf.cast(x[0, 0, 0], tf.int32), axis=1),
    "another shape": tiled(lambda size: tf.concat([size[:1], [2 * size[1] * size[2]], [1]], 0)),
    "axes in another order": tiled(lambda size: tf.concat([size[1:2], [2 * size[0]], size[2:]], 0)),
    "three times": tiled(lambda size: tf.concat([size[:1], [3 * size[1]], size[2:]], 0)),
    "two axes": tiled(lambda size: tf.concat([size[:1], [2 * size[1]], size[2:]], 0), (1, 1, 2, 2)),
    "a tile that puts the whole behind": lambda x: tf.tile(x, (1, 2, 1)),
    "a constant shape": tiled(lambda size: (-1, 6, 4)),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_others_stay_as_they_are(kind):
    with tf.Graph().as_default() as graph:
        OTHERS[kind](tf.compat.v1.placeholder(tf.float32, (None, None, 4)))
    graph_def = graph.as_graph_def()
    before = graph_def.SerializeToString(deterministic=True)
    assert repeated.rewrite(graph_def) == ((), ()) and graph_def.SerializeToString(deterministic=True) == before


def test_one_in_a_loop_stays():
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, (None, 4, 4, 3), "x")
            tf.while_loop(
                lambda i, h: i < 3,
                lambda i, h: (i + 1, tf.ensure_shape(rows_and_columns(2, 2)(h)[:, :4, :4], (None, 4, 4, 3))),
                (0, x),
            )
    finally:
        tf.compat.v1.enable_control_flow_v2()
    assert repeated.rewrite(graph.as_graph_def()) == ((), ())


def between_convolutions(repeat, *channels):
    """A repeat, and a convolution that needs to know the channels."""
    filters = tf.constant(
        np.random.default_rng(1).normal(size=(*[3] * (len(channels) - 1), channels[-1], 2)), "float32"
    )
    convolution = {2: tf.nn.conv1d, 3: tf.nn.conv2d, 4: tf.nn.conv3d}[len(channels)]
    strides = [1] * 5 if len(channels) == 4 else 1
    return lambda x: convolution(repeat(x), filters, strides, "SAME")


# {what: (repeat, shape of a row, whether implicit batch mode has it, too)}.
TAKEN = {
    "rows and columns": (rows_and_columns(2, 2), (8, 8, 3), True),
    "rows and columns of open sizes": (rows_and_columns(2, 2), (None, None, 3), False),
    "a sequence": (lambda x: tf.repeat(x, 2, axis=1), (8, 3), True),
    "a sequence of open length": (lambda x: tf.repeat(x, 2, axis=1), (None, 3), False),
    "a volume": (lambda x: tf.repeat(tf.repeat(tf.repeat(x, 2, 1), 2, 2), 2, 3), (4, 4, 4, 3), True),
}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("kind", TAKEN)
def test_the_next_convolution_is_in_the_engine(kind, dynamic, tmp_path):
    repeat, row, both = TAKEN[kind]
    frozen, done = in_one_engine(between_convolutions(repeat, *row), [(None, *row)], tmp_path / "m", dynamic)
    if dynamic or both:
        assert len(done.engines) == 1 and not done.native_ops
    x = np.random.default_rng(0).normal(size=(2, *(size or 6 for size in row))).astype("f4")
    expected = frozen.original(x0=tf.constant(x))["y"].numpy()
    np.testing.assert_allclose(answers(frozen, x)[0], expected, rtol=1e-5, atol=1e-5)


def test_it_is_told_and_kept_in_the_manifest_and_can_be_switched_off(tmp_path):
    body = between_convolutions(lambda x: rows_and_columns(2, 2)(tf.repeat(x, 2, axis=3)), 8, 8, 6)
    frozen, done = in_one_engine(body, [(None, 8, 8, 3)], tmp_path / "m")
    [enlarged], [other] = frozen.preparation.enlarged, frozen.preparation.repeats
    assert [node.op for node in frozen.graph_def.node if node.name == enlarged] == [NEAREST]
    assert Preparation.from_dict(json.loads(json.dumps(frozen.preparation.to_dict()))) == frozen.preparation
    first, second = _output.prepared(frozen.preparation)
    assert first.startswith("1 repeat of rows and columns written as a nearest-neighbour resize")
    assert second.startswith("1 repeat of elements with the known sizes in the shape")
    without = prepared(tmp_path / "m", use_dynamic_shape=True, keep_native_nodes=f".*({enlarged}|{other})")
    assert not without.preparation.repeats and enlarged not in without.preparation.enlarged
    assert graph_pass.run(without, Settings(use_dynamic_shape=True)).native_ops


def test_a_unet_with_upsampling_of_this_keras_is_in_one_engine(tmp_path):
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((16, 16, 3))
    x = skip = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = layers.UpSampling2D()(layers.Conv2D(8, 3, 2, padding="same", activation="relu")(x))
    x = layers.Conv2D(4, 3, padding="same")(layers.Concatenate()([x, skip]))
    tf.saved_model.save(tf.keras.Model(inputs, x), str(tmp_path / "m"))
    for dynamic in (True, False):
        frozen = prepared(tmp_path / "m", use_dynamic_shape=dynamic)
        done = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic))
        assert len(done.engines) == 1 and not done.native_ops
        value = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype("f4")
        signature = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
        np.testing.assert_allclose(answers(frozen, value)[0], original(signature, value), rtol=1e-5, atol=1e-5)
