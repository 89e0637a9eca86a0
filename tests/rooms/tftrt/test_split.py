"""Engine ops that are split at one of their nodes: the answers stay, and so do all other engine ops."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests import prepared_models
from tests.zoo import zoo_inputs
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import graph, inline
from tftrt_tools.tftrt.conversion.job import finishing, graph_pass, split
from tftrt_tools.tftrt.conversion.settings import Settings

MODELS = {"digits_cnn": False, "ranker": False, "lstm_tagger": True, "dynamic_segmenter": False, "tf1_export": False}


def native(graph_def):
    """The graph with calls in place of its engine ops."""
    copy = graph_pb2.GraphDef.FromString(graph_def.SerializeToString())
    graph.native(copy)
    return copy


def answers(graph_def, frozen, inputs):
    # TensorFlow knows functions by name, for as long as this process lives.
    function = tf_private.rebuild(graph_def, frozen)
    return tf.nest.flatten(function(**{name: tf.constant(value) for name, value in inputs.items()}))


@pytest.mark.parametrize("name", MODELS)
def test_a_split_graph_answers_as_before_and_keeps_its_other_engines(name, zoo_model):
    root, settings = tf.saved_model.load(str(zoo_model(name))), Settings(use_dynamic_shape=MODELS[name])
    tried = 0
    for signature, function in root.signatures.items():
        frozen = graph_pass.freeze(signature, function)
        converted = graph_pass.run(frozen, settings).graph_def
        finishing.unique_names(converted, f"TRTEngineOp_split_{name}_{signature}")
        main = [graph.engine_name(node.name) for node in converted.node if node.op == graph.ENGINE_OP]
        if not main:
            continue
        engine = main[len(main) // 2]
        segment = graph.native_segments(converted)[engine].function
        inner = [node.name for node in segment.node_def if node.op not in graph.PASSIVE_OPS]
        refused = inner[len(inner) // 2]
        done = split.split(
            frozen, converted, {engine: [refused]}, {refused: "why"}, settings, f"split_{name}_{signature}"
        )
        own = done.nodes[refused]
        assert [node.op for node in done.graph_def.node if node.name == own]
        engines = {one.name for one in graph.engine_ops(done.graph_def)}
        kept = {one.name for one in graph.engine_ops(converted)} - {engine}
        assert engines >= kept and engine not in engines
        inside = {
            node.name
            for one in graph.native_segments(done.graph_def).values()
            for node in one.function.node_def
            if node.op not in graph.PASSIVE_OPS
        }
        assert refused not in inside and {one.reason for one in done.left_out if one.node == own} == {"why"}
        # What was in TensorFlow before has not moved.
        was = {node.name for node in converted.node if node.op not in (graph.ENGINE_OP, "Const")}
        assert was & inside == set()
        inputs = zoo_inputs(name)[signature]
        for mine, theirs in zip(
            answers(native(done.graph_def), frozen, inputs), answers(native(converted), frozen, inputs), strict=True
        ):
            if mine.dtype.is_floating:
                np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
        tried += 1
    assert tried


@pytest.mark.parametrize("name", MODELS)
def test_nodes_keep_the_names_of_the_graph_before_the_pass(name, zoo_model):
    root = tf.saved_model.load(str(zoo_model(name)))
    for signature, function in root.signatures.items():
        frozen = graph_pass.freeze(signature, function)
        converted = graph_pass.run(frozen, Settings(use_dynamic_shape=MODELS[name])).graph_def
        finishing.unique_names(converted, f"TRTEngineOp_own_{name}_{signature}")
        inlined, tensors = inline.inline_segments(converted, own_names=True)
        names = [node.name for node in inlined.node]
        assert len(names) == len(set(names))
        for engine, own in tensors.items():
            inner = graph.native_segments(converted)[engine].function.node_def
            computing = {node.name for node in inner if node.op not in graph.PASSIVE_OPS}
            assert {own[f"{node}:0"] for node in computing} == {f"{node}:0" for node in computing}
        inputs = zoo_inputs(name)[signature]
        for mine, theirs in zip(
            answers(inlined, frozen, inputs), answers(native(converted), frozen, inputs), strict=True
        ):
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_a_node_that_the_user_keeps_in_tensorflow_is_not_taken_by_a_split(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, 8), name="x")])
    def serve(x):
        y = tf.nn.relu(tf.nn.relu(x * 2 + 1, name="refused") * 3 - 1) + 2
        y = tf.nn.elu(y, name="kept")
        return {"y": tf.nn.softmax(y * 3 - 1) + 1}

    root = tf.saved_model.load(str(prepared_models.save(serve, tmp_path / "model")))
    settings = Settings(use_dynamic_shape=True, keep_native_nodes=".*kept")
    frozen = graph_pass.freeze("serving_default", root.signatures["serving_default"])
    passed = graph_pass.run(frozen, settings)
    (refused,) = (node.name for node in frozen.graph_def.node if node.name.endswith("refused"))
    (kept,) = (node.name for node in frozen.graph_def.node if node.name.endswith("kept"))
    (engine,) = (
        name
        for name, one in graph.native_segments(passed.graph_def).items()
        if refused in {node.name for node in one.function.node_def}
    )
    done = split.split(frozen, passed.graph_def, {engine: [refused]}, {refused: "why"}, settings, "split_kept")
    assert {kept, refused} <= {node.name for node in done.graph_def.node}
    assert len(passed.engines) == 2 and len(graph.engine_ops(done.graph_def)) == 2  # x * 2 + 1 has too few nodes


def test_the_number_of_engines_stays_bounded():
    graph_def = graph_pb2.GraphDef()
    for number in range(3):
        graph_def.node.add(name=f"TRTEngineOp_{number}", op=graph.ENGINE_OP)
    assert split._bounded(Settings(max_engines=4), graph_def).max_engines == 2
    assert split._bounded(Settings(max_engines=2), graph_def).max_engines == 1
    assert split._bounded(Settings(max_engines=0), graph_def).max_engines == 0
