"""Models made ready for the pass, and what they answer."""

import numpy as np
import tensorflow as tf

from tftrt_tools.tftrt.conversion.job import graph_pass, prepare
from tftrt_tools.tftrt.conversion.settings import Settings


def save(function, path):
    module = tf.Module()
    module.f = function
    tf.saved_model.save(module, str(path), signatures={"serving_default": function})
    return path


def prepared(path, **settings):
    root = tf.saved_model.load(str(path))
    return prepare.passed("serving_default", root.signatures["serving_default"], Settings(**settings))[0]


def answers(frozen, *values):
    """What the graph of a graph_pass.Frozen computes."""

    def body(*tensors):
        return tf.import_graph_def(
            frozen.graph_def, input_map=frozen.input_map(tensors), return_elements=frozen.outputs
        )

    function = tf.compat.v1.wrap_function(body, [tf.TensorSpec(value.shape, value.dtype) for value in values])
    return [one.numpy() for one in function(*map(tf.constant, values))]


def original(signature, value):
    """What a signature of one input and one output answers. Where tf.saved_model.save writes a Keras model, Keras 2 gives the input the model's
    name for it, and Keras 3 calls it `inputs`."""
    (name,) = signature.structured_input_signature[1]
    (answer,) = signature(**{name: tf.constant(value)}).values()
    return answer.numpy()


def open_sizes(body, path):
    """`body` of a tensor of ? x 7 x 5 elements. The graph as a whole tells these sizes; an engine does not know them."""

    @tf.function(input_signature=[tf.TensorSpec((None, 35), name="x")])
    def serve(x):
        # The shape is an argument of the engine: integers that TensorRT does not compute itself. The product hides that it keeps the rows.
        sizes = tf.cast(tf.cast(tf.stack([tf.shape(x)[0] * 1, 7, 5]), tf.int64), tf.int32)
        x = tf.reshape(tf.nn.relu(x) * 2 + 1, sizes)
        return {"y": tf.nn.relu(body(x) * 3 - 1) + 1}

    return save(serve, path)


def unet_with_conditionals(path):
    """A small 3D U-Net whose dropouts are conditionals on an input."""
    rng = np.random.default_rng(0)

    def filters(*shape):
        return tf.constant(rng.normal(scale=0.2, size=shape).astype("f4"))

    def dropped(x, training):
        return tf.cond(training, lambda: tf.nn.dropout(x, 0.5), lambda: tf.identity(x))

    @tf.function(
        input_signature=[tf.TensorSpec((None, 8, 8, 8, 1), name="volume"), tf.TensorSpec((), tf.bool, name="training")]
    )
    def serve(volume, training):
        x = tf.nn.relu(tf.nn.conv3d(volume, filters(3, 3, 3, 1, 4), [1] * 5, "SAME"))
        skip = x = dropped(x, training)
        x = tf.nn.max_pool3d(x, 2, 2, "SAME")
        for _ in range(2):
            x = dropped(tf.nn.relu(tf.nn.conv3d(x, filters(3, 3, 3, 4, 4), [1] * 5, "SAME")), training)
        x = tf.nn.conv3d_transpose(x, filters(2, 2, 2, 4, 4), tf.stack([tf.shape(x)[0], 8, 8, 8, 4]), 2)
        x = dropped(tf.concat([tf.reshape(x, (-1, 8, 8, 8, 4)), skip], -1), training)
        return {"mask": tf.sigmoid(tf.nn.conv3d(x, filters(1, 1, 1, 8, 2), [1] * 5, "SAME"))}

    return save(serve, path)


def compared(body, shapes, rewrite, *feeds):
    """What a graph answers before and after a rewrite of its nodes, in TensorFlow.

    Args: body: of tensors of `shapes`, placeholders x0, x1, …; a shape may come with a type. rewrite: of a GraphDef, in place.
    feeds: lists of arrays. Returns: (what `rewrite` returns, [(expected, found) of each feed]).
    """
    kinds = [
        shape if isinstance(shape, tuple) and isinstance(shape[-1], tf.DType) else (shape, tf.float32)
        for shape in shapes
    ]
    with tf.Graph().as_default() as before:
        inputs = [tf.compat.v1.placeholder(dtype, shape, f"x{number}") for number, (shape, dtype) in enumerate(kinds)]
        tf.identity(body(*inputs), name="y")
    graph_def = before.as_graph_def()
    returned = rewrite(graph_def)
    with tf.Graph().as_default() as after:
        tf.import_graph_def(graph_def, name="")
    sessions = [tf.compat.v1.Session(graph=one) for one in (before, after)]
    return returned, [
        tuple(one.run("y:0", {f"x{number}:0": value for number, value in enumerate(values)}) for one in sessions)
        for values in feeds
    ]


def odd_values(rng, shape):
    """float32 numbers with zeros of both signs, infinities and NaN among them."""
    values = rng.normal(size=shape).astype("f4")
    for value in (0.0, -0.0, np.inf, -np.inf, np.nan):
        values[rng.random(shape) < 0.08] = value
    return values


def in_one_engine(body, shapes, path, dynamic=True, **settings):
    """A model of `body` between ops that TF-TRT takes, prepared and passed. Returns: (graph_pass.Frozen, graph_pass.PassResult)."""
    specs = [tf.TensorSpec(shape, name=f"x{number}") for number, shape in enumerate(shapes)]

    @tf.function(autograph=False, input_signature=specs)
    def serve(*inputs):
        return {"y": tf.nn.relu(body(*(tf.nn.relu(x) * 2.0 + 1.0 for x in inputs)) * 3.0) + 1.0}

    frozen = prepared(save(serve, path), use_dynamic_shape=dynamic, **settings)
    return frozen, graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic, **settings))
