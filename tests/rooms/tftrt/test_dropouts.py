"""Dropouts that keep everything are taken out, in TF-TRT's graph and in an ONNX file."""

import json

import numpy as np
import onnx
import pytest
import tensorflow as tf

from tests.prepared_models import answers, prepared
from tests.rooms.models.test_unnamed import W, saved
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel.job import dropouts
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

v1 = tf.compat.v1


def constant(value):
    return v1.placeholder_with_default(value, (), "keep_prob")


def of_release_1_12(x, keep, shape=None):
    """As TensorFlow wrote a dropout up to 1.12."""
    random = keep + tf.raw_ops.Add(
        x=tf.raw_ops.Mul(
            x=tf.random.uniform(tf.shape(x) if shape is None else shape, dtype=x.dtype),
            y=tf.constant(1.0, x.dtype) - tf.constant(0.0, x.dtype),
        ),
        y=tf.constant(0.0, x.dtype),
    )
    return tf.raw_ops.Div(x=x, y=keep) * tf.floor(random)


def of_release_2_0(x, keep, shape=None):
    """As it did from 1.13 to 2.9."""
    mask = tf.random.uniform(tf.shape(x) if shape is None else shape, dtype=x.dtype) >= 1 - keep
    return x * (1 / keep) * tf.cast(mask, x.dtype)


def selected(x, keep, shape=None):
    return v1.nn.dropout(x, keep_prob=keep, noise_shape=shape)


FORMS = {"1.12": of_release_1_12, "2.0": of_release_2_0, "2.14": selected}


@pytest.mark.parametrize("form", FORMS)
def test_one_that_keeps_everything_is_taken_out(form, tmp_path):
    saved(tmp_path / "m", lambda x: tf.nn.softmax(tf.nn.relu(FORMS[form](tf.nn.relu(x @ W), constant(1.0)) @ W) + 1.0))
    frozen = prepared(tmp_path / "m")
    done = graph_pass.run(frozen, Settings())
    assert len(frozen.preparation.dropouts) == 1 and len(done.engines) == 1 and set(done.native_ops) <= {"Softmax"}
    assert Preparation.from_dict(json.loads(json.dumps(frozen.preparation.to_dict()))) == frozen.preparation
    assert "1 dropout that keeps everything taken out" in _output.prepared(frozen.preparation)
    x = np.random.default_rng(1).normal(size=(3, 8)).astype("f4")
    np.testing.assert_allclose(answers(frozen, x)[0], frozen.original(x=tf.constant(x))["y"].numpy(), rtol=1e-6)
    [name] = frozen.preparation.dropouts
    assert not prepared(tmp_path / "m", keep_native_nodes=name).preparation.dropouts


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keep", [0.5, 0.999999, 1.5])
def test_one_that_drops_or_scales_stays(form, keep):
    graph_def = graph_of(lambda x: FORMS[form](x, tf.constant(keep)))
    ends = dropouts.fold(graph_def)
    # Of more than 1 the mask is the same only where the random numbers reach a bound of 0 or less; the factor stays then.
    assert ends == () or keep > 1
    if ends:
        value = np.linspace(-2, 2, 8, dtype="f4").reshape(1, 8)
        np.testing.assert_allclose(run(graph_def, value), value / np.float32(keep), rtol=1e-6)


def test_one_whose_share_is_sent_stays():
    def body(x):
        return selected(x, v1.placeholder(tf.float32, (), "keep"))

    assert dropouts.fold(graph_of(body)) == ()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("form", FORMS)
def test_each_type_answers_exactly_the_same(form, dtype):
    graph_def = graph_of(lambda x: tf.cast(FORMS[form](tf.cast(x, dtype), tf.constant(1.0, dtype)), tf.float32))
    values = np.array([[0.0, -0.0, 1.5, -3.0, np.inf, -np.inf, np.nan, 1e-3]], "f4").repeat(4000, 0)
    before = run(graph_def, values)
    assert len(dropouts.fold(graph_def)) == 1
    np.testing.assert_array_equal(run(graph_def, values), before)
    assert np.array_equal(np.signbit(run(graph_def, values)[:, :2]), np.signbit(values[:, :2]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shape", "ends"),
    [(lambda x: (tf.shape(x)[0], 1), 1), (lambda x: (1, 8), 1), (lambda x: (3, 1, 8), 0), (lambda x: (5, 8), 0)],
    ids=["rows", "columns", "more axes", "more rows"],
)
def test_noise_of_another_shape(form, shape, ends):
    if form == "2.14" and not ends:
        pytest.skip("tf.nn.dropout refuses it")
    graph_def = graph_of(lambda x: FORMS[form](x, tf.constant(1.0), shape(x)))
    before = run(graph_def, np.ones((1, 8), "f4"))
    assert len(dropouts.fold(graph_def)) == ends
    np.testing.assert_array_equal(run(graph_def, np.ones((1, 8), "f4")), before)


def test_only_numbers_that_are_drawn_below_one_count():
    """Numbers of another range, a rounded sum, and a factor that is not floored."""
    for body in (
        lambda x: x * tf.floor(1.0 + tf.random.normal(tf.shape(x))),
        lambda x: x * tf.floor(1.0 + tf.random.uniform(tf.shape(x), 0, 2)),
        lambda x: x * (1.0 + tf.random.uniform(tf.shape(x))),
        lambda x: x * tf.floor(0.5 + (0.5 + tf.random.uniform(tf.shape(x)))),
        lambda x: x * tf.cast(tf.random.uniform(tf.shape(x)) > 0.0, tf.float32),
        lambda x: tf.where(tf.random.uniform(tf.shape(x)) >= 0.0, x, tf.ones((4, 8))),
    ):
        assert dropouts.fold(graph_of(body)) == ()


def graph_of(body):
    with tf.Graph().as_default() as graph:
        tf.identity(body(v1.placeholder(tf.float32, (None, 8), "x")), "y")
    return graph.as_graph_def()


def run(graph_def, value):
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.import_graph_def(graph_def, name="")
        return session.run("y:0", {"x:0": value})


def test_export_takes_it_out_too(tmp_path, tftrt):
    saved(tmp_path / "m", lambda x: tf.nn.softmax(tf.nn.relu(selected(tf.nn.relu(x @ W), constant(1.0)) @ W) + 1.0))
    done = tftrt("export", tmp_path / "m", f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 0 and "1 dropout" in done.stdout, done.stdout + done.stderr
    assert not [one.op_type for one in onnx.load(tmp_path / "m.onnx").graph.node if one.op_type.startswith("Random")]
