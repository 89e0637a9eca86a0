"""Makers of SavedModels of realistic making: built with Keras and TensorFlow, most of them trained for some seconds. As in `_trained`."""

import numpy as np

from benchmarks.real_models import _rows

ROWS = 200
_SIZE = 96  # pictures' height and width
_SHAPES = 3  # kinds of things that `scenes` draws


def detector(packages, target):
    """A detector of one stage: convolutions, a head over a grid, boxes, combined_non_max_suppression; trained on drawn shapes."""
    import tensorflow as tf
    from tensorflow import keras

    pictures, boxes, kinds, _ = scenes(800)
    cells = 12
    goal = _grid(boxes, kinds, cells)
    entry = keras.Input((_SIZE, _SIZE, 3), name="image")
    x = keras.layers.Rescaling(1 / 127.5, -1)(entry)
    for filters in (16, 32, 64):
        x = _block(x, filters, strides=2)
    x = _block(x, 64)
    network = keras.Model(entry, keras.layers.Conv2D(_SHAPES + 4, 1, name="head")(x))

    def loss(right, made):
        there = tf.reduce_max(right[..., :_SHAPES], axis=-1)
        apart = tf.reduce_sum(tf.abs(right[..., _SHAPES:] - made[..., _SHAPES:]), axis=-1) * there
        scores = tf.nn.sigmoid_cross_entropy_with_logits(right[..., :_SHAPES], made[..., :_SHAPES])
        return tf.reduce_sum(scores, axis=[1, 2, 3]) / 10 + tf.reduce_sum(apart, axis=[1, 2]) / 10

    network.compile(keras.optimizers.Adam(3e-3), loss)
    network.fit(pictures, goal, batch_size=32, epochs=12, verbose=0)
    middle = (
        np.stack(np.meshgrid(*2 * [(np.arange(cells) + 0.5) / cells], indexing="ij"), axis=-1)
        .reshape(1, -1, 2)
        .astype(np.float32)
    )

    @tf.function(input_signature=[tf.TensorSpec([None, _SIZE, _SIZE, 3], tf.float32, "image")])
    def detect(image):
        flat = tf.reshape(network(image, training=False), [-1, cells * cells, _SHAPES + 4])
        before, after = (tf.exp(flat[..., low : low + 2]) / cells for low in (_SHAPES, _SHAPES + 2))
        corners = tf.concat([middle - before, middle + after], axis=-1)
        found = tf.image.combined_non_max_suppression(
            corners[:, :, None], tf.sigmoid(flat[..., :_SHAPES]), 10, 20, 0.5, 0.3
        )
        return {"boxes": found[0], "scores": found[1], "classes": found[2], "detections": found[3]}

    tf.saved_model.save(network, str(target), signatures={"serving_default": detect})
    return {"image": scenes(ROWS, seed=1)[0]}, None


def dilated_unet(packages, target):
    """A U-Net with dilated convolutions; pictures of any size, so that Keras writes them as SpaceToBatchND, Conv2D, BatchToSpaceND."""
    from tensorflow import keras

    pictures, _, _, masks = scenes(400)
    entry = keras.Input((None, None, 3), name="image")
    x = keras.layers.Rescaling(1 / 127.5, -1)(entry)
    first = _block(x, 16)
    second = _block(keras.layers.MaxPooling2D()(first), 32)
    x = keras.layers.MaxPooling2D()(second)
    for rate in (1, 2, 4, 8):
        x = _block(x, 48, dilation_rate=rate)
    x = _block(keras.layers.Concatenate()([keras.layers.UpSampling2D()(x), second]), 32)
    x = _block(keras.layers.Concatenate()([keras.layers.Conv2DTranspose(16, 2, strides=2)(x), first]), 16)
    network = keras.Model(entry, keras.layers.Conv2D(_SHAPES + 1, 1, activation="softmax", name="mask")(x))
    network.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    network.fit(pictures, masks, batch_size=16, epochs=4, verbose=0)
    network.save(str(target))
    rows = scenes(ROWS, seed=1)
    return {"image": rows[0]}, rows[3]


def jpeg_classifier(packages, target):
    """JPEG files in, classes out: decode_jpeg and a resize for each file in a map_fn, then convolutions."""
    import tensorflow as tf

    pictures, _, kinds, _ = scenes(1500, alone=True)
    network = _classifier(pictures, kinds[:, 0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "jpeg")])
    def classify(jpeg):
        def read(text):
            return tf.image.resize(tf.image.decode_jpeg(text, channels=3), [_SIZE, _SIZE])

        decoded = tf.map_fn(read, jpeg, fn_output_signature=tf.TensorSpec([_SIZE, _SIZE, 3], tf.float32))
        return {"probabilities": network(decoded, training=False)}

    tf.saved_model.save(network, str(target), signatures={"serving_default": classify})
    held, _, kinds, _ = scenes(ROWS, seed=1, alone=True)
    files = [tf.io.encode_jpeg(picture.astype(np.uint8), quality=95).numpy() for picture in held]
    return {"jpeg": np.array(files, object)}, kinds[:, 0]


