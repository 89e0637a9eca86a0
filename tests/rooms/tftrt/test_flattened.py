"""Reshapes that keep the rows: written with a constant shape where that is the same, and left where it is not."""

import contextlib
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, prepared, save
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel.job import dimensions, flattened, inferred
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

FILTERS = np.random.default_rng(0).normal(size=(3, 3, 3, 4)).astype("f4")
WEIGHTS = np.random.default_rng(1).normal(size=(144, 5)).astype("f4")


# Random graphs that are tried.
GRAPHS = 60


def rows(x):
    return tf.shape(x)[0]


# {what: a reshape of ? x 6 x 6 x 4 elements to ? x 144}.
FLATTENED = {
    "stack": lambda x: tf.reshape(x, tf.stack([rows(x), 144])),
    "keras": tf.keras.layers.Flatten(),
    "keras reshape": tf.keras.layers.Reshape((144,)),
    "keras 3": lambda x: tf.reshape(x, (tf.shape(x)[0], np.int64(144))),
    "inferred": lambda x: tf.reshape(x, tf.stack([rows(x), -1])),
    "concat": lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:1], [-1]], 0)),
    "int64": lambda x: tf.reshape(x, tf.stack([tf.shape(x, tf.int64)[0], 144])),
    "casted": lambda x: tf.reshape(x, tf.cast(tf.stack([tf.shape(x, tf.int64)[0], 144]), tf.int32)),
    "sizes": lambda x: tf.reshape(x, tf.stack([rows(x), 36, tf.shape(x)[-1]])),
    "two": lambda x: tf.reshape(tf.reshape(x, tf.stack([rows(x), 6, -1, 2])), tf.stack([rows(x), 144])),
    "of an earlier one": lambda x: tf.reshape(
        tf.nn.relu(tf.transpose(x, (0, 3, 1, 2)) + 1.0), tf.stack([rows(x), 144])
    ),
}


