"""Models in which some nodes lose more by rounding than others."""

import numpy as np
import tensorflow as tf


def saved_chain(path, kernels, output="scores"):
    """A SavedModel of matrix products with ReLU between, named layer0, layer1, …"""

    class Model(tf.Module):
        def __init__(self):
            self.kernels = [tf.Variable(kernel) for kernel in kernels]

        @tf.function(input_signature=[tf.TensorSpec((None, len(kernels[0])), tf.float32, name="x")])
        def serve(self, x):
            for number, kernel in enumerate(self.kernels):
                x = tf.matmul(x, kernel, name=f"layer{number}")
                x = tf.nn.relu(x) if number + 1 < len(kernels) else x
            return {output: x}

    model = Model()
    tf.saved_model.save(model, str(path), signatures={"serving_default": model.serve})
    return path


def kernels(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") / 4 for shape in ((16, 16), (16, 16), (16, 16), (16, 5))]


def rows(path, count=64, seed=1, **changes):
    x = np.random.default_rng(seed).normal(size=(count, 16)).astype("float32")
    np.savez(path, **{"x": x, **changes})
    return str(path)


def saved_function(path, body):
    serve = tf.function(body, input_signature=[tf.TensorSpec((None, 16), tf.float32, name="x")])
    module = tf.Module()
    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


def two_layers(x):
    return tf.matmul(tf.nn.relu(tf.matmul(x, tf.constant(kernels()[0]))), tf.constant(kernels()[1]))
