"""A BERT-like encoder with seeded random weights: embeddings, attention with a padding mask, GELU (erf), LayerNorm.

Signature serving_default, batch N and length L dynamic, L at most `max_length`:
    input_ids int32 (N, L), input_mask int32 (N, L), 1 for a token and 0 for padding
    -> sequence_output float32 (N, L, hidden), pooled_output float32 (N, hidden).
"""

VOCABULARY = 1000


def build(output_dir, *, layers=4, hidden=256, heads=4, vocabulary=VOCABULARY, max_length=512, seed=0):
    """Write the SavedModel. Args: hidden: width, a multiple of `heads`; the feed-forward layers are four times as wide."""
    import tensorflow as tf

    encoder = _encoder(layers, hidden, heads, vocabulary, max_length, seed)
    tf.saved_model.save(encoder, str(output_dir), signatures={"serving_default": encoder.serve})


def sample_inputs(rng, batch, *, length=32, vocabulary=VOCABULARY):
    """Random ids; each row has its own number of tokens, from a quarter of `length` up, and padding (id 0) behind."""
    import numpy as np

    tokens = rng.integers(max(1, length // 4), length + 1, size=(batch, 1))
    mask = (np.arange(length) < tokens).astype(np.int32)
    ids = rng.integers(1, vocabulary, size=(batch, length), dtype=np.int32) * mask
    return {"serving_default": {"input_ids": ids, "input_mask": mask}}


def _encoder(layers, hidden, heads, vocabulary, max_length, seed):
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(seed)

    class Encoder(tf.Module):
        """Variables are named for the place of their use, as BERT checkpoints name them."""

        def __init__(self):
            super().__init__(name="encoder")
            self.tokens = self.table("embeddings/word", vocabulary)
            self.positions = self.table("embeddings/position", max_length)
            self.embedding_norm = self.norm("embeddings")
            self.layers = [self.layer(f"layer_{index}") for index in range(layers)]
            self.pooler = self.dense("pooler", hidden, hidden)

        def table(self, name, rows):
            return tf.Variable(rng.normal(size=(rows, hidden)).astype(np.float32), name=name)

        def dense(self, name, fan_in, fan_out):
            kernel = rng.normal(scale=fan_in**-0.5, size=(fan_in, fan_out)).astype(np.float32)
            bias = rng.normal(scale=0.1, size=fan_out).astype(np.float32)
            return tf.Variable(kernel, name=f"{name}/kernel"), tf.Variable(bias, name=f"{name}/bias")

        def norm(self, name):
            ones = rng.normal(1.0, 0.1, size=hidden).astype(np.float32)
            zeros = rng.normal(scale=0.1, size=hidden).astype(np.float32)
            return tf.Variable(ones, name=f"{name}/gamma"), tf.Variable(zeros, name=f"{name}/beta")

        def layer(self, name):
            sizes = {
                "query": (1, 1),
                "key": (1, 1),
                "value": (1, 1),
                "merge": (1, 1),
                "widen": (1, 4),
                "narrow": (4, 1),
            }
            parts = {part: self.dense(f"{name}/{part}", a * hidden, b * hidden) for part, (a, b) in sizes.items()}
            return {
                **parts,
                "attention_norm": self.norm(f"{name}/attention"),
                "output_norm": self.norm(f"{name}/output"),
            }

        @tf.function(
            input_signature=[
                tf.TensorSpec((None, None), tf.int32, name="input_ids"),
                tf.TensorSpec((None, None), tf.int32, name="input_mask"),
            ]
        )
        def serve(self, input_ids, input_mask):
            length = tf.shape(input_ids)[1]
            x = tf.gather(self.tokens, input_ids) + self.positions[:length]
            x = _layer_norm(x, self.embedding_norm)
            # Not -inf and small enough for float16: a padded position gets a weight of zero and no NaN.
            padding = (1.0 - tf.cast(input_mask, tf.float32))[:, tf.newaxis, tf.newaxis, :] * -1e4
            for layer in self.layers:
                x = _layer_norm(x + _attention(x, padding, layer, heads), layer["attention_norm"])
                x = _layer_norm(x + _apply(_gelu(_apply(x, layer["widen"])), layer["narrow"]), layer["output_norm"])
            return {"sequence_output": x, "pooled_output": tf.tanh(_apply(x[:, 0], self.pooler))}

    return Encoder()


def _attention(x, padding, layer, heads):
    """Args: x: (N, L, hidden). padding: (N, 1, 1, L), added to the scores. Returns: (N, L, hidden)."""
    import tensorflow as tf

    hidden = x.shape[-1]
    batch, length = tf.shape(x)[0], tf.shape(x)[1]

    def split(part):
        return tf.transpose(tf.reshape(_apply(x, layer[part]), (batch, length, heads, hidden // heads)), (0, 2, 1, 3))

    scores = tf.matmul(split("query"), split("key"), transpose_b=True) * (hidden // heads) ** -0.5
    mixed = tf.matmul(tf.nn.softmax(scores + padding), split("value"))
    return _apply(tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (batch, length, hidden)), layer["merge"])


def _apply(x, dense):
    import tensorflow as tf

    kernel, bias = dense
    return tf.matmul(x, kernel) + bias


def _layer_norm(x, norm):
    import tensorflow as tf

    gamma, beta = norm
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-6) * gamma + beta


def _gelu(x):
    import tensorflow as tf

    return 0.5 * x * (1.0 + tf.math.erf(x * 2.0**-0.5))
