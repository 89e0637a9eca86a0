"""ResNet-50 with seeded random weights whose batch statistics match the data, so that the answers depend on the input.

Signature serving_default: image float32 (N, size, size, 3) in [-1, 1] -> logits float32 (N, classes).
"""

from saved_models import _export, keras_versions

INPUT, OUTPUT = "image", "logits"


def build(output_dir, *, size=224, classes=1000, width=64, seed=0):
    """Write the SavedModel. Args: size: height and width of the images, at least 32. classes: number of logits. width: channels of the
    first stage; those of the others are 2, 4 and 8 times as many. 64 is ResNet-50 itself."""
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)
    image = tf.keras.Input((size, size, 3), name=INPUT)
    model = _network(image, classes, width)
    _export.settle(model, _export.images(np.random.default_rng(seed), 32, size), residual_suffix="_3_bn")
    _export.save_keras(model, output_dir, tf.TensorSpec((None, size, size, 3), tf.float32, name=INPUT), OUTPUT)


def _network(image, classes, width):
    """As tf.keras.applications.ResNet50 makes it, with stages of another width."""

    def stages(x):
        x = keras_versions.residual_stage(x, width, 3, "conv2", stride=1)
        for number, blocks in enumerate((4, 6, 3), 1):
            x = keras_versions.residual_stage(x, width << number, blocks, f"conv{number + 2}")
        return x

    return keras_versions.resnet(stages, image, classes, "resnet50")


def sample_inputs(rng, batch, *, size=224):
    """Image-like noise. Args: size: as given to `build`."""
    return {"serving_default": {INPUT: _export.images(rng, batch, size)}}
