"""SelectV2 of pictures with operands of fewer dimensions: the same answers, and TensorFlow's layout optimizer takes them."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import compared, odd_values, prepared, save
from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import select_ranks

MASK = np.arange(24).reshape(4, 3, 2) % 3 > 0
KINDS = {
    "a number": lambda x: tf.where(x > 0.5, x, 0.25),
    "numbers on both sides": lambda x: tf.where(x > 0.5, 1.0, 0.25),
    "a channel each": lambda x: tf.where(x > 0.5, tf.constant([1.0, 2.0]), x),
    "a constant condition": lambda x: tf.where(MASK, x, 3.0 * x),
    "a picture for all": lambda x: tf.where(x > 0.5, x, x[0] * 2.0),
    "a computed condition": lambda x: tf.where(x[0] > 0.5, x, -x),
}
LEFT = {
    "the same ranks": (lambda x: tf.where(x > 0.5, x, -x), (None, 4, 3, 2)),
    "rows": (lambda x: tf.where(x > 0.5, x, 0.5), (None, 4)),
    "one number that is computed": (lambda x: tf.where(x > 0.5, x, tf.reduce_max(x)), (None, 4, 3, 2)),
    "an unknown rank": (lambda x: tf.where(x > 0.5, x, 0.5), None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_same_bit_for_bit(kind):
    rng = np.random.default_rng(0)
    feeds = [[odd_values(rng, (batch, 4, 3, 2))] for batch in (1, 5)]
    written, answered = compared(KINDS[kind], [(None, 4, 3, 2)], select_ranks.rewrite, *feeds)
    assert len(written) == 1
    for expected, found in answered:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay(kind):
    body, shape = LEFT[kind]
    written, _ = compared(body, [shape], select_ranks.rewrite)
    assert not written


@pytest.mark.parametrize("kind", [*KINDS, "one number that is computed"])
def test_the_layout_optimizer_takes_it_between_convolutions(kind, tmp_path):
    filters = np.random.default_rng(0).normal(size=(3, 3, 2, 2)).astype("f4")
    body = KINDS.get(kind) or LEFT[kind][0]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((2, 4, 3, 2), name="x")])
    def serve(x):
        x = body(tf.nn.conv2d(x, filters, 1, "SAME"))
        return {"y": tf.nn.relu(tf.nn.conv2d(x, filters, 1, "SAME"))}

    frozen = prepared(save(serve, tmp_path / "m"), use_dynamic_shape=True)
    fetched = [one.split(":")[0] for one in frozen.outputs]
    moved = tf_private.optimized_as_on_gpu(frozen.graph_def, "layout", fetched)
    # Where it fails, the graph stays as it was, and nothing is raised.
    assert any("LayoutOptimizer" in node.name for node in moved.node) == (kind in KINDS)


def test_without_the_rewrite_the_layout_optimizer_fails_and_the_graph_stays():
    filters = np.ones((3, 3, 2, 2), "f4")
    with tf.Graph().as_default() as graph:
        x = tf.nn.conv2d(tf.compat.v1.placeholder(tf.float32, (2, 4, 3, 2), "x"), filters, 1, "SAME")
        tf.nn.conv2d(tf.where(x > 0.5, x, 0.25), filters, 1, "SAME", name="y")
    before = graph.as_graph_def()
    after = tf_private.optimized_as_on_gpu(before, "layout", ["y"])
    assert [(node.name, node.op) for node in after.node] == [(node.name, node.op) for node in before.node]
    select_ranks.rewrite(before)
    assert len(tf_private.optimized_as_on_gpu(before, "layout", ["y"]).node) > len(before.node)
