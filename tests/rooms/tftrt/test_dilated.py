"""Convolutions with dilations written as one op: the same numbers, for sizes that are known and for those that are not."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, original, prepared, save
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel import preparation
from tftrt_tools.models.savedmodel.job import dilated
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def model(shape, layer, *, after=None):
    """A function x -> y of `layer`, as TensorFlow writes it."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(shape, name="x")])
    def body(x):
        y = layer(x)
        return {"y": after(y) if after else y}

    return body


def frozen_graph(body):
    return body.get_concrete_function().graph.as_graph_def()


def run(graph_def, fetched, *inputs):
    """What the graph computes of each input x."""
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        tf.import_graph_def(graph_def, name="")
        return [session.run(fetched, {"x:0": x}) for x in inputs]


def weights(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def check(body, *shapes):
    """Rewritten, the graph has no rearrangement and the same answers for inputs of `shapes`. Returns: Dilated."""
    function = body.get_concrete_function()
    graph_def, fetched = function.graph.as_graph_def(), function.outputs[0].name
    [written] = dilated.rewrite(graph_def, frozenset([fetched.split(":")[0]]))
    dilated.lift_paddings(graph_def)
    used = {node.op for node in tf.compat.v1.graph_util.extract_sub_graph(graph_def, [fetched.split(":")[0]]).node}
    assert not used & {"SpaceToBatchND", "BatchToSpaceND"}
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=shape).astype("f4") for shape in shapes]
    for x, found in zip(inputs, run(graph_def, fetched, *inputs), strict=True):
        np.testing.assert_allclose(found, function(tf.constant(x))["y"].numpy(), rtol=1e-4, atol=1e-5)
    return written


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("opened", [False, True], ids=["known", "open"])
def test_what_is_written_computes_the_same(rank, opened):
    """Kernels, dilations and paddings, with sizes that divide by the dilation and others."""
    for size, rates, padding in itertools.product((1, 2, 3, 5), ((2, 2), (3, 2), (1, 4)), ("SAME", "VALID")):
        kernel, rates = ((size, 2)[:rank], rates[-rank:])
        filters = weights(*kernel, 4, 3)
        sizes = [(17, 13), (18, 12), (24, 24), (19, 9)]
        for one in sizes if not opened else sizes[:1]:
            shape = (None, *((None,) * rank if opened else one[:rank]), 4)
            body = model(
                shape, lambda x, f=filters, p=padding, r=rates: tf.nn.convolution(x, f, padding=p, dilations=list(r))
            )
            asked = [(2, *given[:rank], 4) for given in (sizes if opened else [one])]
            written = check(body, *asked)
            assert written.dilations == ((1, *rates) if rank == 1 else tuple(rates)) and written.type == "Conv2D"
            assert written.padding == padding or not any((length - 1) for length in kernel)


def test_depthwise_ones_get_zeros_in_their_filters():
    for rate, padding in itertools.product((2, 3), ("SAME", "VALID")):
        layer = lambda x, r=rate, p=padding: tf.nn.depthwise_conv2d(
            x, weights(3, 3, 4, 2), (1, 1, 1, 1), p, dilations=(r, r)
        )
        written = check(model((None, None, None, 4), layer), (2, 11, 14, 4), (1, 12, 12, 4))
        assert written.type == "DepthwiseConv2dNative" and written.added_bytes > 0


def test_depthwise_ones_whose_zeros_would_be_too_many_are_sums():
    for rate, size, padding in ((8, 40, "SAME"), (12, 31, "SAME"), (8, 21, "VALID")):
        layer = lambda x, r=rate, p=padding: tf.nn.depthwise_conv2d(
            x, weights(3, 3, 4, 1), (1, 1, 1, 1), p, dilations=(r, r)
        )
        written = check(model((None, size, size + 3, 4), layer), (2, size, size + 3, 4), (1, size, size + 3, 4))
        assert (written.type, written.dilations, written.added_bytes) == ("AddV2", (rate, rate), 0)
    # Sizes that are open, and filters of several results for each channel, stay as they are.
    for shape, results in (((None, None, 40, 4), 1), ((None, 40, 40, 4), 2)):
        layer = lambda x, n=results: tf.nn.depthwise_conv2d(
            x, weights(3, 3, 4, n), (1, 1, 1, 1), "SAME", dilations=(8, 8)
        )
        graph_def = frozen_graph(model(shape, layer))
        before = graph_def.SerializeToString(deterministic=True)
        assert dilated.rewrite(graph_def) == () and graph_def.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("opened", [False, True], ids=["known", "open"])
