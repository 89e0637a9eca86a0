"""Small models with what kept models of others out of plans or engines: dilated convolutions over bytes, bidirectional and masked layers, volumes,
cropped sequences, side outputs that are resized, upsampling of open sizes."""

import tensorflow as tf

from tests import stacks

layers = tf.keras.layers


def _computed(function, shape):
    """A layer that computes a function of TensorFlow, which takes no tensors of Keras 3. Args: shape: of a row that it gives."""
    return layers.Lambda(function, output_shape=shape)


def _dilated_bytes():
    x = inputs = tf.keras.Input((None,), dtype="int32", name="bytes")
    x = layers.Embedding(256, 8)(x)
    for rate in (1, 2, 4):
        x += layers.Conv1D(8, 3, dilation_rate=rate, padding="same", activation="relu")(x)
    return inputs, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling1D()(x))


def _tagger():
    inputs = tf.keras.Input((12, 6), name="x")
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(inputs)
    x = layers.Bidirectional(layers.GRU(4, return_sequences=True))(x)
    return inputs, layers.Dense(3, activation="softmax")(x)


def _masked_tagger():
    inputs = tf.keras.Input((None,), dtype="int32", name="ids")
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(layers.Embedding(50, 6, mask_zero=True)(inputs))
    return inputs, layers.Dense(3)(x)


def _turned():
    """Sequences whose lengths follow from the zeros behind them, in the opposite order: a backward layer of TF1."""
    inputs = tf.keras.Input((None, 6), name="x")

    def turned(ends):
        x, inputs = ends
        lengths = tf.reduce_sum(tf.cast(tf.reduce_any(inputs > 0.5, -1), tf.int32), -1)
        return tf.reverse_sequence(x, lengths, seq_axis=1, batch_axis=0)

    x = _computed(turned, (None, 6))([inputs, inputs])
    back = _computed(turned, (None, 8))([layers.LSTM(8, return_sequences=True)(x), inputs])
    return inputs, layers.Dense(3, activation="softmax")(layers.Concatenate()([back, inputs]))


def _language():
    inputs = tf.keras.Input((16,), name="codes")
    x = _computed(lambda codes: tf.one_hot(tf.cast(codes, tf.int32), 64), (16, 64))(inputs)
    x = layers.LSTM(8, return_sequences=True)(x)
    return inputs, layers.Dense(4, activation="softmax")(layers.LSTM(8)(x))


def _cropped():
    x = inputs = tf.keras.Input((None, 4), name="x")
    x = layers.Conv1D(8, 1)(x)
    for rate in (1, 4, 10):
        y = layers.ReLU()(layers.BatchNormalization()(x))
        x += layers.Conv1D(8, 5, dilation_rate=rate, padding="same")(y)
    return inputs, layers.Conv1D(3, 1, activation="softmax")(layers.Cropping1D((20, 20))(x))


def _edges():
    x = inputs = tf.keras.Input((32, 48, 3), name="x")
    sides = []
    for channels in (4, 8, 8):
        x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        side = layers.Conv2D(1, 1)(x)
        sides.append(_computed(lambda side: tf.image.resize(side, (32, 48)), (32, 48, 1))(side))
        x = layers.MaxPool2D(2)(x)
    return inputs, layers.Conv2D(1, 1, activation="sigmoid")(layers.Concatenate()(sides))


def _enlarged():
    x = inputs = tf.keras.Input((None, None, 3), name="x")
    x = skip = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(8, 3, 2, padding="same", activation="relu")(x)
    return inputs, layers.Conv2D(2, 1)(layers.Concatenate()([layers.UpSampling2D()(x), skip]))


# {what: (the model's ends, --shapes)}.
FEATURES = {
    "dilated bytes": (_dilated_bytes, "bytes:1x24,4x24"),
    "tagger": (_tagger, "x:1x12x6,4x12x6"),
    "masked tagger": (_masked_tagger, "ids:1x12,4x12"),
    "sequences turned by their lengths": (_turned, "x:1x12x6,4x12x6"),
    "language": (_language, "codes:1x16,4x16"),
    "cropped": (_cropped, "x:1x64x4,2x64x4"),
    "edges": (_edges, "x:1x32x48x3,2x32x48x3"),
    "enlarged": (_enlarged, "x:1x32x48x3,2x32x48x3"),
}


def save(kind, path):
    """Returns: --shapes of the model, which is saved at `path`."""
    ends, shapes = FEATURES[kind]
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)
    tf.saved_model.save(tf.keras.Model(*ends()), str(path))
    return f"{stacks.SAVED_INPUT}:{shapes.partition(':')[2]}" if stacks.SAVED_INPUT else shapes
