"""Grouped convolutions written otherwise: the same numbers, and nothing left that TF-TRT cannot build."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tftrt_tools.base import tf_private
from tftrt_tools.models.savedmodel.job import grouped

ROOM = 2**30


def convolution(
    channels, groups, results, *, size=3, strides=(1, 1), dilations=(1, 1), padding="SAME", constant=True, seed=0
):
    """A frozen graph x -> Conv2D of groups -> y, and what it computes, group by group."""
    rng = np.random.default_rng(seed)
    filters = rng.normal(size=(size, size, channels // groups, results)).astype("f4")
    explicit = [0, 0, *padding, 0, 0] if isinstance(padding, tuple) else []

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 9, 8, channels)), tf.TensorSpec(filters.shape)])
    def body(x, given):
        weights = tf.identity(tf.constant(filters, name="filters"), name="read") if constant else given
        return tf.raw_ops.Conv2D(
            input=x,
            filter=weights,
            strides=[1, *strides, 1],
            padding="EXPLICIT" if explicit else padding,
            explicit_paddings=explicit,
            dilations=[1, *dilations, 1],
            name="conv",
        )

    def expected(x):
        parts = [
            tf.nn.conv2d(
                part,
                one,
                strides,
                [[0, 0], padding[:2], padding[2:], [0, 0]] if explicit else padding,
                dilations=dilations,
            )
            for part, one in zip(np.split(x, groups, -1), np.split(filters, groups, -1), strict=True)
        ]
        return np.concatenate(parts, -1)

    return (
        body.get_concrete_function().graph.as_graph_def(),
        expected,
        rng.normal(size=(2, 9, 8, channels)).astype("f4"),
    )


def run(graph_def, x):
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        tf.import_graph_def(graph_def, name="")
        return session.run("conv:0", {"x:0": x})


def node(graph_def, name="conv"):
    return next(one for one in graph_def.node if one.name == name)


@given(
    groups=st.integers(2, 5),
    read=st.integers(1, 3),
    per_group=st.integers(1, 3),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dilations=st.sampled_from([(1, 1), (2, 2), (1, 2)]),
    padding=st.sampled_from(["SAME", "VALID", (1, 2, 0, 1)]),
)
def test_what_is_written_computes_the_same(groups, read, per_group, strides, dilations, padding):
    graph_def, expected, x = convolution(
        groups * read, groups, groups * per_group, strides=strides, dilations=dilations, padding=padding
    )
    [found] = grouped.rewrite(graph_def, ROOM)
    assert (found.name, found.type, found.groups, found.written) == ("conv", "Conv2D", groups, node(graph_def).op)
    assert (found.written == "DepthwiseConv2dNative") == (
        read == 1 and strides[0] == strides[1] and dilations == (1, 1)
    )
    assert found.added_bytes == (0 if found.written != "Conv2D" else 4 * 9 * read * (groups - 1) * groups * per_group)
    np.testing.assert_allclose(run(graph_def, x), expected(x), rtol=1e-4, atol=1e-5)


def test_a_convolution_of_one_group_is_left_alone():
    graph_def, _, _ = convolution(6, 1, 4)
    before = graph_def.SerializeToString(deterministic=True)
    assert grouped.rewrite(graph_def, ROOM) == ()
    assert graph_def.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("options", "room"), [({"constant": False}, ROOM), ({}, 4 * 9 * 2 * 2 * 6 - 1)], ids=["no constant", "no room"]
)
def test_one_that_cannot_be_written_is_told_and_left_alone(options, room):
    graph_def, _, _ = convolution(6, 3, 6, **options)
    before = graph_def.SerializeToString(deterministic=True)
    [found] = grouped.rewrite(graph_def, room)
    assert (found.groups, found.written, found.added_bytes) == (3, "", 0)
    assert graph_def.SerializeToString(deterministic=True) == before


def test_one_that_is_to_stay_is_not_told_of():
    graph_def, _, _ = convolution(6, 3, 6)
    assert grouped.rewrite(graph_def, ROOM, {"conv"}) == ()


def test_depthwise_nodes_keep_only_attributes_that_their_type_has():
    graph_def, _, _ = convolution(4, 4, 4)
    grouped.rewrite(graph_def, ROOM)
    known = {one.name for one in tf_private.op_def("DepthwiseConv2dNative").attr}
    assert {name for name in node(graph_def).attr if not name.startswith("_")} <= known
