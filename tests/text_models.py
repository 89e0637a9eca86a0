"""A text classifier that looks to TF-TRT as one of Transformers: open lengths, and a mask with a constant beyond FP16. For tests where there is
no Transformers."""

import numpy as np

INPUTS = ("input_ids", "attention_mask")
_WORDS, _WIDTH, _LAYERS = 1000, 64, 2


def build(output_dir, seed=0):
    """Write the SavedModel, input_ids and attention_mask int32 (N, L) -> logits float32 (N, 2)."""
    import tensorflow as tf

    rng = np.random.default_rng(seed)

    def weights(*shape):
        return tf.Variable(rng.normal(scale=shape[0] ** -0.5, size=shape).astype(np.float32))

    class Classifier(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.Variable(rng.normal(size=(_WORDS, _WIDTH)).astype(np.float32))
            self.layers = [[weights(_WIDTH, _WIDTH) for _ in range(3)] for _ in range(_LAYERS)]
            self.head = weights(_WIDTH, 2)

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name) for name in INPUTS])
        def serve(self, input_ids, attention_mask):
            x = tf.gather(self.table, input_ids)
            hidden = 1.0 - tf.expand_dims(tf.cast(attention_mask, tf.float32), 1)
            for number, layer in enumerate(self.layers):
                query, key, value = (tf.matmul(x, one) for one in layer)
                with tf.name_scope(f"layer_._{number}/attention"):
                    scores = tf.matmul(tf.multiply(query, _WIDTH**-0.5, name="mul"), key, transpose_b=True)
                    # As DistilBERT does it. Equal ones would become one.
                    scores -= tf.multiply((1 + number) * 1e30, hidden, name="mul_1")
                x += tf.matmul(tf.nn.softmax(scores), value)
            return {"logits": tf.matmul(x[:, 0], self.head)}

    model = Classifier()
    tf.saved_model.save(model, str(output_dir), signatures={"serving_default": model.serve})


def rows(count=64, length=64, seed=0):
    """{input: rows}: random ids, each row as long as it happens to be, and padding behind."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(length) < rng.integers(8, length + 1, (count, 1))).astype(np.int32)
    return {"input_ids": rng.integers(1, _WORDS, (count, length)).astype(np.int32) * mask, "attention_mask": mask}
