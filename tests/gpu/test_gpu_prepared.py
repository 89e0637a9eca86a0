"""Engines of graphs that `convert` rewrites first: dilations, inputs frozen to a value. On a GPU: `make gpu-test`."""

import numpy as np
import pytest
import tensorflow as tf

from tests import keras_layers, stacks
from tests.gpu_commands import convert, engines_of, report, verify
from tests.prepared_models import open_sizes, save, unet_with_conditionals

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]


def dilated(sizes):
    """Convolutions with dilations 2 and 4, depthwise and over one dimension among them; `sizes` of the picture, or None for open ones."""
    rng = np.random.default_rng(0)
    full, depthwise, row = (
        rng.normal(scale=0.2, size=shape).astype("f4") for shape in ((3, 3, 8, 8), (3, 3, 8, 1), (3, 8, 4))
    )

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, *sizes, 8), name="x")])
    def body(x):
        x = tf.nn.relu(tf.nn.convolution(x, full, padding="SAME", dilations=[2, 2]))
        x = tf.nn.relu(tf.nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "SAME", dilations=[4, 4]))
        return {"y": tf.nn.convolution(tf.reduce_mean(x, 1), row, padding="SAME", dilations=2)}

    return body


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
@pytest.mark.parametrize("sizes", [(24, 16), (None, None)], ids=["known", "open"])
def test_convolutions_with_dilations_run_in_engines(sizes, precision, tmp_path):
    source = save(dilated(sizes), tmp_path / "in")
    said = convert(source, tmp_path / "out", f"--precision={precision}", "--shapes=x:1x24x16x8,4x24x16x8")
    code, result, error = verify(source, tmp_path / "out")
    engines = engines_of(said)
    report(
        test="dilations",
        model="open sizes" if None in sizes else "known sizes",
        precision=precision,
        engines=len(engines),
        coverage=said["signatures"][0]["coverage"],
        snr_db=result and result["comparisons"][0]["snr_db"],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert len(engines) == 1 and "SpaceToBatchND" not in said["signatures"][0]["native_ops"]


def test_a_frozen_input_leaves_few_engines_that_run(tmp_path):
    source = unet_with_conditionals(tmp_path / "in")
    said = convert(
        source,
        tmp_path / "out",
        "--precision=FP16",
        "--freeze=training:false",
        "--shapes=volume:1x8x8x8x1,2x8x8x8x1;training:scalar,scalar",
    )
    code, result, error = verify(source, tmp_path / "out")
    report(
        test="frozen input",
        model="3D U-Net",
        engines=len(engines_of(said)),
        snr_db=result and result["comparisons"][0]["snr_db"],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert 0 < len(engines_of(said)) <= 2


def test_slices_that_count_from_the_end_are_right_in_an_engine_of_several_shapes(tmp_path):
    source = open_sizes(lambda x: x[:, :-3] * x[:, 3:] + x[:, -1:], tmp_path / "in")
    said = convert(source, tmp_path / "out", "--precision=FP32", "--shapes=x:1x35,4x35")
    code, result, error = verify(source, tmp_path / "out")
    report(
        test="slices",
        model="x[:, :-3] * x[:, 3:] + x[:, -1:]",
        slices=len(said["signatures"][0]["preparation"]["slices"]),
        snr_db=result and result["comparisons"][0]["snr_db"],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert engines_of(said) and said["signatures"][0]["preparation"]["slices"]


def cropped():
    """A slice from both ends of an open length, between layers that an engine takes."""
    filters = np.random.default_rng(0).normal(scale=0.2, size=(11, 4, 16)).astype("f4")

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4), name="x")])
    def body(x):
        return {"y": tf.nn.softmax(tf.nn.relu(tf.nn.conv1d(x, filters, 1, "SAME"))[:, 200:-200] * 2 - 1)}

    return body


