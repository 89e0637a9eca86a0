"""What the builders share: saving a Keras model under chosen names, useful random weights, image-like inputs."""

import numpy as np

from saved_models import keras_versions


def save_keras(model, output_dir, spec, output):
    """Save the inference function of a one-input, one-output Keras model.

    Only the variables and the signature `serving_default` are saved, under names that do not depend on Keras.
    Args: spec: tf.TensorSpec of the input, with its name. output: name of the output.
    """
    import tensorflow as tf

    @tf.function(input_signature=[spec])
    def serve(inputs):
        return {output: model(inputs, training=False)}

    root = tf.Module()
    root.saved_variables = keras_versions.variables(model)
    root.serve = serve
    tf.saved_model.save(root, str(output_dir), signatures={"serving_default": serve})


def settle(model, images, residual_suffix):
    """Make a Keras classifier with random weights answer like a trained one: different inputs, different classes, and
    small rounding errors stay small.

    With untouched batch statistics the activations of a deep random network vanish or explode and all inputs get the
    same class. So the moving statistics are set to those of `images` (float32, N x H x W x 3), and the last layer, a
    dense one, is shifted and scaled until each logit has mean 0 and all of them have standard deviation 2 on `images`.
    At full strength random residual branches also amplify a float16 rounding of the input to a tenth of the logits;
    those that end in a normalisation named *`residual_suffix` are damped, as training would start them.
    """
    import tensorflow as tf

    norms = [layer for layer in model.layers if isinstance(layer, tf.keras.layers.BatchNormalization)]
    for layer in norms:
        if layer.name.endswith(residual_suffix):
            layer.gamma.assign(0.3 * layer.gamma)
    set_statistics(model, images)
    logits = model(images, training=False).numpy()
    mean = logits.mean(axis=0)
    scale = 2.0 / (logits - mean).std()
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([kernel * scale, (bias - mean) * scale])


def set_statistics(model, images):
    """Set the moving statistics of every batch normalisation of a Keras model to those of `images`."""
    import tensorflow as tf

    norms = [layer for layer in model.layers if isinstance(layer, tf.keras.layers.BatchNormalization)]
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 0.0  # one pass then replaces the statistics instead of moving them a little
    model(images, training=True)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum


def images(rng, batch, size):
    """Smooth coloured fields that differ in pattern, contrast and brightness, as photographs do; white noise all looks
    alike to a network that averages over space. Returns: float32, batch x size x size x 3, in [-1, 1]."""
    coarse = rng.normal(size=(batch, 5, 5, 3))
    grid = np.linspace(0.0, 4.0, size)
    low = np.minimum(grid.astype(int), 3)
    weights = np.zeros((size, 5))
    weights[np.arange(size), low] = low + 1 - grid
    weights[np.arange(size), low + 1] = grid - low
    smooth = np.einsum("yi,xj,bijc->byxc", weights, weights, coarse, optimize=True)
    contrast = rng.uniform(0.3, 1.5, size=(batch, 1, 1, 1))
    brightness = rng.normal(scale=0.3, size=(batch, 1, 1, 3))
    noise = rng.normal(scale=0.05, size=smooth.shape)
    return np.clip(contrast * smooth + brightness + noise, -1.0, 1.0).astype(np.float32)
