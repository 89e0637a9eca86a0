"""MobileNetV2 with seeded random weights whose batch statistics match the data, so that the answers depend on the input.

Signature serving_default: image float32 (N, size, size, 3) in [-1, 1] -> logits float32 (N, classes).
"""

from saved_models import _export, keras_versions

INPUT, OUTPUT = "image", "logits"


def build(output_dir, *, size=224, classes=1000, seed=0):
    """Write the SavedModel. Args: size: height and width of the images, at least 32. classes: number of logits."""
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)
    # Keras numbers layers without a name through the whole process, and there is one here: it is not to depend on what was built before.
    keras_versions.forget_names()
    image = tf.keras.Input((size, size, 3), name=INPUT)
    model = tf.keras.applications.MobileNetV2(
        weights=None, input_tensor=image, classes=classes, classifier_activation=None
    )
    _smooth_depthwise(model)
    _export.settle(model, _export.images(np.random.default_rng(seed), 32, size), residual_suffix="_project_BN")
    _export.save_keras(model, output_dir, tf.TensorSpec((None, size, size, 3), tf.float32, name=INPUT), OUTPUT)


def _smooth_depthwise(model):
    """Centre the random depthwise kernels on a blur: pure noise would be edge detectors that amplify rounding errors."""
    import tensorflow as tf

    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.DepthwiseConv2D):
            (kernel,) = layer.get_weights()
            layer.set_weights([1 / 9 + 0.1 * kernel / kernel.std()])


def sample_inputs(rng, batch, *, size=224):
    """Image-like noise. Args: size: as given to `build`."""
    return {"serving_default": {INPUT: _export.images(rng, batch, size)}}
