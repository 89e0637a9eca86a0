"""Small SavedModels whose signatures and MetaGraphs hold what a conversion could lose. Each function writes one to `path`."""

import pathlib

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
WIDTH = 8


def rows(count=2, seed=0):
    """Float rows that these models take."""
    return np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)


def tf1(path, names, method="tensorflow/serving/predict", collections=None, **builder):
    """A TF1 export; its signature weighs its inputs by their place, so that an exchange of two shows.

    Args: names: {name of the input in the signature: name of its placeholder}, in the order of the weights. method: method_name.
      collections: {name: [values]} of the graph. builder: further arguments for the builder.
    """
    with tf.Graph().as_default() as graph, v1.Session() as session:
        placeholders = {alias: v1.placeholder(tf.float32, (None, WIDTH), name=name) for alias, name in names.items()}
        kernel = v1.get_variable(
            "kernel", initializer=tf.constant(np.random.default_rng(1).normal(size=(WIDTH, 4)), tf.float32)
        )
        total = sum((number + 1) * tf.nn.relu(one) for number, one in enumerate(placeholders.values()))
        scores = tf.nn.softmax(tf.matmul(total, kernel), name="scores")
        for name, values in (collections or {}).items():
            for value in values:
                graph.add_to_collection(name, value)
        session.run(v1.global_variables_initializer())
        inputs, outputs = (
            {name: v1.saved_model.build_tensor_info(one) for name, one in tensors.items()}
            for tensors in (placeholders, {"scores": scores, "the class/0": tf.argmax(scores, 1)})
        )
        signature = v1.saved_model.signature_def_utils.build_signature_def(inputs, outputs, method)
        writer = v1.saved_model.Builder(str(path))
        writer.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature}, **builder)
        writer.save()
    return path


def with_unread_input(path):
    """A TF1 export with the inputs x (float32, rows of WIDTH) and training (a bool with a default), which nothing reads."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, training = (
            v1.placeholder(tf.float32, [None, WIDTH], name="x"),
            v1.placeholder_with_default(False, [], name="training"),
        )
        y = tf.nn.relu(tf.matmul(x, tf.random.stateless_normal((WIDTH, WIDTH), [1, 2])) + 1.0) * 2.0
        v1.saved_model.simple_save(session, str(path), {"x": x, "training": training}, {"y": y})
    return path


def tf2(path, names):
    """A TF2 export that does the same. Args: names: of the inputs, as the TensorSpecs have them, in the order of the function's arguments."""
    module = tf.Module()
    module.kernel = tf.Variable(np.random.default_rng(1).normal(size=(WIDTH, 4)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec((None, WIDTH), tf.float32, name=name) for name in names])
    def scored(*inputs):
        scores = tf.nn.softmax(
            tf.matmul(sum((number + 1) * tf.nn.relu(one) for number, one in enumerate(inputs)), module.kernel)
        )
        return {"scores": scores, "the class/0": tf.argmax(scores, 1)}

    tf.saved_model.save(module, str(path), signatures={"serving_default": scored})
    return path


def answers_of_session(path, feed, signature="serving_default", tags=("serve",)):
    """{output: array} of a SavedModel as a server runs it: by the MetaGraph's names, in a session."""
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, list(tags), str(pathlib.Path(path)))
        one = loaded.signature_def[signature]
        return session.run(
            {name: info.name for name, info in one.outputs.items()},
            {one.inputs[name].name: value for name, value in feed.items()},
        )


def default_of_tf1(path):
    """A TF1 export with an input `scale` that need not be fed."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, scale = (
            v1.placeholder(tf.float32, (None, WIDTH), name="x"),
            v1.placeholder_with_default(tf.constant(2.0), (), name="scale"),
        )
        kernel = v1.get_variable("kernel", initializer=tf.ones((WIDTH, 4)))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session, str(path), {"x": x, "scale": scale}, {"y": tf.nn.relu(tf.matmul(x, kernel)) * scale}
        )
    return path


def default_of_tf2(path):
    """The same by TF2, whose SignatureDef names the default value."""
    module = tf.Module()
    module.kernel, two = tf.Variable(tf.ones((WIDTH, 4))), tf.constant(2.0)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, WIDTH), tf.float32, name="x"),
            tf.TensorSpec((), tf.float32, name="scale"),
        ]
    )
    def scaled(x, scale=two):
        return {"y": tf.nn.relu(tf.matmul(x, module.kernel)) * scale}

    tf.saved_model.save(module, str(path), signatures=scaled)
    return path


def set_by_init_op(path):
    """A TF1 export with a local variable, which is in no checkpoint: the main op sets it."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, WIDTH), name="x")
        kernel = v1.get_variable("kernel", initializer=tf.ones((WIDTH, 4)))
        local = v1.get_variable(
            "local", initializer=tf.constant(3.0), collections=[v1.GraphKeys.LOCAL_VARIABLES], trainable=False
        )
        y = tf.nn.relu(tf.matmul(x, kernel)) * local
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        writer = v1.saved_model.Builder(str(path))
        writer.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=v1.local_variables_initializer()
        )
        writer.save()
    return path


