"""Small models for engines, and what building them says."""

import tensorflow as tf


def saved(module, path):
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path


class Branches(tf.Module):
    """Which of two branches runs is an input."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal((8, 8), [1, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x"), tf.TensorSpec([], tf.int32, name="branch")])
    def __call__(self, x, branch):
        h = tf.matmul(x, self.w) + 1.0
        h = tf.cond(
            tf.equal(branch, 7),
            lambda: tf.nn.relu(tf.matmul(h, self.w) * 2.0 + 1.0),
            lambda: tf.tanh(tf.matmul(h, self.w) * 3.0),
        )
        return {"y": tf.cumsum(h)}


class Steps(tf.Module):
    """Three segments, for cumulative sums between them stay in TensorFlow."""

    def __init__(self):
        super().__init__()
        # Equal segments would be one entry of the cache.
        self.weights = [tf.Variable(tf.random.stateless_normal((8, 8), [1, step])) for step in range(3)]

    @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
    def __call__(self, x):
        for weights in self.weights:
            x = tf.cumsum(tf.nn.relu(tf.matmul(x, weights) + 1.0) * 2.0)
        return {"y": x}


class Wide(tf.Module):
    """Convolutions so large that TensorRT takes them in INT8 where they have ranges."""

    def __init__(self):
        super().__init__()
        self.filters = [tf.Variable(0.03 * tf.random.stateless_normal((3, 3, 256, 256), [2, n])) for n in range(2)]

    @tf.function(input_signature=[tf.TensorSpec([None, 28, 28, 256], name="x")])
    def __call__(self, x):
        for filters in self.filters:
            x = tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME") + 0.1)
        return {"y": x}


class Characters(tf.Module):
    """One engine op gets a row for each character of all texts, another one row for each text."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal((8, 8), [1, 2]))

    def layers(self, x):
        return tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(x, self.w) + 1.0), self.w) + 1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        codes = tf.strings.unicode_decode(text, "UTF-8")
        of_each = self.layers(tf.one_hot(codes.flat_values % 8, 8))
        lengths = tf.one_hot(tf.cast(codes.row_lengths(), tf.int32), 8)
        return {"y": self.layers(lengths) + tf.math.segment_sum(of_each, tf.zeros_like(codes.flat_values))[:1]}


class Recurrent(tf.Module):
    """A GRU whose loop holds engines, one with a constant of its own. It hands its weights on from step to step, as that of Keras 2's LSTM
    and GRU does. Keras 3's loops capture them: TensorFlow makes constants of them that wait for the loop, and TF-TRT takes nothing."""

    def __init__(self):
        super().__init__()
        self.weights = [tf.Variable(tf.random.stateless_normal(shape, [1, 2])) for shape in ((8, 24), (8, 16), (8, 8))]

    @staticmethod
    def cell(x, h, kernel, gates, candidate):
        ours, theirs = tf.split(tf.matmul(x, kernel), 3, 1), tf.split(tf.matmul(h, gates), 2, 1)
        update, reset = (tf.sigmoid(mine + other) for mine, other in zip(ours, theirs, strict=False))
        return update * h + (1.0 - update) * tf.tanh(ours[2] + tf.matmul(reset * h, candidate))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8], name="x")])
    def __call__(self, x):
        steps = tf.transpose(x, [1, 0, 2])
        _, h, *_ = tf.while_loop(
            lambda step, *_: step < tf.shape(steps)[0],
            lambda step, h, *weights: (step + 1, self.cell(steps[step], h, *weights), *weights),
            (0, tf.zeros([tf.shape(x)[0], 8]), *map(tf.identity, self.weights)),
        )
        return {"y": h}