def test_a_cropped_length_of_one_size_runs_in_an_engine(tmp_path):
    source = save(cropped(), tmp_path / "in")
    said = convert(source, tmp_path / "out", "--shapes=x:1x2400x4,4x2400x4")
    code, result, error = verify(source, tmp_path / "out")
    report(
        test="cropping",
        engines=len(engines_of(said)),
        coverage=said["signatures"][0]["coverage"],
        snr_db=result and result["comparisons"][0]["snr_db"],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert [one["slices"] for one in said["signatures"][0]["built"]]


def test_a_cropped_length_of_two_sizes_is_left_to_tensorflow_if_tensorrt_refuses_it(tmp_path):
    source = save(cropped(), tmp_path / "in")
    said = convert(source, tmp_path / "out", "--shapes=x:1x2400x4,4x1200x4")
    code, result, error = verify(source, tmp_path / "out")
    report(
        test="cropping of two sizes",
        left=said["signatures"][0]["left_out"],
        unbuilt=said["signatures"][0]["unbuilt"],
        passed=code == 0,
    )
    assert said["signatures"][0]["built"] and (
        code == 0 or "would be wrong" in str(said["signatures"][0]["findings"])
    ), error


@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "implicit"])
def test_a_computed_flatten_and_a_dropout_that_keeps_everything_leave_one_engine(dynamic, tmp_path):
    rng = np.random.default_rng(0)
    filters, weights = (
        rng.normal(scale=0.2, size=(3, 3, 3, 8)).astype("f4"),
        rng.normal(scale=0.2, size=(288, 4)).astype("f4"),
    )

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 8, 8, 3), name="x")])
    def body(x):
        h = tf.nn.relu(tf.nn.conv2d(x, filters, 1, "VALID"))
        h = h / tf.ones(()) * tf.floor(1.0 + tf.random.uniform(tf.shape(h)))
        return {"y": tf.nn.softmax(tf.reshape(h, tf.stack([tf.shape(h)[0], 288])) @ weights)}

    source = save(body, tmp_path / "in")
    flags = ["--shapes=x:1x8x8x3,4x8x8x3"] if dynamic else ["--shapes=x:4x8x8x3", "--nouse_dynamic_shape"]
    said = convert(source, tmp_path / "out", "--precision=FP32", *flags)
    code, result, error = verify(source, tmp_path / "out")
    done = said["signatures"][0]["preparation"]
    report(
        test="flatten and dropout",
        dynamic=dynamic,
        engines=len(engines_of(said)),
        coverage=said["signatures"][0]["coverage"],
        snr_db=result and result["comparisons"][0]["snr_db"],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert len(engines_of(said)) == 1 and done["flattened"] and done["dropouts"]


def checked(test, source, folder, precision, shapes, *flags):
    """One engine of all ops, which verifies."""
    said = convert(source, folder / "out", f"--precision={precision}", f"--shapes={shapes}", *flags)
    code, result, error = verify(source, folder / "out")
    report(
        test=test,
        precision=precision,
        engines=len(engines_of(said)),
        coverage=said["signatures"][0]["coverage"],
        snr_db=result and min(float(one["snr_db"]) for one in result["comparisons"]),
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert len(engines_of(said)) == 1 and said["signatures"][0]["coverage"] == 1


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_resizes_of_all_kinds_run_in_an_engine(precision, tmp_path):
    filters = np.random.default_rng(0).normal(scale=0.2, size=(3, 3, 4, 8)).astype("f4")
    kinds = [
        (op, attribute)
        for op in ("Bilinear", "Bicubic", "NearestNeighbor")
        for attribute in ("align_corners", "half_pixel_centers")
    ]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 24, 20, 4), name="x")])
    def serve(x):
        y = tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME"))
        resized = {
            f"{op}_{attribute}_{size[0]}": getattr(tf.raw_ops, f"Resize{op}")(images=y, size=size, **{attribute: True})
            for op, attribute in kinds
            for size in ((48, 40), (18, 33))
        }
        resized["area"] = tf.raw_ops.ResizeArea(images=y, size=(12, 7))
        return {name: tf.nn.relu(one) + 0.5 for name, one in resized.items()}

    checked("resizes", save(serve, tmp_path / "in"), tmp_path, precision, "x:1x24x20x4,4x24x20x4")


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_a_transposed_convolution_of_volumes_runs_in_an_engine(precision, tmp_path):
    source = unet_with_conditionals(tmp_path / "in")
    shapes = "volume:1x8x8x8x1,2x8x8x8x1;training:scalar,scalar"
    checked("transposed volumes", source, tmp_path, precision, shapes, "--freeze=training:false")


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_paddings_reversals_and_repeats_run_in_an_engine(precision, tmp_path):
    filters = np.random.default_rng(0).normal(scale=0.2, size=(3, 3, 4, 8)).astype("f4")

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 12, 10, 4), name="x")])
    def serve(x):
        y = tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME"))
        row = tf.reduce_mean(y, 1)
        made = {
            # As Keras 3 writes UpSampling2D.
            "repeated": tf.repeat(tf.repeat(y, 2, axis=1), 3, axis=2),
            "reflected": tf.pad(y, [[0, 0], [2, 1], [0, 3], [0, 0]], "REFLECT"),
            "symmetric": tf.pad(y, [[0, 0], [1, 2], [2, 0], [0, 0]], "SYMMETRIC"),
            "reversed": tf.reverse(y, [1, 2]),
            "padded_row": tf.pad(row, [[0, 0], [2, 3], [0, 0]]),
            "padded_channels": tf.pad(tf.reduce_mean(row, 1), [[0, 0], [1, 2]]),
        }
        return {name: tf.nn.relu(one) + 0.5 for name, one in made.items()}

    checked("paddings", save(serve, tmp_path / "in"), tmp_path, precision, "x:1x12x10x4,4x12x10x4")


