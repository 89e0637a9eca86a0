"""Normalizations by the statistics of what they get: written as means and differences that TF-TRT takes, with the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import compared, in_one_engine
from tftrt_tools.models.savedmodel.job import normalized

v1 = tf.compat.v1


def batch_norm(x, scale=None, offset=None, layout="NHWC", epsilon=1e-3):
    """With the statistics of x."""
    count = tf.shape(x)[3 if layout == "NHWC" else 1]
    scale, offset = (
        tf.fill([count], 1.0) if scale is None else scale,
        tf.fill([count], 0.0) if offset is None else offset,
    )
    return v1.nn.fused_batch_norm(x, scale, offset, epsilon=epsilon, data_format=layout)[0]


def layer_norm(x, axes=1, epsilon=1e-3, gamma=None):
    """As Keras 2 writes it, over the last `axes` axes."""
    shape = tf.shape(x)
    rows, others = tf.reduce_prod(shape[: x.shape.rank - axes]), tf.reduce_prod(shape[x.shape.rank - axes :])
    picture = tf.reshape(x, tf.stack([1, rows, others, 1]))
    normal = tf.reshape(batch_norm(picture, layout="NCHW", epsilon=epsilon), shape)
    return normal if gamma is None else normal * gamma


@pytest.mark.parametrize(
    "body",
    [layer_norm, lambda x: layer_norm(x, 2, gamma=np.ones((6, 4), "f4")), lambda x: batch_norm(x[:, None])],
    ids=["last axis", "two axes", "of a picture"],
)
@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_it_is_in_the_engine(body, precision, tmp_path):
    frozen, done = in_one_engine(body, [(None, 6, 4)], tmp_path / "m", precision_mode=precision)
    assert len(frozen.preparation.normalized) == 1 and len(done.engines) == 1 and not done.native_ops


def test_both_reshapes_of_a_layer_normalization_go(tmp_path):
    frozen, _ = in_one_engine(layer_norm, [(None, None, 4)], tmp_path / "m")
    ops = {node.name: node.op for node in frozen.graph_def.node}
    (name,) = frozen.preparation.normalized
    (axes,) = (
        tf.make_ndarray(node.attr["value"].tensor) for node in frozen.graph_def.node if node.name == f"{name}/axes"
    )
    assert ops[name] == "Mul" and axes.tolist() == [2]
    assert [node.op for node in frozen.graph_def.node if name in node.input] == ["Identity"]


@pytest.mark.parametrize(("dynamic", "precision"), [(False, "FP32"), (True, "INT8")])
def test_elsewhere_it_stays_and_the_reason_is_told(dynamic, precision, tmp_path):
    frozen, done = in_one_engine(layer_norm, [(None, 6, 4)], tmp_path / "m", dynamic, precision_mode=precision)
    assert not frozen.preparation.normalized and "FusedBatchNormV3" in done.native_ops
    assert normalized.REASON in [reason for _, reason in frozen.preparation.outside]


def test_what_the_user_keeps_stays(tmp_path):
    kept = {"keep_native_ops": ("FusedBatchNormV3",)}
    frozen, done = in_one_engine(layer_norm, [(None, 6, 4)], tmp_path / "m", **kept)
    assert not frozen.preparation.normalized and done.native_ops["FusedBatchNormV3"] == 1


def read_twice(x):
    """Somebody reads the mean, too."""
    normal, mean, _ = v1.nn.fused_batch_norm(x, tf.fill([4], 1.0), tf.fill([4], 0.0))
    return normal + mean


@pytest.mark.parametrize(
    "body",
    [
        read_twice,
        lambda x: batch_norm(x, scale=np.full(5, 2.0, "f4"), offset=np.zeros(5, "f4"), layout="NCHW"),
        lambda x: v1.nn.fused_batch_norm(x, *np.ones((4, 4), "f4"), is_training=False)[0],
        lambda x: tf.map_fn(lambda one: batch_norm(one[None]), x),
        lambda x: tf.cast(batch_norm(tf.cast(x, tf.float16)), tf.float32),
    ],
    ids=["its mean is read", "scales in front of other axes", "of constant statistics", "in a loop", "of float16"],
)
def test_others_stay_as_they_are(body):
    with tf.Graph().as_default() as graph:
        tf.identity(body(v1.placeholder(tf.float32, (None, 5, 5, 4), "x")), name="y")
    before = graph.as_graph_def()
    after = graph.as_graph_def()
    assert not normalized.rewrite(after) and before == after


def test_a_result_of_the_graph_keeps_its_shape():
    with tf.Graph().as_default() as graph:
        layer_norm(v1.placeholder(tf.float32, (None, 6, 4), "x"))
    (node,) = (node.name for node in graph.as_graph_def().node if node.op == "FusedBatchNormV3")
    graph_def = graph.as_graph_def()
    assert normalized.rewrite(graph_def, fetched={f"{node}:0"}) == (node,)
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("f4")
    with tf.Graph().as_default() as after:
        tf.import_graph_def(graph_def, name="")
    shapes = [v1.Session(graph=one).run(f"{node}:0", {"x:0": x}).shape for one in (graph, after)]
    assert shapes == [(1, 12, 4, 1)] * 2


def waiting(x):
    """A Reshape of other data waits for the normalization, and has the shape of its result."""
    y = layer_norm(x)
    with tf.control_dependencies([y.op.inputs[0].op]):
        return y + tf.reshape(x * 2.0, tf.shape(x))


def held_up(x):
    """The picture waits for a check."""
    with tf.control_dependencies([tf.debugging.assert_less(x, 1e9)]):
        return layer_norm(x)


def stacked(x):
    return layer_norm(layer_norm(x))


@pytest.mark.parametrize("body", [waiting, held_up, stacked], ids=["waiting", "held up", "stacked"])
@pytest.mark.parametrize("shape", [(None, None, 4), (2, 6, 4), (1, 6, 1)])
def test_what_waits_or_comes_twice_answers_the_same(body, shape):
    x = np.random.default_rng(0).normal(size=[size or 3 for size in shape]).astype("f4")
    written, ((expected, found),) = compared(body, [shape], normalized.rewrite, [x])
    assert bool(written) == (body is not held_up) and expected.shape == found.shape
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_check_before_it_stays():
    def body(x):
        with tf.control_dependencies([tf.debugging.assert_less(x, 1.0)]):
            return layer_norm(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match="assert"):
        compared(body, [(None, 4)], normalized.rewrite, [np.full((2, 4), 2.0, "f4")])
    with tf.Graph().as_default() as graph:
        tf.identity(body(v1.placeholder(tf.float32, (None, 4), "x")), name="y")
    graph_def = graph.as_graph_def()
    normalized.rewrite(graph_def)
    with tf.Graph().as_default() as after:
        tf.import_graph_def(graph_def, name="")
    with pytest.raises(tf.errors.InvalidArgumentError, match="assert"):
        v1.Session(graph=after).run("y:0", {"x:0": np.full((2, 4), 2.0, "f4")})


def test_a_size_that_the_reshape_checks_stays_checked():
    def body(x):
        rows = tf.shape(x)[0] * 6  # refuses other lengths than 6
        picture = tf.reshape(x, tf.stack([1, rows, 4, 1]))
        return tf.reshape(batch_norm(picture, layout="NCHW"), tf.shape(x))

    with tf.Graph().as_default() as graph:
        tf.identity(body(v1.placeholder(tf.float32, (None, None, 4), "x")), name="y")
    graph_def = graph.as_graph_def()
    assert normalized.rewrite(graph_def)
    with tf.Graph().as_default() as after:
        tf.import_graph_def(graph_def, name="")
    with pytest.raises(tf.errors.InvalidArgumentError):
        v1.Session(graph=after).run("y:0", {"x:0": np.zeros((2, 7, 4), "f4")})


@pytest.mark.parametrize("port", [1, 2])
def test_one_whose_mean_or_variance_is_a_result_stays(port):
    with tf.Graph().as_default() as graph:
        found = v1.nn.fused_batch_norm(v1.placeholder(tf.float32, (None, 5, 5, 4), "x"), tf.ones(4), tf.zeros(4))
    before, after = graph.as_graph_def(), graph.as_graph_def()
    assert not normalized.rewrite(after, fetched=[found[port].name]) and before == after


def test_one_that_stays_in_the_right_mode_says_why(tmp_path):
    frozen, done = in_one_engine(lambda x: read_twice(x[:, None]), [(None, 6, 4)], tmp_path / "m")
    assert not frozen.preparation.normalized and done.native_ops == {"FusedBatchNormV3": 1}
    assert [reason for _, reason in frozen.preparation.outside] == [normalized.STAYS]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_random_normalizations_answer_the_same(seed, half):
    rng = np.random.default_rng(seed)
    rank, epsilon = int(rng.integers(2, 5)), float(rng.choice([1e-3, 1e-2, 1.0]))
    shape = [int(size) for size in rng.integers(1, 9, rank)]
    x = (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 5) + rng.normal() * 3).astype("f4")
    known = [size if rng.random() < 0.6 else None for size in shape]
    axes = int(rng.integers(1, rank)) if seed % 2 else 1
    if rank == 4 and rng.random() < 0.5:
        scales, layout = [rng.normal(size=shape[3]).astype("f4") for _ in range(2)], str(rng.choice(["NHWC", "NCHW"]))
        given = scales if layout == "NHWC" else [None, None]
        known[3] = shape[3]

        def body(one):
            return batch_norm(one, *given, layout=layout, epsilon=epsilon)
    else:

        def body(one):
            return layer_norm(one, axes, epsilon)

    def rewrite(graph_def):
        return normalized.rewrite(graph_def, half=half)

    written, answers = compared(body, [tuple(known)], rewrite, [x], [x[:0]] if known[0] is None else [x])
    assert len(written) == 1
    for expected, found in answers:
        assert expected.shape == found.shape
        np.testing.assert_allclose(found, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("size", [1e-4, 1.0, 600.0, 3e3])
def test_in_half_precision_no_square_is_infinite(size):
    rng = np.random.default_rng(0)
    x = (rng.uniform(-size, size, (3, 64))).astype("f2")

    def written(half):
        with tf.Graph().as_default() as graph:
            tf.identity(layer_norm(v1.placeholder(tf.float32, (None, 64), "x")), name="y")
        graph_def = graph.as_graph_def()
        normalized.rewrite(graph_def, half=half)
        for node in graph_def.node:
            for attribute in node.attr.values():
                if attribute.type == tf.float32.as_datatype_enum:
                    attribute.type = tf.float16.as_datatype_enum
            if node.op == "Const" and node.attr["value"].tensor.dtype == tf.float32.as_datatype_enum:
                values = tf.make_ndarray(node.attr["value"].tensor).astype("f2")
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
        with tf.Graph().as_default() as after:
            tf.import_graph_def(graph_def, name="")
        return v1.Session(graph=after).run("y:0", {"x:0": x})

    wide = x.astype("f8")
    centered = wide - wide.mean(-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(written(half=True), expected, atol=5e-3)
    # What the plain form does to large numbers is the reason for the other one.
    assert np.allclose(written(half=False), expected, atol=5e-3) == (size < 255)
