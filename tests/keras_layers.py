"""Small Keras models of layers that the sample models do not have, for the names in calibration tables: BUILDERS, `build`, `inputs`."""

import numpy as np
import tensorflow as tf

from saved_models import keras_versions
from tests import stacks, zoo

_layers = tf.keras.layers


class FusedNormalization(_layers.Layer):
    """Keras 2's layer normalization of the last dimension, op by op: its reshape hides the channels from TF-TRT."""

    def __init__(self, center=True, scale=True, **more):
        super().__init__(**more)
        self.center, self.scale = center, scale

    def build(self, shape):
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer="ones") if self.scale else None
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros") if self.center else None

    def call(self, x):
        shape = tf.shape(x)
        rows = tf.reduce_prod([shape[index] for index in range(len(x.shape) - 1)])
        flat = tf.reshape(x, [1, rows, shape[-1], 1])
        normal, _, _ = tf.compat.v1.nn.fused_batch_norm(
            flat, tf.fill([rows], 1.0), tf.fill([rows], 0.0), epsilon=1e-3, data_format="NCHW"
        )
        y = tf.reshape(normal, shape)
        y = y if self.gamma is None else y * tf.convert_to_tensor(self.gamma)
        return y if self.beta is None else y + tf.convert_to_tensor(self.beta)


class Product(_layers.Layer):
    """A layer of tf.einsum."""

    def __init__(self, equation, **more):
        super().__init__(**more)
        self.equation = equation

    def call(self, given):
        return tf.einsum(self.equation, *given)


class Turned(_layers.Layer):
    def __init__(self, order):
        super().__init__(name="transposed")
        self.order = order

    def call(self, x):
        return tf.transpose(x, self.order)


def _einsum(equation, left, right, name):
    return Product(equation, name=name)([left, right])


def _transpose(x, order):
    return Turned(order)(x)


# Keras 3's layer normalization keeps the sizes that it knows, and its tensors are none that TensorFlow's functions take.
Normalization, einsum, transpose = {
    2: (_layers.LayerNormalization, tf.einsum, tf.transpose),
    3: (FusedNormalization, _einsum, _transpose),
}[keras_versions.major()]


def _conv1d():
    inputs = tf.keras.Input((None, 16), name="x")
    x = _layers.Conv1D(16, 3, padding="same", activation="relu")(inputs)
    x = Normalization(name="layer_normalization")(x)
    x = _layers.SeparableConv1D(16, 3, padding="same")(x)
    x = _layers.BatchNormalization()(x)
    x = _layers.Dense(16, activation="gelu")(x)
    x = _layers.GlobalAveragePooling1D()(x)
    return tf.keras.Model(inputs, _layers.Dense(4, activation="softmax")(x))


def _attention():
    inputs = tf.keras.Input((None, 16), name="x")
    x = _layers.LayerNormalization()(inputs + _layers.MultiHeadAttention(2, 8)(inputs, inputs))
    y = _layers.Dense(16)(_layers.Dense(32, activation="swish")(x))
    return tf.keras.Model(inputs, _layers.Dense(4)(_layers.LayerNormalization()(x + y)))


def _unet():
    inputs = tf.keras.Input((None, None, 3), name="x")
    fine = _layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    coarse = _layers.Conv2D(16, 3, padding="same")(_layers.MaxPooling2D()(fine))
    coarse = _layers.LeakyReLU()(_layers.BatchNormalization()(coarse))
    up = _layers.Concatenate()([_layers.UpSampling2D()(coarse), fine])
    up = _layers.Conv2D(8, 3, padding="same", activation="swish")(up)
    return tf.keras.Model(
        inputs, _layers.Conv2D(2, 1)(_layers.Add()([up, _layers.Conv2DTranspose(8, 2, strides=2)(coarse)]))
    )


def _squeeze_and_excite():
    inputs = tf.keras.Input((32, 32, 3), name="x")
    x = _layers.Conv2D(16, 3, strides=2, use_bias=False)(_layers.ZeroPadding2D()(inputs))
    x = _layers.ReLU(6.0)(_layers.BatchNormalization()(x))
    weights = _layers.Conv2D(4, 1, activation="swish")(_layers.GlobalAveragePooling2D(keepdims=True)(x))
    x = _layers.Multiply()([x, _layers.Conv2D(16, 1, activation="sigmoid")(weights)])
    x = _layers.AveragePooling2D(2)(_layers.DepthwiseConv2D(3, padding="same")(x))
    x = _layers.Flatten()(_layers.PReLU(shared_axes=[1, 2])(x))
    return tf.keras.Model(inputs, _layers.Dense(10, activation="softmax")(x))


def _einsums():
    """Products one after another: next to each other, with something between, read twice, transposed or not."""
    inputs = tf.keras.Input((24, 16), name="x")
    first = _layers.EinsumDense("abc,cd->abd", (24, 16), name="first")(inputs)
    second = _layers.EinsumDense("abc,cd->abd", (24, 16), name="second")(first)
    left, right = _layers.ReLU()(second), _layers.EinsumDense("abc,cde->abde", (24, 2, 8), name="heads")(second)
    scores = einsum("abc,adc->abd", left, second, name="scores")
    mixed = einsum("abd,adc->abc", scores, left, name="mixed")
    turned = einsum("abde,afde->adbf", right, right, name="turned")
    moved = transpose(einsum("adbf,afde->abde", turned, right, name="back"), [0, 2, 1, 3])
    last = einsum("adbe,abc->adec", moved, mixed, name="last")
    return tf.keras.Model(
        inputs,
        {"last": last, "mixed": _layers.EinsumDense("abc,cd->abd", (24, 4), name="third")(mixed), "plain": mixed},
    )


def _grouped():
    """Convolutions of 4 groups, of one channel a group and of two; Keras lets XLA compile them all."""
    inputs = tf.keras.Input((32, 32, 8), name="x")
    x = _layers.Conv2D(16, 3, strides=2, padding="same", groups=4, activation="relu", name="four")(inputs)
    x = _layers.BatchNormalization()(_layers.Conv2D(16, 3, padding="same", groups=16, name="each")(x))
    x = _layers.Conv2D(32, 3, groups=8, activation="relu", name="two")(x)
    return tf.keras.Model(inputs, _layers.Dense(10)(_layers.GlobalAveragePooling2D()(x)))


# keep_native_nodes of a conversion without which no GPU builds the engines.
KEPT_NATIVE = {"conv1d": ".*/depthwise"}
_SHAPES = {
    "einsums": (24, 16),
    "conv1d": (24, 16),
    "attention": (24, 16),
    "unet": (32, 32, 3),
    "squeeze_and_excite": (32, 32, 3),
    "grouped": (32, 32, 8),
}
BUILDERS = {
    "conv1d": _conv1d,
    "attention": _attention,
    "unet": _unet,
    "squeeze_and_excite": _squeeze_and_excite,
    "einsums": _einsums,
    "grouped": _grouped,
}


INPUT = stacks.SAVED_INPUT or "x"


def build(name, folder):
    """Write a SavedModel, always the same. Returns: folder."""
    tf.keras.utils.set_random_seed(0)
    keras_versions.forget_names()
    tf.saved_model.save(BUILDERS[name](), str(folder))
    return folder


def built_once(name, tmp_path_factory):
    """The folder of this session's one model of this name, not to be changed."""
    return zoo.once(zoo.common(tmp_path_factory) / "keras_layers" / name, lambda path: build(name, path))


def inputs(name, rows):
    """{input: float32 array of `rows` rows}."""
    return {INPUT: np.random.default_rng(0).normal(size=(rows, *_SHAPES[name])).astype("f4")}