def text_lookup(packages, target):
    """A title and a colour's name in, strings both: TextVectorization, StringLookup, an embedding and dense layers."""
    from tensorflow import keras

    titles, colours, kinds = titles_and_colours(600)
    words = keras.layers.TextVectorization(max_tokens=2000, output_sequence_length=12)
    words.adapt(titles)
    lookup = keras.layers.StringLookup(output_mode="one_hot")
    lookup.adapt(colours)
    title, colour = (keras.Input((), dtype="string", name=name) for name in ("title", "colour"))
    x = keras.layers.Embedding(2000, 32)(words(title))
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Conv1D(64, 3, activation="relu")(x))
    x = keras.layers.Concatenate()([x, lookup(colour)])
    for units in (128, 64):
        x = keras.layers.Dense(units, activation="relu")(x)
    network = keras.Model([title, colour], keras.layers.Dense(2, activation="softmax", name="kind")(x))
    network.compile("adam", "sparse_categorical_crossentropy")
    network.fit([titles, colours], kinds, epochs=6, verbose=0)
    network.save(str(target))
    titles, colours, kinds = titles_and_colours(ROWS, seed=1)
    return {"title": titles, "colour": colours}, kinds


def gru_digits(packages, target):
    """A GRU over the rows of digits, trained on scikit-learn's; any length."""
    from tensorflow import keras

    (images, classes), (held, right) = _digits()
    network = keras.Sequential(
        [
            keras.Input((None, 8), name="rows"),
            keras.layers.Bidirectional(keras.layers.GRU(64)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax", name="digit"),
        ]
    )
    network.compile("adam", "sparse_categorical_crossentropy")
    network.fit(images[..., 0], classes, epochs=8, verbose=0)
    network.save(str(target))
    return {"rows": held[..., 0]}, right


def stft_tagger(packages, target):
    """Tags of sounds with the spectrogram in the graph: stft, mel filters, logarithm, convolutions; classes are the waves' forms."""
    import tensorflow as tf
    from tensorflow import keras

    waves, kinds = waveforms(400)
    filters = tf.signal.linear_to_mel_weight_matrix(40, 129, 8000, 60, 3800)

    def spectrogram(wave):
        power = tf.abs(tf.signal.stft(wave, 256, 128)) ** 2
        return tf.math.log(power @ filters + 1e-6)[..., None]

    entry = keras.Input((8000,), name="wave")
    x = keras.layers.Lambda(spectrogram)(entry)
    for number in (16, 32, 64):
        x = keras.layers.MaxPooling2D()(_block(x, number))
    network = keras.Model(
        entry, keras.layers.Dense(4, activation="softmax", name="form")(keras.layers.GlobalAveragePooling2D()(x))
    )
    network.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    network.fit(waves, kinds, epochs=6, verbose=0)
    network.export(str(target))
    waves, kinds = waveforms(ROWS, seed=1)
    return {"wave": waves}, kinds


def tcn(packages, target):
    """A temporal convolutional network: causal convolutions of growing dilation over sounds of any length, a class for each step."""
    from tensorflow import keras

    waves, kinds = waveforms(400)
    steps = waves.reshape(-1, 500, 16)
    entry = keras.Input((None, 16), name="steps")
    x = keras.layers.Conv1D(32, 1)(entry)
    for rate in (1, 2, 4, 8, 16):
        inner = keras.layers.Conv1D(32, 3, padding="causal", dilation_rate=rate, activation="relu")(x)
        inner = keras.layers.BatchNormalization(momentum=0.9)(
            keras.layers.Conv1D(32, 3, padding="causal", dilation_rate=rate)(inner)
        )
        x = keras.layers.ReLU()(keras.layers.Add()([x, inner]))
    network = keras.Model(entry, keras.layers.Dense(4, activation="softmax", name="form")(x))
    network.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    network.fit(steps, np.repeat(kinds[:, None], 500, axis=1), epochs=4, verbose=0)
    network.save(str(target))
    waves, _ = waveforms(ROWS, seed=1)
    return {"steps": waves.reshape(-1, 500, 16)}, None


def scenes(rows, seed=0, alone=False):
    """Pictures of squares, discs and triangles. Returns: pictures float32 [rows, 96, 96, 3] in 0..255, boxes [rows, 4, 4] (top, left,
    bottom, right in 0..1), kinds int64 [rows, 4] (-1: none), masks int64 [rows, 96, 96] (0: background)."""
    draw = np.random.default_rng(seed)
    down, across = np.mgrid[:_SIZE, :_SIZE]
    pictures = draw.normal(110, 12, (rows, _SIZE, _SIZE, 3))
    boxes, kinds, masks = (
        np.zeros((rows, 4, 4), np.float32),
        np.full((rows, 4), -1),
        np.zeros((rows, _SIZE, _SIZE), np.int64),
    )
    for row in range(rows):
        for index in range(1 if alone else draw.integers(1, 5)):
            half, kind = draw.integers(8, 20), draw.integers(_SHAPES)
            top, left = draw.integers(half, _SIZE - half, 2)
            y, x = (down - top) / half, (across - left) / half
            inside = (np.maximum(abs(y), abs(x)) < 1, y**2 + x**2 < 1, (abs(y) < 1) & (abs(x) < (y + 1) / 2))[kind]
            pictures[row][inside] = draw.uniform(0, 255, 3) + draw.normal(0, 8, (inside.sum(), 3))
            masks[row][inside] = kind + 1
            boxes[row, index] = np.array([top - half, left - half, top + half, left + half]) / _SIZE
            kinds[row, index] = kind
    return np.clip(pictures, 0, 255).astype(np.float32), boxes, kinds, masks


def waveforms(rows, seed=0):
    """One second at 8 kHz of sines, squares, saws or noise. Returns: float32 [rows, 8000], int64 [rows]."""
    draw = np.random.default_rng(seed)
    kinds, phase = (
        np.arange(rows) % 4,
        np.arange(8000) / 8000 * draw.uniform(80, 800, (rows, 1)) + draw.uniform(0, 1, (rows, 1)),
    )
    forms = np.stack(
        [
            np.sin(2 * np.pi * phase),
            np.sign(np.sin(2 * np.pi * phase)),
            2 * (phase % 1) - 1,
            draw.normal(0, 0.5, phase.shape),
        ]
    )
    waves = forms[kinds, np.arange(rows)] * draw.uniform(0.1, 0.9, (rows, 1)) + draw.normal(0, 0.01, phase.shape)
    return waves.astype(np.float32), kinds


def titles_and_colours(rows, seed=0):
    """Pieces of prose and of code (the class), each with a colour's name, no help. Returns: str [rows], str [rows], int64 [rows]."""
    kinds = np.arange(rows) % 2
    prose = _rows.prose(rows, 60, seed)
    code = [text.decode("utf-8", "replace")[200:260] for text in _rows.sources(rows, seed)]
    titles = np.array([code[index] if kind else prose[index] for index, kind in enumerate(kinds)])
    return titles, np.array(["red", "green", "blue", "grey"])[np.random.default_rng(seed).integers(0, 4, rows)], kinds


def _grid(boxes, kinds, cells):
    """What the detector's head has to say: classes and the logarithms of the distances to the four sides, in cells."""
    goal = np.zeros((len(boxes), cells, cells, _SHAPES + 4), np.float32)
    for row, index in zip(*np.nonzero(kinds >= 0), strict=True):
        top, left, bottom, right = boxes[row, index] * cells
        y, x = (int(min(max((low + high) / 2, 0), cells - 1)) for low, high in ((top, bottom), (left, right)))
        apart = np.maximum([y + 0.5 - top, x + 0.5 - left, bottom - y - 0.5, right - x - 0.5], 0.1)
        goal[row, y, x] = np.concatenate([np.eye(_SHAPES)[kinds[row, index]], np.log(apart)])
    return goal


def _block(x, filters, **options):
    from tensorflow.keras import layers

    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, **options)(x)
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))


def _classifier(pictures, kinds):
    from tensorflow import keras

    entry = keras.Input((_SIZE, _SIZE, 3))
    x = keras.layers.Rescaling(1 / 127.5, -1)(entry)
    for filters in (16, 32, 64):
        x = _block(x, filters, strides=2)
    network = keras.Model(
        entry, keras.layers.Dense(_SHAPES, activation="softmax")(keras.layers.GlobalMaxPooling2D()(x))
    )
    network.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    network.fit(pictures, kinds, batch_size=32, epochs=15, verbose=0)
    return network


def _digits():
    """scikit-learn's digits. Returns: ((images float32 [n, 8, 8, 1] in 0..1, classes), the same held back)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[..., None]
    return (images[ROWS:], digits.target[ROWS:]), (images[:ROWS], digits.target[:ROWS])
