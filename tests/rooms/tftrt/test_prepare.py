"""What is done to a signature before TF-TRT sees it."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from tests import keras_layers, stacks
from tests.command_here import run_tftrt
from tests.prepared_models import answers, original, prepared, save
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport, preparation
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    return keras_layers.built_once("grouped", tmp_path_factory)


def test_keras_grouped_convolutions_go_into_one_engine_and_answer_the_same(grouped):
    frozen = prepared(grouped)
    assert len(frozen.preparation.opened) == 3
    assert [(one.groups, one.written) for one in frozen.preparation.convolutions] == [
        (4, "Conv2D"),
        (16, "DepthwiseConv2dNative"),
        (8, "Conv2D"),
    ]
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert len(passed.engines) == 1 and passed.coverage == 1.0 and passed.preparation == frozen.preparation
    x = keras_layers.inputs("grouped", 2)[keras_layers.INPUT]
    np.testing.assert_allclose(answers(frozen, x)[0], original(frozen.original, x), rtol=1e-4, atol=1e-6)


def test_filters_that_constants_decide_are_computed(tmp_path):
    """Conv1D's get an axis; a normalisation of weights divides them by their length."""

    class Normalised(tf.keras.layers.Conv1D):
        def convolution_op(self, inputs, kernel):
            return super().convolution_op(
                inputs, kernel / tf.sqrt(tf.reduce_sum(tf.square(kernel), [0, 1], keepdims=True))
            )

    tf.keras.utils.set_random_seed(0)
    inputs = tf.keras.Input((24, 8), name="x")
    x = tf.keras.layers.Conv1D(8, 3, groups=8, strides=2)(inputs)
    tf.saved_model.save(tf.keras.Model(inputs, Normalised(12, 3, groups=4, padding="same")(x)), str(tmp_path / "model"))
    frozen = prepared(tmp_path / "model")
    assert [(one.groups, one.written) for one in frozen.preparation.convolutions] == [(8, "Conv2D"), (4, "Conv2D")]
    assert graph_pass.run(frozen, Settings(use_dynamic_shape=True)).coverage == 1.0
    x = np.random.default_rng(1).normal(size=(2, 24, 8)).astype("f4")
    np.testing.assert_allclose(answers(frozen, x)[0], original(frozen.original, x), rtol=1e-4, atol=1e-6)


