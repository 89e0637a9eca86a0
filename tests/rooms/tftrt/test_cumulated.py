"""Cumulative sums: written as additions that TF-TRT takes, with the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import compared, in_one_engine, odd_values
from tftrt_tools.models.savedmodel.job import cumulated, outside


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("how", [{}, {"reverse": True}, {"exclusive": True}, {"reverse": True, "exclusive": True}])
@pytest.mark.parametrize(("shape", "axis"), [((None, 5), 1), ((None, 1), -1), ((None, 6, 4), 1), ((None, None, 9), 2)])
def test_it_is_in_the_engine(shape, axis, how, dynamic, tmp_path):
    frozen, done = in_one_engine(lambda x: tf.cumsum(x, axis, **how), [shape], tmp_path / "m", dynamic)
    if dynamic or not how.get("exclusive"):
        assert len(frozen.preparation.cumulated) == 1 and len(done.engines) == 1 and not done.native_ops
    else:
        assert done.native_ops == {"Cumsum": 1}
        assert [reason for _, reason in frozen.preparation.outside] == [cumulated.REASON]


@pytest.mark.parametrize("shape", [(None, None, 4), (None, 1 << 20, 4)], ids=["open", "too many numbers"])
def test_others_stay_as_they_are(shape, tmp_path):
    frozen, done = in_one_engine(lambda x: tf.cumsum(x, 1), [shape], tmp_path / "m")
    assert not frozen.preparation.cumulated and done.native_ops == {"Cumsum": 1}
    assert (frozen.preparation.open_sizes != ()) == (shape[1] is None)


def test_there_is_no_engine_that_holds_nothing_else(tmp_path):
    frozen, done = in_one_engine(lambda x: tf.math.lgamma(tf.cumsum(tf.math.lgamma(x), 1)), [(None, 5)], tmp_path / "m")
    assert not frozen.preparation.cumulated and done.native_ops == {"Lgamma": 2, "Cumsum": 1}


def test_it_stays_whole_where_the_user_keeps_most_of_what_it_would_become(tmp_path):
    frozen, done = in_one_engine(lambda x: tf.cumsum(x, 1), [(None, 5)], tmp_path / "m", keep_native_ops=("GatherV2",))
    assert not frozen.preparation.cumulated and done.native_ops == {"Cumsum": 1}


def test_one_that_would_be_alone_in_an_engine_of_fp32_stays_and_is_told(tmp_path):
    settings = {"precision_mode": "FP16", "fp32_nodes": ".*Cumsum"}
    frozen, done = in_one_engine(lambda x: tf.cumsum(x, 1), [(None, 5)], tmp_path / "m", **settings)
    assert not frozen.preparation.cumulated and [one.reason for one in done.left_out] == [outside.ALONE]


def test_what_the_user_keeps_stays(tmp_path):
    frozen, done = in_one_engine(lambda x: tf.cumsum(x, 1), [(None, 5)], tmp_path / "m", keep_native_ops=("Cumsum",))
    assert not frozen.preparation.cumulated and done.native_ops == {"Cumsum": 1}


def test_an_axis_that_is_not_there_stays_an_error():
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Cumsum(x=tf.compat.v1.placeholder(tf.float32, (None, 4)), axis=5)
    assert not cumulated.rewrite(graph.as_graph_def())


@pytest.mark.parametrize("seed", range(60))
def test_random_sums_answer_the_same(seed):
    rng = np.random.default_rng(seed)
    shape = [int(size) for size in rng.integers(1, 20, rng.integers(1, 5))]
    axis = int(rng.integers(-len(shape), len(shape)))
    how = {"exclusive": bool(rng.random() < 0.5), "reverse": bool(rng.random() < 0.5)}
    x = odd_values(rng, shape) if seed % 3 else rng.integers(-(2**31), 2**31, shape).astype("i4")
    open_shape = [size if number == axis % len(shape) else None for number, size in enumerate(shape)]
    empty = np.zeros([size if number == axis % len(shape) else 0 for number, size in enumerate(shape)], x.dtype)
    written, answers = compared(
        lambda one: tf.cumsum(one, axis, **how), [(open_shape, tf.as_dtype(x.dtype))], cumulated.rewrite, [x], [empty]
    )
    assert len(written) == 1
    for expected, found in answers:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