def test_those_of_three_dimensions_get_zeros(opened):
    for rates, padding in (((2, 2, 2), "SAME"), ((1, 2, 3), "SAME"), ((2, 2, 2), "VALID")):
        layer = lambda x, r=rates, p=padding: tf.nn.convolution(x, weights(3, 3, 3, 2, 4), padding=p, dilations=list(r))
        shape = (None, *(None,) * 3, 2) if opened else (None, 7, 8, 9, 2)
        asked = [(2, 7, 8, 9, 2), (1, 8, 8, 8, 2)] if opened else [(2, 7, 8, 9, 2)]
        written = check(model(shape, layer), *asked)
        assert (written.type, written.dilations, written.padding) == (
            "Conv3D",
            rates,
            padding,
        ) and written.added_bytes > 0
    many = model(
        (None, 12, 12, 12, 2),
        lambda x: tf.nn.convolution(x, weights(3, 3, 3, 2, 4), padding="SAME", dilations=[4, 4, 4]),
    )
    assert dilated.rewrite(frozen_graph(many)) == ()


def channels_last(graph_def):
    """The same graph with convolutions of the channels last, which a CPU can run, between transpositions."""
    result = type(graph_def)(versions=graph_def.versions)
    for node in graph_def.node:
        copy = result.node.add()
        copy.CopyFrom(node)
        if node.attr["data_format"].s != b"NCHW":
            continue
        copy.attr["data_format"].s = b"NHWC"
        for name in ("strides", "dilations"):
            sizes = list(node.attr[name].list.i)
            copy.attr[name].list.i[:] = [sizes[0], *sizes[2:], sizes[1]]
        copy.name += "/last"
        for name, source, order in (
            (f"{node.name}/data", node.input[0], [0, 2, 3, 1]),
            (node.name, copy.name, [0, 3, 1, 2]),
        ):
            axes = result.node.add(name=f"{name}/order", op="Const")
            axes.attr["dtype"].type = tf.int32.as_datatype_enum
            axes.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(order, np.int32)))
            turned = result.node.add(name=name, op="Transpose", input=[source, axes.name])
            turned.attr["T"].CopyFrom(node.attr["T"])
            turned.attr["Tperm"].type = tf.int32.as_datatype_enum
        copy.input[0] = f"{node.name}/data"
    return result