def with_a_root(path):
    """A TF2 export with two signatures, a function of two traces, and variables in a list."""
    module = tf.Module()
    module.kernel = tf.Variable(np.random.default_rng(1).normal(size=(WIDTH, 4)).astype(np.float32))
    module.parts = [tf.Variable(1), {"inner": tf.Variable(2.5)}]

    @tf.function(input_signature=[tf.TensorSpec((None, WIDTH), tf.float32, name="x")])
    def scored(x):
        return {"scores": tf.nn.softmax(tf.nn.relu(tf.matmul(x, module.kernel)))}

    @tf.function(input_signature=[tf.TensorSpec((None, WIDTH), tf.float32, name="img-input")])
    def other(x):
        return {"sum": tf.reduce_sum(tf.nn.relu(tf.matmul(x, module.kernel)), 1)}

    @tf.function
    def scaled(x, double=False):
        return x * 2 if double else x * module.parts[0]

    scaled(tf.constant(1), True), scaled(tf.constant(1), False)
    module.scaled = scaled
    tf.saved_model.save(module, str(path), signatures={"serving_default": scored, "other": other})
    return path


def ragged_output(path):
    """A TF2 export with a RaggedTensor among its outputs."""
    return _with_output(
        path, lambda y: tf.RaggedTensor.from_row_splits(tf.reshape(y, [-1]), tf.range(tf.shape(y)[0] + 1) * 4)
    )


def sparse_output(path):
    """A TF2 export with a SparseTensor among its outputs."""
    return _with_output(path, tf.sparse.from_dense)


def _with_output(path, made):
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones((WIDTH, 4)))

    @tf.function(input_signature=[tf.TensorSpec((None, WIDTH), tf.float32, name="x")])
    def parts(x):
        y = tf.nn.relu(tf.matmul(x, module.kernel))
        return {"y": y, "parts": made(y)}

    tf.saved_model.save(module, str(path), signatures=parts)
    return path


def sparse_input(path):
    """A TF1 export with a SparseTensor as its input."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.sparse_placeholder(tf.float32, (None, WIDTH), name="x")
        kernel = v1.get_variable("kernel", initializer=tf.ones((WIDTH, WIDTH)))
        y = tf.nn.relu(tf.matmul(tf.nn.relu(tf.sparse.sparse_dense_matmul(x, kernel)), kernel))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
    return path


def twins(path, kind="export"):
    """A model with one function under the names serve and serving_default.

    Args: kind: "export": by Keras' model.export; "tf1": the same tensors; "other": two functions of one form that compute otherwise.
    """
    if kind == "tf1":
        return _twins_of_tf1(path)
    if kind == "other":
        return _of_one_form(path)
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Dense(8, "relu", input_shape=(WIDTH,), name="x"), tf.keras.layers.Dense(4, "softmax")]
    tf.keras.Sequential(layers).export(str(path))
    return path


def _twins_of_tf1(path):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, WIDTH), name="in")
        kernel = v1.get_variable(
            "kernel", initializer=tf.constant(np.random.default_rng(1).normal(size=(WIDTH, 4)), tf.float32)
        )
        y = tf.nn.softmax(tf.nn.relu(tf.matmul(x, kernel)))
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def({"x": x}, {"probabilities": y})
        writer = v1.saved_model.Builder(str(path))
        writer.add_meta_graph_and_variables(session, ["serve"], {"serve": signature, "serving_default": signature})
        writer.save()
    return path


def _of_one_form(path):
    module = tf.Module()
    module.kernels = [
        tf.Variable(np.random.default_rng(seed).normal(size=(WIDTH, 4)).astype(np.float32)) for seed in (1, 2)
    ]

    def scored(kernel):
        @tf.function(input_signature=[tf.TensorSpec((None, WIDTH), tf.float32, name="x")])
        def probabilities(x):
            return {"probabilities": tf.nn.softmax(tf.nn.relu(tf.matmul(x, kernel)))}

        return probabilities

    serve, serving_default = map(scored, module.kernels)
    tf.saved_model.save(module, str(path), signatures={"serve": serve, "serving_default": serving_default})
    return path
