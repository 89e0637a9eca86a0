"""A fully convolutional segmenter for images of any height and width, with seeded random weights.

Signature serving_default, N, H and W dynamic, H and W at least 9:
    image float32 (N, H, W, 3) in [-1, 1] -> class_logits float32 (N, H, W, classes).

Between encoder and decoder the features are padded by reflection (MirrorPad), which TF-TRT 2.14 has no converter for:
the model becomes two segments with a native op between them.
"""


def build(output_dir, *, classes=6, width=32, seed=0):
    """Write the SavedModel. Args: width: channels of the first layer; the middle has twice as many."""
    import tensorflow as tf

    network = _network(classes, width, seed)
    tf.saved_model.save(network, str(output_dir), signatures={"serving_default": network.serve})


def sample_inputs(rng, batch, *, height=48, width=64):
    """Image-like noise of one size."""
    from saved_models import _export

    return {"serving_default": {"image": _export.images(rng, batch, max(height, width))[:, :height, :width]}}


def _network(classes, width, seed):
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(seed)

    class Segmenter(tf.Module):
        def __init__(self):
            super().__init__(name="segmenter")
            self.encode1 = self.conv("encode1", 3, 3, width)
            self.encode2 = self.conv("encode2", 3, width, 2 * width)
            self.middle = self.conv("middle", 5, 2 * width, 2 * width)
            self.decode = self.conv("decode", 3, 2 * width, width)
            self.classify = self.conv("classify", 1, width, classes)

        def conv(self, name, size, fan_in, fan_out):
            scale = (2.0 / (size * size * fan_in)) ** 0.5
            kernel = rng.normal(scale=scale, size=(size, size, fan_in, fan_out)).astype(np.float32)
            bias = rng.normal(scale=0.1, size=fan_out).astype(np.float32)
            return tf.Variable(kernel, name=f"{name}/kernel"), tf.Variable(bias, name=f"{name}/bias")

        @tf.function(input_signature=[tf.TensorSpec((None, None, None, 3), tf.float32, name="image")])
        def serve(self, image):
            x = _convolve(image, self.encode1, strides=2)
            x = _convolve(x, self.encode2, strides=2)
            x = tf.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="REFLECT")
            x = _convolve(x, self.middle, padding="VALID")
            x = _convolve(x, self.decode)
            x = tf.nn.bias_add(tf.nn.conv2d(x, self.classify[0], 1, "SAME"), self.classify[1])
            return {"class_logits": tf.image.resize(x, tf.shape(image)[1:3])}

    return Segmenter()


def _convolve(x, weights, strides=1, padding="SAME"):
    import tensorflow as tf

    kernel, bias = weights
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, strides, padding), bias))
