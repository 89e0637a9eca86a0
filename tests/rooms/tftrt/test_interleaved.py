"""Transposed convolutions and bilinear resizes of open sizes: written as plain convolutions that answer the same at every size."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.prepared_models import answers, compared, original, prepared
from tftrt_tools.models.savedmodel.job import interleaved
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

SIZES = ((1, 1), (1, 4), (3, 2), (5, 7))


def pictures(channels=3):
    rng = np.random.default_rng(0)
    return [[rng.normal(size=(2, *size, channels)).astype("f4")] for size in (*SIZES, (0, 4))]


def transposing(kernel, stride, padding, more=0):
    filters = np.random.default_rng(1).normal(size=(*kernel, 4, 3)).astype("f4")

    def body(x):
        shape = tf.shape(x)
        sizes = tf.stack([shape[0], shape[1] * stride + more, shape[2] * stride + more, 4])
        return tf.nn.conv2d_transpose(x, filters, sizes, stride, padding)

    return body


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [
        (kernel, stride, padding)
        for kernel, stride, padding in itertools.product(
            [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (2, 3)], [1, 2, 3], ["SAME", "VALID"]
        )
        if (padding == "SAME" or max(kernel) <= stride) and (kernel, stride) != ((1, 1), 3)
    ],
)
def test_a_transposed_convolution_answers_the_same(kernel, stride, padding):
    (written, _), answered = compared(
        transposing(kernel, stride, padding), [(None, None, None, 3)], interleaved.rewrite, *pictures()[:-1]
    )
    assert len(written) == 1
    for expected, found in answered:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("times", [2, 3, 4, 8])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_bilinear_resize_answers_the_same(times, half, channels):
    def body(x):
        return tf.raw_ops.ResizeBilinear(images=x, size=tf.shape(x)[1:3] * times, half_pixel_centers=half)

    (_, written), answered = compared(
        body, [(None, None, None, channels)], interleaved.rewrite, *pictures(channels)[:-1]
    )
    assert len(written) == 1
    for expected, found in answered:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def resizing(size, **attributes):
    return lambda x: tf.raw_ops.ResizeBilinear(images=x, size=size(tf.shape(x)[1:3]), **attributes)


def times_a_fraction(x):
    sizes = [tf.cast(tf.cast(tf.shape(x)[axis], tf.float32) * 2.5, tf.int32) for axis in (1, 2)]
    return tf.nn.conv2d_transpose(x, np.ones((3, 3, 4, 3), "f4"), tf.stack([tf.shape(x)[0], *sizes, 4]), 2, "SAME")


def as_keras_3_counts(more):
    """The sizes (n - 1) * 2 + 2 + more of a result."""

    def body(x):
        shape = tf.shape(x)
        sizes = [(shape[axis] - 1) * 2 + 2 + more for axis in (1, 2)]
        return tf.nn.conv2d_transpose(x, np.ones((2, 2, 4, 3), "f4"), tf.stack([shape[0], *sizes, 4]), 2, "VALID")

    return body


def test_sizes_less_one_may_be_a_multiple():
    (written, _), answered = compared(
        as_keras_3_counts(0), [(None, None, None, 3)], interleaved.rewrite, *pictures()[:-1]
    )
    assert len(written) == 1
    for expected, found in answered:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


LEFT = {
    "one more than a multiple": as_keras_3_counts(1),
    "two and a half times": times_a_fraction,
    "more than the stride": transposing((3, 3), 2, "SAME", 1),
    "a kernel beyond the stride": transposing((3, 3), 2, "VALID", 1),
    "too many zeros": transposing((1, 1), 5, "SAME"),
    "twice and three times": resizing(lambda size: size * [2, 3]),
    "corners": resizing(lambda size: size * 2, align_corners=True),
    "half as large": resizing(lambda size: size // 2),
    "the sizes of another axis": resizing(lambda size: size[::-1] * 2),
    "too many times": resizing(lambda size: size * 9),
    "another filter": lambda x: tf.raw_ops.ResizeBicubic(images=x, size=tf.shape(x)[1:3] * 2),
}


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay_as_they_are(kind):
    with tf.Graph().as_default() as graph:
        LEFT[kind](tf.compat.v1.placeholder(tf.float32, (None, None, None, 3)))
    assert interleaved.rewrite(graph.as_graph_def()) == ((), ())


class Twice(tf.keras.layers.Layer):
    """As Keras 2's UpSampling2D with interpolation="bilinear"; Keras 3's takes no open sizes."""

    def call(self, x):
        return tf.image.resize(x, tf.shape(x)[1:3] * 2)


def unet(path):
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((None, None, 3), name="x")
    x = skip = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(8, 3, 2, padding="same", activation="relu")(x)
    y = Twice()(x)
    x = layers.Conv2DTranspose(4, 3, 2, padding="same", activation="relu", name="up")(x)
    z = layers.Conv2DTranspose(4, 2, 2)(layers.MaxPool2D()(skip))
    x = layers.Concatenate()([x, y, z, skip])
    tf.saved_model.save(tf.keras.Model(inputs, layers.Conv2D(2, 1, activation="sigmoid")(x)), str(path))
    return path


def test_a_unet_of_open_sizes_is_in_one_engine_that_serves_all_sizes(tmp_path):
    frozen = prepared(unet(tmp_path / "m"), use_dynamic_shape=True)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert len(frozen.preparation.interleaved) == 2 and len(frozen.preparation.upsampled) == 1
    assert len(done.engines) == 1 and not done.native_ops and not frozen.preparation.open_sizes
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    signature = loaded.signatures["serving_default"]
    for size in ((8, 8), (4, 12), (2, 2)):
        x = np.random.default_rng(0).normal(size=(3, *size, 3)).astype("f4")
        expected = original(signature, x)
        np.testing.assert_allclose(answers(frozen, x)[0], expected, rtol=1e-4, atol=1e-5)


def test_what_the_user_keeps_stays_and_implicit_batch_mode_has_none(tmp_path):
    path = unet(tmp_path / "m")
    frozen = prepared(path, use_dynamic_shape=True, keep_native_nodes=f".*/{stacks.node('up/conv2d_transpose')}")
    assert len(frozen.preparation.interleaved) == 1
    done = prepared(path).preparation
    assert not done.interleaved and not done.upsampled


def test_convert_says_what_it_wrote(tftrt, tmp_path):
    done = tftrt("convert", f"--model={unet(tmp_path / 'm')}", "--use_dynamic_shape", "--dry_run")
    assert done.returncode == 0, done.stderr
    for line in (
        "2 transposed convolutions of open sizes written as plain ones and DepthToSpace: TF-TRT takes none with an open batch",
        "1 bilinear resize of open sizes written as convolutions and DepthToSpace: TF-TRT refuses the op",
    ):
        assert f"serving_default: {line}" in done.stdout
