"""Maker of the SavedModel of a newer stack: TensorFlow 2.16 or later with Keras 3. As in `_trained`."""


def keras3(packages, target):
    """A small residual network over drawn shapes, exported by Keras 3's `model.export`."""
    import keras

    from benchmarks.real_models import _built

    pictures, _, kinds, _ = _built.scenes(600, alone=True)
    entry = keras.Input((96, 96, 3), name="image")
    x = keras.layers.Rescaling(1 / 127.5, -1)(entry)
    for filters in (16, 32, 64):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        inner = keras.layers.BatchNormalization(momentum=0.9)(keras.layers.DepthwiseConv2D(3, padding="same")(x))
        x = keras.layers.Add()([x, keras.layers.Conv2D(filters, 1, activation="gelu")(inner)])
    network = keras.Model(
        entry, keras.layers.Dense(3, activation="softmax", name="kind")(keras.layers.GlobalAveragePooling2D()(x))
    )
    network.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    network.fit(pictures, kinds[:, 0], batch_size=32, epochs=15, verbose=0)
    network.save(str(target) + ".keras")
    network.export(str(target), verbose=False)
    held, _, kinds, _ = _built.scenes(_built.ROWS, seed=1, alone=True)
    return {"image": held}, kinds[:, 0]
