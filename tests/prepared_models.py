"""Models made ready for the pass, and what they answer."""

import tensorflow as tf

from tftrt_tools.conversion import prepare
from tftrt_tools.conversion.settings import Settings


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
        return tf.import_graph_def(frozen.graph_def, input_map=frozen.input_map(tensors), return_elements=frozen.outputs)

    function = tf.compat.v1.wrap_function(body, [tf.TensorSpec(value.shape, value.dtype) for value in values])
    return [one.numpy() for one in function(*map(tf.constant, values))]
