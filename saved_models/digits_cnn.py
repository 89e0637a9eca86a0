"""A small CNN trained on scikit-learn's handwritten digits: 1,797 real 8x8 images in ten classes.

Signature serving_default: image float32 (N, 8, 8, 1) in [0, 1] -> probabilities float32 (N, 10).
Training takes seconds on two cores; images that training never saw give an accuracy above 0.97.
"""

import functools
import pathlib

INPUT, OUTPUT, CLASSES = "image", "probabilities", 10
_HELD_BACK = 400


def build(output_dir, *, seed=0):
    """Train and write the SavedModel."""
    import tensorflow as tf

    from saved_models import _export

    save_spec = tf.TensorSpec((None, 8, 8, 1), tf.float32, name=INPUT)
    _export.save_keras(train(seed), output_dir, save_spec, OUTPUT)


def write_keras(path, *, seed=0):
    """Write the same model as a Keras file. Args: path: ends in .keras or .h5 (.hdf5)."""
    path = pathlib.Path(path)
    endings = (".keras", ".h5", ".hdf5")
    if path.suffix not in endings:
        raise ValueError(f"{path}: a Keras file ends in {', '.join(endings)}")
    train(seed).save(path)


def held_back(seed=0):
    """Images that `train(seed)` never saw. Returns: images float32 (400, 8, 8, 1), labels int64 (400,)."""
    return _split(seed)[2:]


def training_images(seed=0):
    """What `train(seed)` learns from. Returns: images float32 (1397, 8, 8, 1), labels int64 (1397,)."""
    return _split(seed)[:2]


def sample_inputs(rng, batch, *, seed=0):
    """Held-back images in random order."""
    images, _ = held_back(seed)
    return {"serving_default": {INPUT: images[rng.integers(len(images), size=batch)]}}


@functools.lru_cache(maxsize=1)
def train(seed=0):
    """The trained Keras model; trained once a process."""
    import tensorflow as tf

    images, labels, _, _ = _split(seed)
    tf.keras.utils.set_random_seed(seed)
    model = _network()
    epoch = -(-len(images) // 32)
    rate = tf.keras.optimizers.schedules.CosineDecay(2e-3, 30 * epoch)
    # Smoothed labels: no probability becomes 0 or 1 in float32, whatever the processor rounds. Such answers would hide every error.
    loss = tf.keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    # Keras leaves its loop in Python once an epoch and not once a step: a fifth less time, the same weights.
    model.compile(tf.keras.optimizers.Adam(rate), loss, steps_per_execution=epoch)
    model.fit(images, tf.one_hot(labels, CLASSES), batch_size=32, epochs=30, verbose=0)
    return model


def _network():
    import tensorflow as tf

    layers = tf.keras.layers
    image = tf.keras.Input((8, 8, 1), name=INPUT)
    x = layers.Conv2D(32, 3, padding="same", use_bias=False, name="conv1")(image)
    x = layers.BatchNormalization(name="norm1")(x)
    x = layers.ReLU(name="relu1")(x)
    x = layers.Conv2D(64, 3, padding="same", activation="relu", name="conv2")(x)
    x = layers.MaxPooling2D(name="pool")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dropout(0.3, name="dropout")(x)
    x = layers.Dense(64, activation="relu", name="hidden")(x)
    return tf.keras.Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT)(x), name="digits_cnn")


@functools.lru_cache(maxsize=1)
def _split(seed):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = (data.images / 16.0).astype("float32")[..., None]
    labels = data.target.astype("int64")
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=_HELD_BACK, random_state=seed, stratify=labels
    )
    return train_x, train_y, test_x, test_y
