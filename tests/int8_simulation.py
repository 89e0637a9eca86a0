"""INT8 as TensorRT does it, simulated in float: one scale for a tensor of activations, one for each output channel of weights.

Symmetric, 127 steps a side: q(x) = clip(round(x / s), -127, 127) s. Convolution, normalisation and ReLU are one kernel in TensorRT,
so only the ends of such a chain are rounded. For Keras models of the layers that `spread_cnn` has.
"""

import contextlib

import numpy as np

from saved_models import keras_versions


def activations(model, images):
    """Outputs of the chains of `model` on `images`. Returns: {layer name: float32 array}."""
    found = {}
    _walk(model, images, lambda layer, value: found.setdefault(layer.name, value))
    return {name: value.numpy() for name, value in found.items()}


def scales(found, percentile=100.0):
    """{layer name: scale} that puts the percentile of |x| of `activations` at 127."""
    return {name: float(np.percentile(np.abs(value), percentile)) / 127.0 for name, value in found.items()}


def run(model, images, scales, keep=()):
    """The model's answers in INT8. Args: keep: prefixes of names of layers that stay in float, weights and outputs."""
    import tensorflow as tf

    def rounded(layer, value):
        if _kept(layer, keep):
            return value
        scale = scales[layer.name]
        return tf.clip_by_value(tf.round(value / scale), -127, 127) * scale

    with _rounded_weights([layer for layer in model.layers if not _kept(layer, keep)]):
        return _walk(model, images, rounded).numpy()


def _kept(layer, keep):
    return layer.name.startswith(tuple(keep)) if keep else False


def _walk(model, images, at_end):
    import tensorflow as tf

    kinds = tf.keras.layers
    values = {}
    for layer in model.layers:
        if isinstance(layer, kinds.InputLayer):
            value = tf.constant(images)
        else:
            sources = [values[keras_versions.maker(tensor).name] for tensor in tf.nest.flatten(layer.input)]
            value = layer(sources if len(sources) > 1 else sources[0])
        followers = keras_versions.readers(layer)
        fused = any(isinstance(one, (kinds.BatchNormalization, kinds.ReLU)) for one in followers)
        values[layer.name] = value if fused or not followers else at_end(layer, value)
    return value


@contextlib.contextmanager
def _rounded_weights(layers):
    import tensorflow as tf

    kinds = tf.keras.layers
    before = []
    for layer in layers:
        if not isinstance(layer, (kinds.Conv2D, kinds.Dense)):
            continue
        depthwise = isinstance(layer, kinds.DepthwiseConv2D)
        kernel = layer.depthwise_kernel if depthwise else layer.kernel
        # A depthwise kernel's output channels are on axis 2 (one for each input channel), all others' on the last.
        axes = (0, 1, 3) if depthwise else tuple(range(len(kernel.shape) - 1))
        scale = tf.reduce_max(tf.abs(kernel), axis=axes, keepdims=True) / 127.0
        before.append((kernel, kernel.numpy()))
        kernel.assign(tf.round(kernel / scale) * scale)
    try:
        yield
    finally:
        for kernel, value in before:
            kernel.assign(value)
