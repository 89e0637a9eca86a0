"""A classifier of handwritten digits that plain INT8 breaks: its heavy trunk suits INT8, one small block does not.

Signature serving_default: image float32 (N, 8, 8, 1) in [0, 1] -> probabilities float32 (N, 10).

The images are enlarged to `size` x `size`, and residual blocks of 3x3 convolutions take nearly all of the time. Between them
stands a depthwise separable block (expand, depthwise, project) whose channels differ in range by up to 2**(2 * `spread`), as they
do in trained networks of that kind (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019).
Channel c of its tensors is 2**k(c) times what it was, k(c) uniform in -spread..spread, and the project convolution divides by as
much. Convolutions over single channels and ReLU commute with a positive factor, and a power of two rounds nothing, so the float
function is the same. INT8 has one scale for a whole tensor: it cuts off the large channels or rounds the small ones to zero, and
both carry the signal. FP16 holds them all: 2**-8 to 2**8 times values around 1 stay between 6e-5 and 6e4.

The convolutions are random with batch statistics of the training images; only the dense layer at the end is fitted. That takes
seconds on two cores at the default size; `width=256, size=32, blocks=6` is a size for measuring on a GPU, and to be built on one.
"""

from saved_models import _export, digits_cnn

INPUT, OUTPUT, CLASSES = "image", "probabilities", 10
# What has to stay in a higher precision: the first two have badly spread outputs, the last badly spread weights.
SPREAD_LAYERS = ("spread_expand", "spread_depthwise", "spread_project")
_GRID = 4  # the dense layer sees averages over a grid of 4 x 4 cells, so that it knows where a stroke is


def build(output_dir, *, width=128, size=16, blocks=4, spread=8, seed=0):
    """Write the SavedModel.

    Args:
      width: channels of the trunk. size: height and width of the enlarged images, a multiple of 8.
      blocks: residual blocks of two 3x3 convolutions each, at least 1; half of them before the spread block.
      spread: channels are scaled by 2**-spread to 2**spread; 0 gives the same float function with even ranges.
    """
    import tensorflow as tf

    save_spec = tf.TensorSpec((None, 8, 8, 1), tf.float32, name=INPUT)
    _export.save_keras(
        fit(width=width, size=size, blocks=blocks, spread=spread, seed=seed), output_dir, save_spec, OUTPUT
    )


def held_back():
    """Images that `fit` never saw. Returns: images float32 (400, 8, 8, 1), labels int64 (400,)."""
    return digits_cnn.held_back()


def training_images():
    """What `fit` learns from. Returns: images float32 (1397, 8, 8, 1), labels int64 (1397,)."""
    return digits_cnn.training_images()


def sample_inputs(rng, batch):
    """Held-back images in random order."""
    return digits_cnn.sample_inputs(rng, batch)


def fit(*, width=128, size=16, blocks=4, spread=8, seed=0):
    """The Keras model; arguments as for `build`."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)
    model = _network(width, size, blocks)
    images, labels = training_images()
    _export.set_statistics(model, images[:64])
    _fit_head(model, images, labels)
    _spread(model, spread, seed)
    return model


def _network(width, size, blocks):
    import tensorflow as tf

    layers = tf.keras.layers

    def normed(x, name, activation=True):
        x = layers.BatchNormalization(name=f"{name}_norm")(x)
        return layers.ReLU(name=f"{name}_relu")(x) if activation else x

    def residual(x, name):
        branch = x
        for part in ("a", "b"):
            branch = layers.Conv2D(width, 3, padding="same", use_bias=False, name=f"{name}{part}")(branch)
            branch = normed(branch, f"{name}{part}", activation=part == "a")
        return layers.ReLU(name=f"{name}_relu")(layers.Add(name=f"{name}_add")([x, branch]))

    image = tf.keras.Input((8, 8, 1), name=INPUT)
    x = layers.UpSampling2D(size // 8, name="enlarge")(image)
    x = normed(layers.Conv2D(width, 3, padding="same", use_bias=False, name="stem")(x), "stem")
    for index in range(blocks):
        if index == blocks // 2:
            x = _separable(x, width, normed)
        x = residual(x, f"block{index}")
    x = layers.AveragePooling2D(size // _GRID, name="pool")(x)
    x = layers.Flatten(name="flatten")(x)
    return tf.keras.Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT)(x), name="spread_cnn")


def _separable(x, width, normed):
    import tensorflow as tf

    layers = tf.keras.layers
    expand, depthwise, project = SPREAD_LAYERS
    x = normed(layers.Conv2D(width, 1, use_bias=False, name=expand)(x), expand)
    x = normed(layers.DepthwiseConv2D(3, padding="same", use_bias=False, name=depthwise)(x), depthwise)
    return normed(layers.Conv2D(width, 1, use_bias=False, name=project)(x), project)


def _fit_head(model, images, labels):
    """Logistic regression on what the last layer sees."""
    import tensorflow as tf
    from sklearn.linear_model import LogisticRegression

    head = model.layers[-1]
    trunk = tf.keras.Model(model.input, head.input)
    features = trunk.predict(images, batch_size=64, verbose=0)
    regression = LogisticRegression(C=0.01, max_iter=300).fit(features, labels)
    head.set_weights([regression.coef_.T.astype("float32"), regression.intercept_.astype("float32")])


def _spread(model, spread, seed):
    """Scale each channel between the expand and the project convolution, and undo it in the latter's kernel."""
    import numpy as np

    expand, depthwise, project = SPREAD_LAYERS
    norm = model.get_layer(f"{expand}_norm")
    width = norm.gamma.shape[0]
    powers = np.random.default_rng(seed).permutation(np.linspace(-spread, spread, width).round())
    factors = np.exp2(powers).astype("float32")
    for variable in (norm.gamma, norm.beta):
        variable.assign(variable * factors)
    after = model.get_layer(f"{depthwise}_norm")
    # The channel arrives scaled: it is normalised by the statistics that it had, and leaves scaled.
    after.moving_mean.assign(after.moving_mean * factors)
    after.beta.assign(after.beta * factors)
    kernel = model.get_layer(project).kernel
    kernel.assign(kernel / factors[:, None])
