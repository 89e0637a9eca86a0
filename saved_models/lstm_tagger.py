"""A bidirectional LSTM tagger with seeded random weights. The recurrence is a loop: its control
flow stays native, while matrix products inside it, and the layers before and after it, convert.

Signature serving_default, batch N and length L dynamic: tokens int32 (N, L) -> tag_logits float32 (N, L, tags).
"""

VOCABULARY = 500


def build(output_dir, *, units=64, tags=12, vocabulary=VOCABULARY, seed=0):
    """Write the SavedModel. Args: units: of the LSTM, each direction."""
    import tensorflow as tf

    from saved_models import _export

    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    tokens = tf.keras.Input((None,), dtype=tf.int32, name="tokens")
    wide = tf.keras.initializers.RandomNormal(stddev=1.0)
    x = layers.Embedding(vocabulary, 64, embeddings_initializer=wide, name="embedding")(tokens)
    x = layers.Dense(64, activation="tanh", name="project")(x)
    x = layers.Bidirectional(layers.LSTM(units, return_sequences=True, name="lstm"), name="both_ways")(x)
    x = layers.Dense(64, activation="relu", name="hidden")(x)
    large = tf.keras.initializers.VarianceScaling(8.0)
    model = tf.keras.Model(
        tokens, layers.Dense(tags, kernel_initializer=large, name="tag_logits")(x), name="lstm_tagger"
    )
    _export.save_keras(model, output_dir, tf.TensorSpec((None, None), tf.int32, name="tokens"), "tag_logits")


def sample_inputs(rng, batch, *, length=20, vocabulary=VOCABULARY):
    """Random tokens."""
    return {"serving_default": {"tokens": rng.integers(vocabulary, size=(batch, length), dtype="int32")}}