def model(body, path):
    """A convolution, `body` and a layer."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 8, 8, 3), name="x")])
    def serve(x):
        h = body(tf.nn.relu(tf.nn.conv2d(x, FILTERS, 1, "VALID")) * 2.0)
        return {"y": tf.nn.relu(tf.reshape(h, (-1, 144)) @ WEIGHTS) + 1.0}

    return save(serve, path)


@pytest.mark.parametrize("name", FLATTENED)
def test_a_flatten_has_a_constant_shape_and_answers_the_same(name, tmp_path):
    path = model(FLATTENED[name], tmp_path / "m")
    frozen = prepared(path)
    done = graph_pass.run(frozen, Settings())
    # Keras 2 writes a constant itself where the sizes are known.
    assert frozen.preparation.flattened or name == "keras"
    assert not {"Shape", "StridedSlice", "Pack", "ConcatV2"} & set(done.native_ops) and len(done.engines) == 1
    for batch in (0, 1, 5):
        if batch == 0 and name in ("inferred", "concat", "two"):
            continue  # the original refuses it
        x = np.random.default_rng(batch).normal(size=(batch, 8, 8, 3)).astype("f4")
        np.testing.assert_allclose(
            answers(frozen, x)[0], frozen.original(x=tf.constant(x))["y"].numpy(), rtol=1e-5, atol=1e-5
        )


def test_it_is_told_and_kept_in_the_manifest_and_can_be_switched_off(tmp_path):
    path = model(FLATTENED["stack"], tmp_path / "m")
    frozen = prepared(path)
    [name] = frozen.preparation.flattened
    assert Preparation.from_dict(json.loads(json.dumps(frozen.preparation.to_dict()))) == frozen.preparation
    assert _output.prepared(frozen.preparation)[0].startswith("1 reshape of rows with a constant shape")
    without = prepared(path, keep_native_nodes=name)
    assert not without.preparation.flattened and len(graph_pass.run(without, Settings()).engines) == 2


# {what: a reshape of ? x 6 x 6 x 4 elements, and of an input n, that a constant shape could change}.
OTHERS = {
    "another row": lambda x, n: tf.reshape(x, tf.stack([rows(x), 72])),
    "rows of another input": lambda x, n: tf.reshape(x, tf.stack([tf.shape(n)[0], 144])),
    "a number that is sent": lambda x, n: tf.reshape(x, tf.stack([n[0], 144])),
    "more rows": lambda x, n: tf.reshape(x, tf.stack([rows(x) * 2, 72])),
    "another axis": lambda x, n: tf.reshape(x, tf.stack([tf.shape(n)[-1], -1])),
    "rows at the end": lambda x, n: tf.reshape(x, tf.stack([144, rows(x)])),
    "no multiple": lambda x, n: tf.reshape(x, tf.stack([rows(x), 5, -1])),
    "rows of a slice": lambda x, n: tf.reshape(x, tf.stack([rows(x[1:]) + 1, 144])),
    "rows of a broadcast": lambda x, n: tf.reshape(
        x, tf.stack([rows(x + tf.cast(tf.reshape(n, (-1, 1, 1, 1)), tf.float32)), 144])
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_as_they_are(name):
    @tf.function(input_signature=[tf.TensorSpec((None, 6, 6, 4), name="x"), tf.TensorSpec((None,), tf.int32, name="n")])
    def serve(x, n):
        return OTHERS[name](x, n)

    graph_def = serve.get_concrete_function().graph.as_graph_def()
    before = graph_def.SerializeToString(deterministic=True)
    assert flattened.rewrite(graph_def) == () and graph_def.SerializeToString(deterministic=True) == before


def test_open_sizes_are_left_as_they_are():
    @tf.function(input_signature=[tf.TensorSpec((None, None, None, 4), name="x")])
    def serve(x):
        return tf.reshape(x, tf.stack([rows(x), -1])), tf.reshape(x, tf.stack([rows(x), 144]))

    assert flattened.rewrite(serve.get_concrete_function().graph.as_graph_def()) == ()


def test_one_in_a_loop_is_left_as_it_is():
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, (None, 4), "x")
            tf.while_loop(
                lambda i, h: i < 3,
                lambda i, h: (i + 1, tf.ensure_shape(tf.reshape(h, tf.stack([rows(h), 4])), (None, 4))),
                (0, x),
            )
    finally:
        tf.compat.v1.enable_control_flow_v2()
    assert flattened.rewrite(graph.as_graph_def()) == ()


def changed(rng, x, n):
    """A tensor of ? x 6 x 4 elements made from another one, at random."""
    return [
        lambda: tf.nn.relu(x),
        lambda: x + 1.0,
        lambda: x * tf.ones((6, 4)),
        lambda: x - tf.reduce_mean(x, 0, keepdims=True),
        lambda: tf.reshape(tf.transpose(x, (0, 2, 1)), (-1, 6, 4)),
        lambda: tf.transpose(tf.transpose(x, (2, 0, 1)), (1, 2, 0)),
        lambda: x[1:],
        lambda: x[::2],
        lambda: tf.concat([x, x], 0),
        lambda: x[:, ::-1],
        lambda: tf.pad(x, [[1, 0], [0, 0], [0, 0]]),
        lambda: tf.pad(x, [[0, 0], [2, 0], [0, 0]])[:, :6],
        lambda: x + tf.reshape(tf.cast(n, tf.float32), (-1, 1, 1)),
        lambda: tf.reshape(x, (-1, 3, 4))[:, :1] * tf.ones((6, 4)),
        lambda: tf.reverse(x, [0]),
        lambda: tf.tile(x, [2, 1, 1]),
        lambda: tf.matmul(x, tf.eye(4)),
        lambda: tf.reshape(tf.reshape(x, (-1, 4)) @ tf.eye(4), tf.stack([rows(x), 6, 4])),
    ][rng.integers(18)]()


def shape(rng, data, others):
    """A shape with 24 elements a row or not, at random."""
    first = tf.shape([data, *others][rng.integers(1 + len(others))])[rng.choice([0, 0, 0, 1])]
    rest = [[24], [6, 4], [-1], [12, -1], [2, -1, 3], [48], [5, -1], [12], [1, 24], []][rng.integers(10)]
    return [
        lambda: tf.stack([first, *rest]),
        lambda: tf.concat([[first], rest], 0) if rest else tf.stack([first]),
        lambda: tf.cast(tf.stack([tf.cast(first, tf.int64), *rest]), tf.int32),
    ][rng.integers(3)]()


def random_graph(rng):
    """A ConcreteFunction; what TensorFlow refuses while it traces is drawn again."""
    while True:

        @tf.function(
            autograph=False,
            input_signature=[tf.TensorSpec((None, 6, 4), name="x"), tf.TensorSpec((None,), tf.int32, name="n")],
        )
        def serve(x, n):
            seen = [x]
            for _ in range(rng.integers(1, 6)):
                seen.append(changed(rng, seen[-1], n))
            return tf.reshape(seen[-1], shape(rng, seen[-1], seen[:-1])), seen[-1]

        with contextlib.suppress(ValueError):
            return serve.get_concrete_function()


def test_random_graphs_answer_the_same():
    rng, written = np.random.default_rng(0), 0
    for _ in range(GRAPHS):
        function = random_graph(rng)
        graph_def = function.graph.as_graph_def()
        written += len(flattened.rewrite(graph_def)) > 0
        rewritten = imported(graph_def, [one.name for one in function.outputs])
        for batch in (0, 1, 2, 3, 6):
            x, n = (
                tf.constant(rng.normal(size=(batch, 6, 4)).astype("f4")),
                tf.constant(rng.integers(0, 4, batch), tf.int32),
            )
            expected, refused = outcome(function, x, n)
            given, refuses = outcome(rewritten, x, n)
            # A size of no rows can be inferred now.
            assert bool(refuses) == bool(refused) or (not refuses and "cannot infer the missing" in refused), (
                refused,
                refuses,
            )
            assert refused or np.array_equal(expected, given)
    assert written > GRAPHS / 10


def imported(graph_def, outputs):
    return tf.compat.v1.wrap_function(
        lambda x, n: tf.import_graph_def(graph_def, input_map={"x:0": x, "n:0": n}, return_elements=outputs),
        [tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)],
    )


def outcome(function, x, n):
    """(what it answers, "") or (None, the error)."""
    try:
        return function(x, n)[0].numpy(), ""
    except tf.errors.InvalidArgumentError as error:
        return None, str(error)


def test_sizes_are_equal_only_where_they_are():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, None, 4), "x")
        other = tf.compat.v1.placeholder(tf.float32, (None, None, 4), "other")
        found = {
            "same": tf.nn.relu(x * 2.0 + 1.0),
            "plane": tf.reduce_mean(x, 2),
            "turned": tf.transpose(x, (1, 0, 2)),
            "sliced": x[1:],
            "reversed": x[::-1],
            "with a new axis": x[None, :, :, 0],
            "of another": x * other,
            "product": x * tf.nn.relu(x),
            "compared": x > tf.zeros_like(x),
            "columns": x[:, 1:],
            "plane of columns": x[..., 0],
            "labels": tf.einsum("abc,cd->abd", x, tf.zeros((4, 3))),
            "turned labels": tf.einsum("abc,cd->bad", x, tf.zeros((4, 3))),
            "by a matrix": tf.raw_ops.BatchMatMulV2(x=x, y=tf.zeros((1, 4, 3))),
            "by a matrix of fewer axes": tf.raw_ops.BatchMatMulV2(x=x, y=tf.zeros((4, 3))),
            "by a turned one": tf.raw_ops.BatchMatMulV2(x=x, y=tf.zeros((3, 4)), adj_y=True),
            "by those of another": tf.raw_ops.BatchMatMulV2(x=x, y=other, adj_y=True),
        }
        names = {key: one.name for key, one in found.items()}
    known = inferred.shapes(graph.as_graph_def())
    own = dimensions.of(known.get_tensor_by_name("x:0"))
    sizes = {key: dimensions.of(known.get_tensor_by_name(name)) for key, name in names.items()}
    assert sizes["same"] == own and sizes["plane"][0] == own[0] and own[2] == 4
    assert not {sizes[key][0] for key in ("turned", "sliced", "reversed", "with a new axis", "of another")} & set(own)
    assert sizes["product"] == sizes["compared"] == own
    assert sizes["columns"][0] == sizes["plane of columns"][0] == own[0] != sizes["columns"][1]
    for key in ("by a matrix", "by a matrix of fewer axes", "by a turned one"):
        assert sizes[key] == [*own[:2], 3]
    # Which of two axes is repeated is not known.
    assert sizes["by those of another"][0] not in own and sizes["by those of another"][1] == own[1]
    assert sizes["labels"][:2] == sizes["turned labels"][1::-1] == own[:2]
