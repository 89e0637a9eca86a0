"""Wrapped models for tests: files of pictures, calls of signatures."""

import io

import numpy as np
import tensorflow as tf
from PIL import Image


def noise(*shape, seed=0):
    """uint8 of a shape."""
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def encoded(pixels, form="PNG", **options):
    """The bytes of a file. Args: pixels: uint8[height, width] or [height, width, 1 or 3]."""
    file = io.BytesIO()
    pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def strings(*values):
    """Strings as a model takes them."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def answers(model, signature, /, **inputs):
    """{output: array} of a call, in TensorFlow."""
    loaded = tf.saved_model.load(str(model))
    return {
        name: tensor.numpy()
        for name, tensor in loaded.signatures[signature](
            **{name: tf.constant(value, tf.string if value.dtype == object else None) for name, value in inputs.items()}
        ).items()
    }


def served(model, signature, /, **inputs):
    """The same as a server does it: in a session, on the main graph."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, ["serve"], str(model))
        declared = meta.signature_def[signature]
        return session.run(
            {name: info.name for name, info in declared.outputs.items()},
            {declared.inputs[name].name: value for name, value in inputs.items()},
        )


def classifier(path, shape=(None, 8, 8, 3), before=None, dtype=tf.float32, classes=10):
    """A small SavedModel: image -> scores[N, classes]. Args: before: applied to the image first."""
    channels, axes = (shape[3], (1, 2)) if shape[3] in (1, 3) else (shape[1], (2, 3))
    weights = np.random.default_rng(1).normal(size=(channels, classes)).astype(np.float32)

    class Classifier(tf.Module):
        def __init__(self):
            self.weights = tf.Variable(weights)

        @tf.function(input_signature=[tf.TensorSpec(shape, dtype, "image")])
        def __call__(self, image):
            image = before(image) if before else image
            return {"scores": tf.matmul(tf.reduce_mean(tf.cast(image, tf.float32), axes), self.weights)}

    module = Classifier()
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path
