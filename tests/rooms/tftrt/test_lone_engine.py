"""One engine op in a graph of its own."""

import numpy as np
import pytest
import tensorflow as tf

from tests.zoo import zoo_inputs
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import graph, inline, lone_engine
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def converted(root, signature, dynamic=True):
    frozen = graph_pass.freeze(signature, root.signatures[signature])
    return frozen, graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic)).graph_def


def natively(lone):
    """A function of the lone engine's inputs that runs its segment in TensorFlow and returns its results."""
    graph.native(lone.graph_def)
    node = next(node for node in lone.graph_def.node if node.name == lone.node)
    outputs = [f"{lone.node}:{port}" for port in range(len(node.attr["Tout"].list.type))]
    return tf.compat.v1.wrap_function(
        lambda *tensors: tf.graph_util.import_graph_def(
            lone.graph_def, dict(zip(lone.inputs, tensors, strict=True)), outputs, name=""
        ),
        [tf.TensorSpec(None, tf.as_dtype(dtype)) for dtype in node.attr["Tin"].list.type],
    )


def computed(frozen, graph_def, wanted, feed):
    """The values of tensors of a graph."""
    function = tf.compat.v1.wrap_function(
        lambda *tensors: tf.graph_util.import_graph_def(graph_def, frozen.input_map(tensors), wanted, name=""),
        frozen.input_specs(),
    )
    return function(*(tf.constant(feed[one]) for one in frozen.input_names))


@pytest.mark.parametrize("name", ["digits_cnn", "ranker", "bert_encoder", "dynamic_segmenter"])
def test_alone_it_answers_as_in_the_model(name, zoo_model):
    root = tf.saved_model.load(str(zoo_model(name)))
    for signature in root.signatures:
        frozen, graph_def = converted(root, signature)
        inlined, _ = inline.inline_segments(graph_def)
        feed = zoo_inputs(name)[signature]
        for node in graph.engine_nodes(graph_def):
            counts = len(node.attr["InT"].list.type), len(node.attr["OutT"].list.type)
            sources = [one if ":" in one else one + ":0" for one in node.input if not one.startswith("^")]
            results = [f"{node.name}:{port}" for port in range(counts[1])]
            values = computed(frozen, inlined, [*sources, *results], feed)
            got = natively(lone_engine.alone(graph_def, graph.engine_name(node.name)))(*values[: counts[0]])
            for expected, answer in zip(values[counts[0] :], got, strict=True):
                np.testing.assert_allclose(expected, answer, rtol=1e-4, atol=1e-5)


def test_while_shapes_are_collected_nothing_is_computed(zoo_model):
    root = tf.saved_model.load(str(zoo_model("bert_encoder")))
    _, graph_def = converted(root, "serving_default")
    for node in graph.engine_nodes(graph_def):
        lone = lone_engine.alone(graph_def, graph.engine_name(node.name))
        collecting = lone_engine.collecting(lone)
        (engine,) = graph.engine_nodes(collecting.graph_def)
        assert (
            engine.attr["_profile_generation_mode"].b
            and not next(graph.engine_nodes(lone.graph_def)).attr["_profile_generation_mode"].b
        )
        ops = graph.engine_ops(collecting.graph_def)[0].ops
        assert set(ops) == {"Const"}
        tensors = [
            tf.zeros([size or 3 for size in one.shape], one.dtype) for one in graph.engine_ops(lone.graph_def)[0].inputs
        ]
        assert all(not np.any(answer) for answer in natively(collecting)(*tensors))
        # Run for its effect, without its results.
        graph.native(collecting.graph_def)
        tf_private.running(collecting.graph_def, collecting.inputs, collecting.node)(*tensors)


def test_where_all_sizes_are_known_tftrt_builds_at_once_and_needs_the_segment(zoo_model):
    root = tf.saved_model.load(str(zoo_model("digits_cnn")))
    _, graph_def = converted(root, "serving_default")
    for node in graph.engine_nodes(graph_def):
        for shape in node.attr["input_shapes"].list.shape:
            shape.dim[0].size = 4
        lone = lone_engine.alone(graph_def, graph.engine_name(node.name))
        assert (
            graph.engine_ops(lone_engine.collecting(lone).graph_def)[0].ops == graph.engine_ops(lone.graph_def)[0].ops
        )


def test_an_engine_that_is_not_there_is_a_key_error(zoo_model):
    _, graph_def = converted(tf.saved_model.load(str(zoo_model("digits_cnn"))), "serving_default")
    with pytest.raises(KeyError):
        lone_engine.alone(graph_def, "another")


def test_a_refused_build_at_runtime_is_no_matter_here(zoo_model):
    _, graph_def = converted(tf.saved_model.load(str(zoo_model("digits_cnn"))), "serving_default")
    graph.set_on_engines(graph_def, _allow_build_at_runtime=False)
    (engine,) = graph.engine_ops(graph_def)
    (alone,) = graph.engine_ops(lone_engine.alone(graph_def, engine.name).graph_def)
    assert alone.allow_build_at_runtime and not engine.allow_build_at_runtime


def test_an_op_that_is_run_for_its_effect_runs():
    seen = []
    with tf.Graph().as_default() as built:
        tf.numpy_function(
            lambda array: seen.append(array.shape), [tf.compat.v1.placeholder(tf.float32, name="x")], [], name="effect"
        )
    tf_private.running(built.as_graph_def(), ["x:0"], "effect")(tf.zeros((2, 3)))
    assert seen == [(2, 3)]