def test_calls_that_are_to_stay_native_stay_closed(grouped):
    kept = "|".join(f".*/{stacks.node(f'{name}/PartitionedCall')}" for name in ("two", "four"))
    frozen = prepared(grouped, keep_native_nodes=kept)
    assert len(frozen.preparation.opened) == 1
    assert re.search(f"/{stacks.node('each/PartitionedCall')}$", frozen.preparation.opened[0])
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True, keep_native_nodes=kept))
    assert {one.reason for one in passed.left_out if "Call" in one.op} == {"kept native by --keep_native_nodes"}
    assert len([one for one in passed.left_out if "Call" in one.op]) == 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(SavedModel, function): all of it compiled by XLA, with rows taken of a variable, a plain call and a compiled one inside."""
    weights = tf.Variable(np.random.default_rng(0).normal(size=(4, 4)).astype("f4"))

    @tf.function
    def plain(x):
        return tf.nn.relu(x @ weights) + 1.0

    @tf.function(jit_compile=True)
    def compiled(x):
        return tf.tanh(x) * 2.0

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec((None,), tf.int32, name="ids")])
    def body(ids):
        return {"y": compiled(plain(tf.gather(weights, ids))) @ weights}

    module = tf.Module()
    module.weights, module.body = weights, body
    path = tmp_path_factory.mktemp("whole") / "model"
    tf.saved_model.save(module, str(path), signatures={"serving_default": body})
    return path, body


def test_a_whole_model_that_xla_compiles_goes_into_an_engine(whole):
    path, body = whole
    frozen = prepared(path, use_dynamic_shape=True)
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert len(frozen.preparation.opened) == 2 and len(passed.engines) == 1 and passed.coverage == 1.0
    ids = np.int32([3, 0, 2])
    np.testing.assert_allclose(answers(frozen, ids)[0], body(tf.constant(ids))["y"].numpy(), rtol=1e-5)


def test_one_of_which_nothing_goes_into_an_engine_stays_open_where_it_could_not_be_frozen_closed(whole):
    frozen = prepared(whole[0], minimum_segment_size=100)
    assert frozen.preparation.opened and not graph_pass.run(frozen, Settings(minimum_segment_size=100)).engines


def test_rows_of_a_variable_in_a_call_that_is_kept_are_a_clear_error(whole):
    with pytest.raises(errors.TftrtError, match="takes rows of a variable .* TensorFlow cannot freeze that"):
        prepared(whole[0], keep_native_nodes=".*PartitionedCall")


def test_a_function_that_only_xla_can_run_stays_closed(tmp_path):
    from tensorflow.compiler.tf2xla.python import xla

    @tf.function(jit_compile=True)
    def inner(x):
        return xla.add(x, x)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
    def body(x):
        return {"y": inner(x)}

    frozen = prepared(save(body, tmp_path / "model"))
    assert frozen.preparation == preparation.Preparation()
    assert any("PartitionedCall" in node.op for node in frozen.graph_def.node)


def test_a_call_is_closed_again_where_a_grouped_convolution_in_it_cannot_be_written(tmp_path):
    @tf.function(jit_compile=True)
    def convolved(x, filters):
        return tf.nn.conv2d(x, filters, 1, "SAME")

    @tf.function(jit_compile=True)
    def doubled(x):
        return tf.tanh(x) * 2.0

    @tf.function(
        input_signature=[tf.TensorSpec((None, 8, 8, 4), name="x"), tf.TensorSpec((3, 3, 2, 4), name="filters")]
    )
    def body(x, filters):
        return {"y": doubled(convolved(x, filters))}

    frozen = prepared(save(body, tmp_path / "model"))
    assert len(frozen.preparation.opened) == 1 and frozen.preparation.convolutions == ()
    assert sum("PartitionedCall" in node.op for node in frozen.graph_def.node) == 1


def test_a_grouped_convolution_outside_a_call_that_cannot_be_written_stays_in_tensorflow(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, 4, 8, 8, 4), name="x")])
    def body(x):
        filters = tf.constant(np.ones((3, 3, 3, 2, 4), "f4"))
        return {"y": tf.tanh(tf.nn.conv3d(tf.tanh(tf.tanh(x)), filters, [1] * 5, "SAME", name="conv"))}

    frozen = prepared(save(body, tmp_path / "model"))
    assert [(one.type, one.groups, one.written) for one in frozen.preparation.convolutions] == [("Conv3D", 2, "")]
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True, minimum_segment_size=1))
    assert [(one.op, "several groups" in one.reason) for one in passed.left_out if one.op == "Conv3D"] == [
        ("Conv3D", True)
    ]


def test_calls_in_vain_are_closed_again(tmp_path):
    """One holds nothing that TF-TRT takes; the other's convolution, written with zeros, would stay in TensorFlow: its segment is too small."""

    @tf.function(jit_compile=True)
    def not_taken(x):
        return tf.math.lgamma(x)

    @tf.function(jit_compile=True)
    def convolved(x):
        return tf.nn.conv2d(x, tf.constant(np.ones((3, 3, 2, 4), "f4")), 1, "SAME")

    @tf.function(jit_compile=True)
    def activated(x):
        return tf.tanh(tf.nn.relu(tf.tanh(tf.nn.relu(x))))

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 4), name="x")])
    def body(x):
        return {"y": not_taken(convolved(not_taken(activated(x))))}

    path = save(body, tmp_path / "model")
    frozen = prepared(path, minimum_segment_size=4)
    assert len(frozen.preparation.opened) == 1 and frozen.preparation.convolutions == ()
    assert sum("PartitionedCall" in node.op for node in frozen.graph_def.node) == 3
    x = np.random.default_rng(1).normal(size=(2, 8, 8, 4)).astype("f4")
    np.testing.assert_allclose(answers(frozen, x)[0], body(tf.constant(x))["y"].numpy(), rtol=1e-5)
    with_small = prepared(path, minimum_segment_size=1, use_dynamic_shape=True)
    assert len(with_small.preparation.opened) == 2 and len(with_small.preparation.convolutions) == 1


def test_convert_and_inspect_say_what_was_done(grouped, tmp_path):
    expected = [
        "3 calls for XLA (jit_compile=True) opened",
        "1 grouped convolution written as depthwise",
        "2 grouped convolutions written with zeros between the groups, 0.0196 MB more of weights",
    ]
    seen = run_tftrt("inspect", grouped)
    done = run_tftrt("convert", f"--model={grouped}", f"--output={tmp_path / 'out'}")
    manifest = passport.read(tmp_path / "out", passport.MANIFEST)
    assert done.returncode == 0, done.stderr
    for sentence in expected:
        assert sentence in seen.stdout and sentence in done.stdout
    assert len(manifest["signatures"][0]["preparation"]["opened"]) == 3
    checked = run_tftrt("verify", grouped, tmp_path / "out", f"--shapes={stacks.SAVED_INPUT or 'x'}:2x32x32x8")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_manifest_from_before_has_no_preparation():
    one = preparation.Preparation(
        opened=("a",),
        convolutions=(preparation.Grouped(name="c", type="Conv2D", groups=2, written="Conv2D", added_bytes=8),),
    )
    result = SignatureResult(
        name="s", inputs=(), converted=True, coverage=0.0, engines=(), left_out=(), native_ops={}, preparation=one
    )
    written = json.loads(json.dumps(result.to_dict()))
    assert SignatureResult.from_dict(written) == result
    del written["preparation"]
    assert SignatureResult.from_dict(written).preparation == preparation.Preparation()
