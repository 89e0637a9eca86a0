"""Mirrored paddings, reversed tensors and paddings of two or three dimensions: written as TF-TRT takes them, with the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, prepared, save
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

WEIGHTS = np.random.default_rng(0).normal(size=(4, 4)).astype("f4")


def reflected(*amounts, mode="REFLECT"):
    return lambda x: tf.pad(x, [[0, 0], *amounts, [0, 0]], mode)


# {what: (shape, body)}; all leave the last dimension as it is.
WRITTEN = {
    "reflect": ((None, 6, 5, 4), reflected([1, 2], [2, 0])),
    "reflect as far as it goes": ((None, 6, 5, 4), reflected([5, 5], [4, 4])),
    "symmetric as far as it goes": ((None, 6, 5, 4), reflected([6, 6], [5, 0], mode="SYMMETRIC")),
    "reflect a sequence": ((None, 6, 4), reflected([1, 2])),
    "one axis open": ((None, None, 5, 4), reflected([0, 0], [2, 1])),
    "reversed": ((None, 6, 4), lambda x: tf.reverse(x, [1])),
    "reversed, two axes": ((None, 6, 5, 4), lambda x: tf.reverse(x, [-2, 1])),
    "zeros before a sequence": ((None, 6, 4), lambda x: tf.pad(x, [[0, 0], [3, 0], [0, 0]])),
    "zeros beside the channels": ((None, 6, 2), lambda x: tf.pad(x, [[0, 0], [0, 0], [1, 1]])),
    "zeros on both sides of both": ((None, 6, 2), lambda x: tf.pad(x, [[0, 0], [2, 1], [0, 2]])),
    "zeros around a row": ((None, 3), lambda x: tf.pad(x, [[0, 0], [0, 1]])),
    "zeros around an open sequence": ((None, None, 4), lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 0]])),
}
LEFT = {
    "reflect an open axis": ((None, None, 4), reflected([1, 2])),
    "reversed batch": ((None, 6, 4), lambda x: tf.reverse(x, [0])),
    "reversed open axis": ((None, None, 4), lambda x: tf.reverse(x, [1])),
    "zeros around the batch": ((None, 6, 4), lambda x: tf.pad(x, [[1, 0], [1, 1], [0, 0]])),
    "zeros of a picture": ((None, 6, 5, 4), lambda x: tf.pad(x, [[0, 0], [1, 1], [2, 0], [0, 0]])),
}


def model(shape, body, path):
    """`body` between ops that TF-TRT takes."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(shape, name="x")])
    def serve(x):
        return {"y": tf.nn.relu(tf.matmul(body(tf.nn.relu(x) * 2.0) + 1.0, WEIGHTS)) * 3.0}

    return save(serve, path)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("kind", WRITTEN)
def test_it_is_in_the_engine_and_answers_the_same(kind, dynamic, tmp_path):
    shape, body = WRITTEN[kind]
    path = model(shape, body, tmp_path / "m")
    frozen = prepared(path, use_dynamic_shape=dynamic)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic))
    assert len(frozen.preparation.indexed) + len(frozen.preparation.paddings) == 1
    if dynamic or shape[1]:
        assert len(done.engines) == 1 and not done.native_ops
    # TensorFlow mirrors nothing of no rows.
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, *[size or 6 for size in shape[1:]])).astype("f4")
        expected = tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(x))["y"].numpy()
        np.testing.assert_array_equal(answers(frozen, x)[0], expected)


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay_as_they_are(kind, tmp_path):
    frozen = prepared(model(*LEFT[kind], tmp_path / "m"))
    assert not frozen.preparation.indexed and not frozen.preparation.paddings


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("kind", ["reflect", "reversed, two axes", "zeros before a sequence"])
def test_there_is_no_engine_that_holds_nothing_else(kind, dynamic, tmp_path):
    shape, body = WRITTEN[kind]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(shape, name="x")])
    def serve(x):
        # TF-TRT takes no Lgamma.
        x = body(tf.math.lgamma(body(tf.math.lgamma(tf.nn.relu(x * 2.0) + 1.0))))
        return {"y": tf.nn.relu(tf.matmul(x + 1.0, WEIGHTS)) * 3.0}

    path = save(serve, tmp_path / "m")
    frozen = prepared(path, use_dynamic_shape=dynamic)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic))
    # The second goes with what is behind it.
    assert len(frozen.preparation.indexed) + len(frozen.preparation.paddings) == 1 and len(done.engines) == 2
    x = np.random.default_rng(0).normal(size=(3, *shape[1:])).astype("f4")
    expected = tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(x))["y"].numpy()
    np.testing.assert_allclose(answers(frozen, x)[0], expected, rtol=1e-5, atol=1e-5)


def test_what_the_user_keeps_stays(tmp_path):
    path = model(*WRITTEN["reversed"], tmp_path / "m")
    frozen = prepared(path, keep_native_nodes=".*ReverseV2")
    done = graph_pass.run(frozen, Settings(keep_native_nodes=".*ReverseV2"))
    assert not frozen.preparation.indexed and done.native_ops == {"ReverseV2": 1}
