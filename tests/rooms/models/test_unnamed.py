"""Placeholders with a default that no signature names are constants, in TF-TRT's graph and in an ONNX file."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.models.sources.source import of
from tftrt_tools.tftrt.conversion.job import planner, prepare
from tftrt_tools.tftrt.conversion.settings import Settings

v1 = tf.compat.v1
W = np.random.default_rng(0).normal(size=(8, 8)).astype("f4")


def saved(path, body, shape=(None, 8), named=()):
    """A TF1 export of body(x), with TF1's conditionals. Args: named: further placeholders, by tensor name, that are inputs of the signature."""
    v1.disable_control_flow_v2()
    try:
        return _saved(path, body, shape, named)
    finally:
        v1.enable_control_flow_v2()


def _saved(path, body, shape, named):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, shape, "x")
        y = body(x)
        session.run(v1.global_variables_initializer())
        inputs = {"x": x, **{name: session.graph.get_tensor_by_name(f"{name}:0") for name in named}}
        v1.saved_model.simple_save(session, str(path), inputs, {"y": y})
    return path


def batch_normalization(image):
    training = v1.placeholder_with_default(False, (), "is_training")
    h = tf.nn.conv2d(image, np.ones((3, 3, 3, 1), "f4") * W[0], 1, "VALID")
    scale, offset, mean, variance = np.exp(W[:4])

    def normal(**statistics):
        return v1.nn.fused_batch_norm(h, scale, offset, **statistics)[0]

    # As v1.layers.batch_normalization, which Keras 3 has no more, writes it.
    h = v1.cond(training, normal, lambda: normal(mean=mean, variance=variance, is_training=False))
    return tf.nn.softmax(tf.reduce_mean(tf.nn.relu(h), (1, 2)) @ W[:, :4])


def conditional(x):
    training = v1.placeholder_with_default(False, (), "net/is_training")
    h = tf.nn.relu(x @ W)
    return tf.nn.softmax(
        v1.cond(tf.logical_and(training, tf.constant(True)), lambda: tf.nn.dropout(h, 0.5), lambda: h * 2.0) + 1.0
    )


def of_unknown_shape(x):
    scale = v1.placeholder_with_default(tf.constant(2.0), None, "scale")
    rows = v1.placeholder_with_default(tf.shape(x)[0], (), "rows")
    return tf.nn.softmax(tf.reshape(tf.nn.relu(x @ W) * scale, tf.stack([rows, 8])) + 1.0)


def prepared(path, **settings):
    root = tf.saved_model.load(str(path))
    return prepare.passed("serving_default", root.signatures["serving_default"], Settings(**settings))


@pytest.mark.parametrize(
    ("body", "shape", "told", "engines"),
    [
        (batch_normalization, (None, 16, 16, 3), (("is_training", "false"),), 1),
        (conditional, (None, 8), (("net/is_training", "false"),), 1),
        (of_unknown_shape, (None, 8), (("scale", "2.0"), ("rows", "")), 1),
    ],
)
def test_a_default_that_nobody_can_feed_is_a_constant(tmp_path, body, shape, told, engines):
    saved(tmp_path / "m", body, shape)
    frozen, passed = prepared(tmp_path / "m")
    assert frozen.preparation.defaults == told and len(passed.engines) == engines
    assert Preparation.from_dict(json.loads(json.dumps(frozen.preparation.to_dict()))) == frozen.preparation
    assert not {"PlaceholderWithDefault", "Switch", "Merge", "If", "StatelessIf", "RandomUniform"} & {
        node.op for node in frozen.graph_def.node
    }
    assert "nobody can feed it" in _output.prepared(frozen.preparation)[0]
    x = np.random.default_rng(1).normal(size=(2, *shape[1:])).astype("f4")
    np.testing.assert_allclose(
        answers(frozen, x)[0], frozen.original(x=tf.constant(x))["y"].numpy(), rtol=1e-5, atol=1e-6
    )


def test_the_coverage_is_that_of_inference(tmp_path):
    saved(tmp_path / "m", batch_normalization, (None, 16, 16, 3))
    _, passed = prepared(tmp_path / "m")
    assert [one.op for one in passed.left_out] == ["Softmax"] and passed.native_ops == {"Softmax": 1}


def test_one_in_a_function_is_a_constant_too(tmp_path):
    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, 8), name="x")])
        def serve(self, x):
            return {"y": conditional(x)}

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "m"), signatures=model.serve)
    frozen, passed = prepared(tmp_path / "m")
    assert [text for _, text in frozen.preparation.defaults] == ["false"] and passed.coverage == 1


def test_one_that_the_signature_names_stays_an_input(tmp_path):
    saved(
        tmp_path / "m",
        lambda x: tf.nn.softmax(tf.nn.relu(x @ W) * v1.placeholder_with_default(1.0, (), "keep") + 1.0),
        named=["keep"],
    )
    frozen, _ = prepared(tmp_path / "m")
    assert frozen.preparation.defaults == () and set(frozen.input_names) == {"x", "keep"}
    fed = {"x": np.ones((1, 8), "f4") * W[0], "keep": np.float32(3)}
    expected = frozen.original(**{name: tf.constant(value) for name, value in fed.items()})["y"].numpy()
    np.testing.assert_allclose(answers(frozen, *(fed[name] for name in frozen.input_names))[0], expected, rtol=1e-5)


def test_freeze_by_its_name_gives_another_value(tmp_path):
    saved(tmp_path / "m", conditional)
    frozen, _ = prepared(tmp_path / "m", freeze="net/is_training:true")
    assert frozen.preparation.defaults == (("net/is_training", "true"),) and frozen.preparation.frozen == ()
    assert "RandomUniform" in {node.op for node in frozen.graph_def.node}
    plan = planner.plan(str(tmp_path / "m"), Settings(freeze="net/is_training:false"))
    assert plan.signatures[0].preparation.defaults == (("net/is_training", "false"),)
    with pytest.raises(errors.UsageError, match="no input 'is_training'") as told:
        planner.plan(str(tmp_path / "m"), Settings(freeze="is_training:false"))
    assert "net/is_training bool[]" in told.value.mend
    with opening.opened(of(str(tmp_path / "m"))) as (model,):
        assert [one.name for one in model.freezable(["serving_default"])["serving_default"]] == ["x", "net/is_training"]


def test_export_takes_the_same_graph(tmp_path, tftrt):
    saved(tmp_path / "m", batch_normalization, (None, 16, 16, 3))
    done = tftrt("export", tmp_path / "m", f"--output={tmp_path / 'm.onnx'}", "--freeze=is_training:false")
    assert done.returncode == 0 and "is_training has the value false for good" in done.stdout, done.stdout + done.stderr
