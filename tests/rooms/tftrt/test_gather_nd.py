"""GatherNd: written as GatherV2 with the same answers and the same errors."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import compared, in_one_engine
from tftrt_tools.models.savedmodel.job import gather_nd

TABLE = np.random.default_rng(0).normal(size=(7, 4)).astype("f4")


def indices(x):
    """Numbers of rows from 0 to 6, [rows, 5, 1]; TF-TRT takes them as an input."""
    return tf.cast(tf.math.floormod(x, 7.0), tf.int32)[..., tf.newaxis]


# {what: (shape, body)}.
WRITTEN = {
    "one number of a constant": ((None, 5), lambda x: tf.gather_nd(TABLE, indices(x))),
    "one number": ((None, 5), lambda x: tf.gather_nd(x * 2.0, indices(x)[:, :2])),
    "constants of the first axis": ((None, 5), lambda x: tf.gather_nd(x, [[0], [2]])),
    "constants of two axes": ((None, 5, 4), lambda x: tf.gather_nd(x, [[0, 1], [2, 4], [0, 0]])),
}
LEFT = {
    "several numbers that are computed": (
        (None, 5),
        lambda x: tf.gather_nd(TABLE, tf.concat([indices(x), indices(x) // 2], -1)),
    ),
    "a constant outside": ((2, 5), lambda x: tf.gather_nd(x, [[0, 1], [1, 0]])),
    "an open axis": ((None, None, 4), lambda x: tf.gather_nd(x, [[0, 1], [1, 2]])),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_it_is_in_the_engine_with_dynamic_shapes(kind, tmp_path):
    shape, body = WRITTEN[kind]
    frozen, done = in_one_engine(body, [shape], tmp_path / "m")
    assert len(frozen.preparation.gathered) == 1 and not {"GatherNd", "GatherV2"} & done.native_ops.keys()
    frozen, done = in_one_engine(body, [shape], tmp_path / "n", dynamic=False)
    assert not frozen.preparation.gathered and done.native_ops["GatherNd"] == 1
    assert gather_nd.REASON in [reason for _, reason in frozen.preparation.outside]


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay_as_they_are(kind):
    shape, body = LEFT[kind]
    with tf.Graph().as_default() as graph:
        body(tf.compat.v1.placeholder(tf.float32, shape))
    graph_def = graph.as_graph_def()
    if kind == "a constant outside":
        (constant,) = [node for node in graph_def.node if node.name == "GatherNd/indices"]
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([[0, 1], [1, 5]]))
    assert gather_nd.rewrite(graph_def) == ()


@pytest.mark.parametrize("number", [-1, 7])
def test_an_index_that_is_outside_stays_an_error(number):
    for body in (lambda one: tf.gather_nd(TABLE, one), lambda one: tf.gather_nd(tf.identity(TABLE), one)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="GatherV2|GatherNd|not in|indices"):
            compared(body, [((None, 1), tf.int32)], lambda graph_def: None, [np.array([[number]], "i4")])
        written, _ = compared(body, [((None, 1), tf.int32)], gather_nd.rewrite, [np.array([[0]], "i4")])
        assert len(written) == 1
        with tf.Graph().as_default() as graph:
            tf.identity(body(tf.compat.v1.placeholder(tf.int32, (None, 1), "x0")), name="y")
        graph_def = graph.as_graph_def()
        gather_nd.rewrite(graph_def)
        with tf.Graph().as_default() as after:
            tf.import_graph_def(graph_def, name="")
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.compat.v1.Session(graph=after).run("y:0", {"x0:0": np.array([[number]], "i4")})


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_row_that_is_not_there_stays_an_error(rows):
    def run(rewrite):
        return compared(
            lambda x: tf.gather_nd(x, [[0, 1], [2, 4]]), [(None, 5, 2)], rewrite, [np.zeros((rows, 5, 2), "f4")]
        )

    if rows == 3:
        assert len(run(gather_nd.rewrite)[0]) == 1
        return
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(lambda graph_def: None)
    with tf.Graph().as_default() as graph:
        tf.identity(tf.gather_nd(tf.compat.v1.placeholder(tf.float32, (None, 5, 2), "x0"), [[0, 1], [2, 4]]), name="y")
    graph_def = graph.as_graph_def()
    assert len(gather_nd.rewrite(graph_def)) == 1
    with tf.Graph().as_default() as after:
        tf.import_graph_def(graph_def, name="")
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.compat.v1.Session(graph=after).run("y:0", {"x0:0": np.zeros((rows, 5, 2), "f4")})


def test_a_number_beyond_all_rows_is_not_taken_for_another():
    indices = np.array([[1 << 62, 0]])  # times 4 it is 0 again in 64 bits
    with tf.Graph().as_default() as graph:
        tf.gather_nd(tf.compat.v1.placeholder(tf.float32, (None, 4)), indices)
    assert not gather_nd.rewrite(graph.as_graph_def())


@pytest.mark.parametrize("seed", range(60))
def test_random_ones_answer_the_same(seed):
    rng = np.random.default_rng(seed)
    shape = [int(size) for size in rng.integers(1, 6, rng.integers(1, 5))]
    count = int(rng.integers(1, len(shape) + 1))
    of = [int(size) for size in rng.integers(0 if seed % 5 == 0 else 1, 4, rng.integers(0, 3))]
    numbers = np.stack([rng.integers(0, shape[axis], of) for axis in range(count)], -1).astype("i4")
    x = rng.integers(0, 99, shape).astype("i4" if seed % 2 else "f4")
    open_shape = [
        None if number == 0 or number >= count and number == len(shape) - 1 else size
        for number, size in enumerate(shape)
    ]
    computed = count == 1 and seed % 3 == 0
    if computed:
        body, shapes, feed = (
            tf.gather_nd,
            [(open_shape, tf.as_dtype(x.dtype)), ([None] * len(of) + [1], tf.int32)],
            [x, numbers],
        )
    else:
        body, shapes, feed = (lambda one: tf.gather_nd(one, numbers)), [(open_shape, tf.as_dtype(x.dtype))], [x]
    written, ((expected, found),) = compared(body, shapes, gather_nd.rewrite, feed)
    np.testing.assert_array_equal(found, expected)
    if numbers.size and (count == 1 or open_shape.count(None) == 1):
        assert len(written) == 1
