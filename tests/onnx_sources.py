"""Small SavedModels that are exported to ONNX, most of them for one trap each."""

import tensorflow as tf

Spec = tf.TensorSpec


def save(folder, function, *specs):
    """Write a function as signature serving_default. Returns: the folder, as text."""
    module = tf.Module()
    module.function = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(folder), {"serving_default": module.function})
    return str(folder)


def rows(folder, function, dtype=tf.float32):
    """A function of x, rows of 4."""
    return save(folder, lambda x: {"y": function(x)}, Spec((None, 4), dtype, "x"))


def lookup(folder):
    """A table of strings."""
    module = tf.Module()
    values = tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
    module.table = tf.lookup.StaticHashTable(values, -1)
    module.function = tf.function(
        lambda x: {"y": module.table.lookup(x)}, input_signature=[Spec((None,), tf.string, "x")]
    )
    tf.saved_model.save(module, str(folder), {"serving_default": module.function})
    return str(folder)


def counter(folder):
    """A signature that changes a variable."""
    module = tf.Module()
    module.count = tf.Variable(0.0)
    module.function = tf.function(
        lambda x: {"y": x + module.count.assign_add(1.0)}, input_signature=[Spec((None, 4), tf.float32, "x")]
    )
    tf.saved_model.save(module, str(folder), {"serving_default": module.function})
    return str(folder)


def same_name(folder):
    """An output that is called as an input, and is another."""
    return save(folder, lambda x: {"x": x + 1}, Spec((None, 4), tf.float32, "x"))


def several(folder):
    """Three signatures, of which two are one function; inputs and outputs whose order is not that of their names."""
    module = tf.Module()
    module.weights = tf.Variable(tf.random.stateless_uniform((4, 2), (1, 2)))
    module.first = tf.function(
        lambda b, a: {"z": b @ module.weights, "copy": a, "again": a},
        input_signature=[Spec((None, 4), tf.float32, "b"), Spec((None,), tf.float32, "a")],
    )
    module.second = tf.function(
        lambda x: {"y": tf.nn.softmax(x @ module.weights)}, input_signature=[Spec((None, 4), tf.float32, "x")]
    )
    one = module.second.get_concrete_function()
    tf.saved_model.save(module, str(folder), {"serving_default": module.first, "other": one, "same": one})
    return str(folder)


def suppression(folder, kind):
    """A form of non-maximum suppression of 50 boxes. Args: kind: of SUPPRESSIONS."""
    one, batch = (Spec((50, 4), tf.float32, "b"), Spec((50,), tf.float32, "s")), (1 if kind == "combined" else None,)
    many = (Spec((*batch, 50, 1, 4), tf.float32, "b"), Spec((*batch, 50, 3), tf.float32, "s"))
    image = tf.image

    def combined(b, s):
        return dict(
            zip(
                ("boxes", "scores", "classes", "valid"),
                image.combined_non_max_suppression(b, s, 10, 10, 0.5, 0.1),
                strict=True,
            )
        )

    def padded(b, s):
        return dict(
            zip("in", image.non_max_suppression_padded(b, s, 10, 0.5, 0.1, pad_to_max_output_size=True), strict=True)
        )

    def scored(sigma):
        return lambda b, s: dict(
            zip("iv", image.non_max_suppression_with_scores(b, s, 10, 0.5, 0.1, soft_nms_sigma=sigma), strict=True)
        )

    functions = {
        "plain": (lambda b, s: {"i": image.non_max_suppression(b, s, 10, 0.5, 0.1)}, one),
        "padded": (padded, one),
        "scored": (scored(0.0), one),
        "soft": (scored(0.5), one),
        "combined": (combined, many),
        "combined open": (combined, many),
    }
    function, specs = functions[kind]
    return save(folder, function, *specs)


def trained(folder):
    """Rows of 4 through a conditional as Keras makes it for training: its branches keep values for a gradient. It takes x and training."""
    module = tf.Module()
    module.scale = tf.Variable(tf.ones((4,)))
    weights = tf.constant([[1.0, -1], [2, 0.5], [-1, 1], [0.5, 2]])

    def function(x, training):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(
                training, lambda: tf.nn.dropout(x * module.scale, 0.5, seed=1), lambda: tf.tanh(x * module.scale)
            )
        tape.gradient(y, x)
        return {"y": y @ weights}

    module.function = tf.function(
        function, input_signature=[Spec((None, 4), tf.float32, "x"), Spec((), tf.bool, "training")]
    )
    tf.saved_model.save(module, str(folder), {"serving_default": module.function})
    return str(folder)