@pytest.mark.parametrize("opened", [False, True], ids=["known", "open"])
def test_those_with_channels_first_are_written_too(opened, tmp_path):
    def layer(x, kind, rates, padding):
        if kind == "Conv2D":
            return tf.nn.convolution(x, weights(3, 3, 4, 3), padding=padding, dilations=list(rates), data_format="NCHW")
        return tf.nn.depthwise_conv2d(
            x, weights(3, 3, 4, 1), (1, 1, 1, 1), padding, dilations=rates, data_format="NCHW"
        )

    for kind, rates, padding in (
        ("Conv2D", (2, 3), "SAME"),
        ("Conv2D", (2, 2), "VALID"),
        ("DepthwiseConv2dNative", (2, 2), "SAME"),
        *([] if opened else [("DepthwiseConv2dNative", (8, 8), "SAME")]),
    ):
        shape = (None, 4, None, None) if opened else (None, 4, 23, 20)
        body = model(shape, lambda x, k=kind, r=rates, p=padding: layer(x, k, r, p))
        function = body.get_concrete_function()
        before, fetched = function.graph.as_graph_def(), function.outputs[0].name
        after = function.graph.as_graph_def()
        [written] = dilated.rewrite(after, frozenset([fetched.split(":")[0]]))
        assert written.dilations == rates and written.type == (kind if rates != (8, 8) else "AddV2")
        inputs = [
            np.random.default_rng(1).normal(size=(2, 4, *size)).astype("f4")
            for size in ((23, 20), *(((18, 19),) if opened else ()))
        ]
        for found, wanted in zip(
            *(run(channels_last(graph_def), fetched, *inputs) for graph_def in (after, before)), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        path = save(
            model(
                shape,
                lambda x: tf.nn.relu(x),
                after=lambda y, k=kind, r=rates, p=padding: tf.nn.relu(layer(y, k, r, p)),
            ),
            tmp_path / f"{kind}{rates[1]}{padding}",
        )
        (engine,) = graph_pass.run(prepared(path, use_dynamic_shape=True), Settings(use_dynamic_shape=True)).engines
        assert engine.compute_ops > 2 and not {"SpaceToBatchND", "BatchToSpaceND"} & set(engine.ops)


@pytest.mark.parametrize(
    ("shape", "layer", "ops"),
    [
        (
            (None, 40, 40, 4),
            lambda x: tf.nn.depthwise_conv2d(x, weights(3, 3, 4, 1), (1, 1, 1, 1), "SAME", dilations=(8, 8)),
            {"Slice": 9, "Mul": 9},
        ),
        (
            (None, 8, 8, 8, 4),
            lambda x: tf.nn.convolution(x, weights(3, 3, 3, 4, 4), padding="SAME", dilations=[2, 2, 2]),
            {"Conv3D": 1},
        ),
    ],
)
def test_tf_trt_takes_them_into_one_engine(shape, layer, ops, tmp_path):
    path = save(model(shape, lambda x: tf.nn.relu(x), after=lambda y: tf.nn.relu(layer(y))), tmp_path / "model")
    frozen = prepared(path, use_dynamic_shape=True)
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    (engine,) = passed.engines
    assert passed.coverage == 1.0 and {op: engine.ops[op] for op in ops} == ops, passed.left_out
    # In implicit batch mode TF-TRT takes no Slice.
    assert [one.type for one in prepared(path, use_dynamic_shape=False).preparation.dilated] == [
        op for op in ops if op == "Conv3D"
    ]
    x = np.random.default_rng(1).normal(size=(2, *shape[1:])).astype("f4")
    np.testing.assert_allclose(answers(frozen, x)[0], original(frozen.original, x), rtol=1e-4, atol=1e-5)


def by_hand(x, *, paddings, crops, block=2, inside=lambda y: y, filters=None):
    spaced = tf.space_to_batch(x, [block, block], paddings)
    y = inside(tf.nn.conv2d(spaced, weights(3, 3, 4, 3) if filters is None else filters, 1, "VALID"))
    return tf.batch_to_space(y, [block, block], crops)


@pytest.mark.parametrize(
    ("paddings", "crops", "padding"),
    [
        ([[2, 3], [2, 2]], [[0, 1], [0, 0]], "SAME"),
        ([[3, 2], [2, 2]], [[1, 0], [0, 0]], "SAME"),
        ([[1, 0], [4, 0]], [[1, 0], [2, 0]], "VALID"),
        ([[4, 1], [0, 4]], [[0, 1], [0, 4]], "VALID"),
    ],
)
def test_paddings_and_crops_of_any_kind(paddings, crops, padding):
    written = check(model((None, 11, 12, 4), lambda x: by_hand(x, paddings=paddings, crops=crops)), (2, 11, 12, 4))
    assert written.padding == padding


def test_more_crops_than_paddings_are_left():
    graph_def = frozen_graph(
        model((None, 12, 12, 4), lambda x: by_hand(x, paddings=[[0, 0], [0, 0]], crops=[[1, 0], [0, 0]]))
    )
    assert dilated.rewrite(graph_def) == ()


def test_paddings_that_depend_on_the_size_are_left():
    def layer(x):
        height = tf.shape(x)[1]
        return by_hand(x, paddings=tf.stack([tf.stack([height % 2, 2 - height % 2]), [2, 2]]), crops=[[0, 0], [0, 0]])

    graph_def = frozen_graph(model((None, None, 12, 4), layer))
    assert dilated.rewrite(graph_def) == ()
    # In the other direction the sum does not depend on it, and the place does.
    grows = model(
        (None, None, 12, 4),
        lambda x: by_hand(x, paddings=tf.stack([tf.stack([tf.shape(x)[1], 0]), [2, 2]]), crops=[[0, 0], [0, 0]]),
    )
    assert dilated.rewrite(frozen_graph(grows)) == ()


def test_what_stands_between_stays_between():
    def inside(y):
        y = tf.nn.relu(tf.nn.bias_add(y, weights(3)))
        return tf.compat.v1.nn.fused_batch_norm(
            y, weights(3), weights(3), mean=weights(3), variance=np.abs(weights(3)), is_training=False
        )[0] * weights(1, 1, 1, 3)

    around = dict(paddings=[[2, 3], [2, 2]], crops=[[0, 1], [0, 0]])
    check(model((None, 11, 12, 4), lambda x: by_hand(x, **around, inside=inside)), (2, 11, 12, 4))
    # An average over places, or a number for each of them, does not.
    for other in (lambda y: y - tf.reduce_mean(y, [1, 2], keepdims=True), lambda y: y + weights(1, 6, 6, 3)):
        graph_def = frozen_graph(model((None, 11, 12, 4), lambda x, other=other: by_hand(x, **around, inside=other)))
        assert dilated.rewrite(graph_def) == ()


def test_a_convolution_that_others_read_too_is_left():
    kept = []
    layer = lambda x: by_hand(
        x, paddings=[[2, 3], [2, 2]], crops=[[0, 1], [0, 0]], inside=lambda y: kept.append(y) or y
    )
    graph_def = frozen_graph(
        model((None, 11, 12, 4), layer, after=lambda y: (y, tf.reduce_sum(kept[-1]))[0] + tf.reduce_sum(kept[-1]))
    )
    assert dilated.rewrite(graph_def) == ()
    # So is one that is kept native, by any of its nodes.
    for op in ("SpaceToBatchND", "Conv2D", "BatchToSpaceND"):
        graph_def = frozen_graph(
            model((None, 11, 12, 4), lambda x: by_hand(x, paddings=[[2, 3], [2, 2]], crops=[[0, 1], [0, 0]]))
        )
        name = next(node.name for node in graph_def.node if node.op == op)
        assert dilated.rewrite(graph_def, kept=frozenset([name])) == ()


def network(kind, size):
    layers, activation = tf.keras.layers, dict(activation="relu")
    if kind == "tcn":
        x = inputs = tf.keras.Input((size, 8), name="x")
        for rate in (1, 2, 4):
            y = layers.Conv1D(8, 3, dilation_rate=rate, padding="causal", **activation)(x)
            x = layers.add([layers.Conv1D(8, 1)(x), layers.BatchNormalization()(y)])
        return tf.keras.Model(inputs, layers.Conv1D(3, 1)(x))
    x = inputs = tf.keras.Input((size, size, 3), name="x")
    skip = x = layers.Conv2D(8, 3, padding="same", **activation)(x)
    x = layers.MaxPooling2D()(x)
    for rate in (1, 2, 4):
        x = layers.Conv2D(8, 3, padding="same", dilation_rate=rate, **activation)(x)
    x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=2)(x)
    x = layers.concatenate([layers.UpSampling2D()(x), skip])
    return tf.keras.Model(inputs, layers.Conv2D(2, 1)(x))