def test_ops_that_tftrt_refuses_run_in_an_engine_as_others(tmp_path):
    weights = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 6), name="x")])
    def serve(x):
        x = tf.nn.relu(x) * 2.0
        x = tf.raw_ops.Select(condition=x[:, 0] > x[:, 1], x=x, y=x * 3.0)
        y = tf.math.divide_no_nan(tf.cumsum(x, 1)[:, tf.newaxis], tf.nn.relu(x - 1.0)[:, tf.newaxis])
        y += tf.cumsum(x, 1, exclusive=True, reverse=True)[:, tf.newaxis] + tf.gather_nd(x, [[0]])
        mask = tf.logical_and(tf.not_equal(x, 0.0), x < 3.0)[:, tf.newaxis, :]
        y = tf.where(mask, y, 0.5) + tf.cast(mask, tf.float32)
        return {"y": tf.nn.relu(tf.einsum("...i,ij->...j", y, weights)) + 1.0}

    source = save(serve, tmp_path / "in")
    said = convert(source, tmp_path / "out", "--precision=FP32", "--shapes=x:1x6,16x6")
    code, result, error = verify(source, tmp_path / "out")
    report(
        test="other ops",
        engines=len(engines_of(said)),
        coverage=said["signatures"][0]["coverage"],
        snr_db=result and result["comparisons"][0]["snr_db"],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert len(engines_of(said)) == 1 and said["signatures"][0]["coverage"] == 1.0


@pytest.mark.parametrize("scale", [1.0, 400.0])
@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_layer_normalizations_of_keras_2_run_in_an_engine(precision, scale, tmp_path):
    """One in each model, and one profile: with two of both, FP16 had not ended after 12 minutes beside other builds."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((24, 32), name="x")
    x = layers.Rescaling(scale)(layers.Dense(32, activation="relu")(inputs))
    x = keras_layers.Normalization()(x)
    source = tmp_path / "in"
    tf.saved_model.save(tf.keras.Model(inputs, layers.Dense(4)(x)), str(source))
    said = convert(source, tmp_path / "out", f"--precision={precision}", f"--shapes={keras_layers.INPUT}:8x24x32")
    code, result, error = verify(source, tmp_path / "out")
    (signature,) = said["signatures"]
    report(
        test="layer normalization",
        precision=precision,
        scale=scale,
        engines=len(engines_of(said)),
        snr_db=result and min(float(one["snr_db"]) for one in result["comparisons"]),
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert len(engines_of(said)) == 1 and len(signature["preparation"]["normalized"]) == 1


class Doubled(tf.keras.layers.Layer):
    """UpSampling2D of an open size, which Keras 3 refuses."""

    def __init__(self, interpolation):
        super().__init__()
        self.interpolation = interpolation

    def call(self, x):
        return tf.image.resize(x, 2 * tf.shape(x)[1:3], self.interpolation)

    def compute_output_shape(self, shape):
        return (shape[0], None, None, shape[3])


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_one_engine_of_a_unet_of_open_sizes_serves_several_sizes(precision, tmp_path):
    layers = tf.keras.layers
    x = inputs = tf.keras.Input((None, None, 3), name="x")
    x = skip = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(16, 3, 2, padding="same", activation="relu")(x)
    y = (Doubled if stacks.SAVED_INPUT else layers.UpSampling2D)(interpolation="bilinear")(x)
    x = layers.Conv2DTranspose(8, 3, 2, padding="same", activation="relu")(x)
    outputs = layers.Conv2D(2, 1)(layers.Concatenate()([x, y, skip]))
    source = tmp_path / "in"
    tf.saved_model.save(tf.keras.Model(inputs, outputs), str(source))
    shapes = f"--shapes={stacks.SAVED_INPUT or 'x'}:1x32x32x3,2x32x32x3,1x48x64x3"
    said = convert(source, tmp_path / "out", f"--precision={precision}", shapes)
    code, result, error = verify(source, tmp_path / "out")
    report(
        test="open sizes",
        model="U-Net",
        precision=precision,
        engines=len(engines_of(said)),
        snr_db=result and [one["snr_db"] for one in result["comparisons"]],
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert len(engines_of(said)) == 1 and said["signatures"][0]["coverage"] == 1.0
