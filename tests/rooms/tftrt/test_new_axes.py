"""Slices that add an axis: written as TF-TRT takes them, with the same answers."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import compared, in_one_engine
from tftrt_tools.models.savedmodel.job import new_axes

NEW = tf.newaxis
# {what: (shape, body)}.
WRITTEN = {
    "in the middle": ((None, 5, 4), lambda x: x[:, NEW]),
    "at the end": ((None, 5, 4), lambda x: x[..., NEW]),
    "two": ((None, 5, 4), lambda x: x[:, NEW, :, NEW]),
    "before an open axis": ((None, None, 4), lambda x: x[:, NEW]),
    "of a mask": ((None, 4), lambda x: tf.where((x > 2.0)[:, NEW, NEW], x[:, NEW, NEW], 1.0)),
    "of two masks": ((None, 4), lambda x: tf.where(((x > 2.0) & tf.not_equal(x, 4.0))[:, NEW], x[:, NEW], 1.0)),
    "of a mask, expanded": ((None, 4), lambda x: tf.where(tf.expand_dims(x > 2.0, 1), x[:, NEW], 1.0)),
}
# With a slice beside the new axis; in implicit batch mode TF-TRT takes none of an open batch.
SLICED = {
    "and a slice": ((None, 5, 4), lambda x: x[:, NEW, 1:4:2]),
    "and one element": ((None, 5, 4), lambda x: x[:, 2, NEW, 1:]),
    "behind an ellipsis": ((None, 5, 4), lambda x: x[..., 1:3, NEW]),
    "before the batch": ((None, 5, 4), lambda x: x[NEW, :, 1:]),
    "from an end that is known": ((None, 5, 4), lambda x: x[:, -3:-1, NEW]),
}
LEFT = {
    "from an end that is open": ((None, None, 4), lambda x: x[:, NEW, :-1]),
    "no new axis": ((None, 5, 4), lambda x: x[:, 1:]),
    "a computed bound": ((None, 5, 4), lambda x: x[:, NEW, : tf.shape(x)[0]]),
    "a mask that is no comparison": ((None, 4), lambda x: tf.where(tf.math.is_finite(x)[:, NEW], x[:, NEW], 1.0)),
}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("kind", [*WRITTEN, *SLICED])
def test_it_is_in_the_engine(kind, dynamic, tmp_path):
    if not dynamic and (kind in SLICED or "mask" in kind):
        pytest.skip("implicit batch mode has neither slices of an open batch nor comparisons")
    shape, body = (WRITTEN | SLICED)[kind]
    frozen, done = in_one_engine(body, [shape], tmp_path / "m", dynamic)
    assert frozen.preparation.new_axes and len(done.engines) == 1 and not done.native_ops


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay_as_they_are(kind, tmp_path):
    shape, body = LEFT[kind]
    assert not new_axes.rewrite(in_one_engine(body, [shape], tmp_path / "m")[0].graph_def)


def test_what_the_user_keeps_stays_and_what_stays_is_told(tmp_path):
    shape, body = WRITTEN["in the middle"]
    frozen, done = in_one_engine(body, [shape], tmp_path / "m", keep_native_nodes=".*strided_slice")
    assert not frozen.preparation.new_axes and done.native_ops == {"StridedSlice": 1}
    frozen, done = in_one_engine(body, [shape], tmp_path / "o", keep_native_ops=("StridedSlice",))
    assert not frozen.preparation.new_axes and done.native_ops == {"StridedSlice": 1}
    assert not frozen.preparation.outside
    frozen, done = in_one_engine(LEFT["from an end that is open"][1], [(None, None, 4)], tmp_path / "n")
    assert done.native_ops == {"StridedSlice": 1}
    assert [reason for _, reason in frozen.preparation.outside] == [new_axes.REASON]
    assert [name for name, _ in frozen.preparation.outside] == list(frozen.preparation.open_sizes)


PARTS = [NEW, slice(None), slice(1, 3), slice(None, None, 2), slice(-2, None), slice(3, None, -1), 1, -1, Ellipsis]


def random_slice(rng, rank):
    """Parts of a slice of a tensor of `rank` dimensions, with a new axis at least."""
    while True:
        parts = [PARTS[rng.integers(len(PARTS))] for _ in range(rng.integers(1, rank + 4))]
        named = sum(part is not NEW and part is not Ellipsis for part in parts)
        if NEW in parts and parts.count(Ellipsis) <= 1 and named <= rank:
            return tuple(parts)


@pytest.mark.parametrize("seed", range(60))
def test_random_slices_answer_the_same(seed):
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(4, 6, rng.integers(1, 5))]
    parts = random_slice(rng, len(sizes))
    shape = [None if rng.random() < 0.3 else size for size in sizes]
    x = rng.integers(0, 99, sizes).astype("i4" if seed % 2 else "f4")
    written, ((expected, found),) = compared(
        lambda one: one[parts], [(shape, tf.as_dtype(x.dtype))], new_axes.rewrite, [x]
    )
    np.testing.assert_array_equal(found, expected)
    if None not in shape:
        assert len(written) == 1


@pytest.mark.parametrize(
    ("place", "rank"),
    [pair for pair in itertools.product(range(-4, 4), (1, 2, 3)) if -pair[1] - 2 < pair[0] <= pair[1]],
)
def test_masks_answer_the_same(place, rank):
    x = np.random.default_rng(0).normal(size=(3, 4, 5)[:rank]).astype("f4")
    written, ((expected, found),) = compared(
        lambda one: tf.expand_dims(~((one > 0.0) | (one < -1.0)), place), [(None, 4, 5)[:rank]], new_axes.rewrite, [x]
    )
    assert len(written) == 1
    np.testing.assert_array_equal(found, expected)


# TensorFlow makes LessEqual of a LogicalNot that alone reads a Greater, and that is False for NaN.
def _one_comparison(kind):
    def body(x):
        greater = x > 0.0
        if kind == "beside the slice":
            return tf.cast(greater[:, NEW], tf.float32)[:, 0] + 2.0 * tf.cast(~greater, tf.float32)
        return tf.cast((~greater)[:, NEW] if kind == "before the slice" else ~(greater[:, NEW]), tf.float32)

    return body


@pytest.mark.parametrize("kind", ["before the slice", "beside the slice", "behind the slice"])
def test_a_comparison_that_is_negated_keeps_its_answer_for_nan(kind):
    x = np.array([[1.0, np.nan, -1.0]], "f4")
    written, ((expected, found),) = compared(_one_comparison(kind), [(None, 3)], new_axes.rewrite, [x])
    np.testing.assert_array_equal(found, expected)
    assert not written