@pytest.mark.parametrize(
    ("kind", "size", "shape", "share"),
    [
        ("tcn", 24, (2, 24, 8), 1.0),
        ("tcn", None, (2, 23, 8), 1.0),
        ("unet", 16, (2, 16, 16, 3), 1.0),
        ("unet", None, (1, 18, 14, 3), 0.9),
    ],
)
def test_networks_of_keras_go_into_one_engine_and_answer_the_same(tmp_path, kind, size, shape, share):
    tf.keras.utils.set_random_seed(0)
    path = tmp_path / "model"
    tf.saved_model.save(network(kind, size), str(path))
    frozen = prepared(path, use_dynamic_shape=True)
    done = frozen.preparation
    assert len(done.dilated) == (2 if kind == "tcn" else 3) and len(done.paddings) == (3 if kind == "tcn" else 0)
    assert preparation.Preparation.from_dict(done.to_dict()) == done
    assert f"{len(done.dilated)} convolutions with dilations" in _output.prepared(done)[0]
    old = {name: value for name, value in done.to_dict().items() if name in ("opened", "convolutions")}
    assert preparation.Preparation.from_dict(old) == preparation.Preparation()
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert (len(passed.engines), passed.coverage >= share) == (1, True), (passed.coverage, passed.left_out)
    x = np.random.default_rng(1).normal(size=shape).astype("f4")
    np.testing.assert_allclose(answers(frozen, x)[0], original(frozen.original, x), rtol=1e-4, atol=1e-5)


def test_one_that_is_kept_native_stays_as_it_was(tmp_path):
    path = save(
        model((None, 24, 8), lambda x: tf.nn.convolution(x, weights(3, 8, 8), padding="SAME", dilations=[2])),
        tmp_path / "model",
    )
    assert prepared(path, keep_native_nodes=".*/SpaceToBatchND").preparation.dilated == ()
