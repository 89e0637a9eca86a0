"""Quantization-aware models through TF-TRT's real pass: which node does what, and what TF-TRT does otherwise than asked."""

import functools
import tempfile

import pytest

from tests import quantized

V2, V3, V4, VARS, ARGS, CHANNELS = quantized.KINDS


@functools.cache
def frozen(activations, weights=None):
    """graph_pass.Frozen of one of the models of tests.quantized."""
    import tensorflow as tf

    from tftrt_tools.tftrt.conversion.job import graph_pass

    with tempfile.TemporaryDirectory() as folder:
        quantized.build(folder, activations, weights)
        loaded = tf.saved_model.load(folder)  # its variables have to outlive the freezing
        return graph_pass.freeze("serving_default", loaded.signatures["serving_default"])


def function(call, shape=(None, 8, 8, 8)):
    """graph_pass.Frozen of a Python function of one float32 tensor."""
    import tensorflow as tf

    from tftrt_tools.tftrt.conversion.job import graph_pass

    return graph_pass.freeze("f", tf.function(call).get_concrete_function(tf.TensorSpec(shape, tf.float32, name="x")))


def converted(model, dynamic, precision_mode="INT8", use_calibration=False):
    """The GraphDef that the pass makes of a graph_pass.Frozen, at TF-TRT's own precisions."""
    from tftrt_tools.base import tf_private

    converter = tf_private.GraphPass(
        precision_mode=precision_mode,
        use_calibration=use_calibration,
        use_dynamic_shape=dynamic,
        dynamic_shape_profile_strategy="Optimal" if dynamic else None,
    )
    return converter.run(tf_private.meta_graph(model.graph_def, [*model.inputs, *model.outputs]))


def stated(model, requested="INT8", dynamic=True):
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    after = converted(model, dynamic, **quantization_aware.pass_parameters(model.graph_def, requested))
    return quantization_aware.statements(model.graph_def, after, requested, dynamic=dynamic)


def short(name):
    return name.rsplit("/", 1)[-1]


def kinds(said):
    return {short(node.name): node.kind for node in said.nodes}


def names(problems):
    return [short(problem.name) for problem in problems]


def engine_ops(graph_def):
    from tftrt_tools.models.savedmodel.job import graph

    return graph.engine_ops(graph_def)


@pytest.mark.parametrize("kind", quantized.KINDS)
def test_every_kind_of_node_is_found_with_its_range_and_its_role(kind):
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    found = {short(one.name): one for one in quantization_aware.detect(frozen(kind).graph_def)}
    assert set(found) == {f"quant_{one}" for one in ("a0", "a1", "a2", "a3", "w0", "w1", "w2")}
    assert {one.op for one in found.values()} == {kind}
    assert {name for name, one in found.items() if one.weights} == {"quant_w0", "quant_w1", "quant_w2"}
    channels = 3 if kind == CHANNELS else 1
    assert found["quant_a0"].low == (-4.0,) * channels and found["quant_a0"].high == (4.0,) * channels


def test_a_plain_model_has_no_such_node_and_no_problem():
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    assert quantization_aware.detect(frozen("").graph_def) == ()
    said = stated(frozen(""), "FP16")
    assert not said.aware and said.problems == ()


@pytest.mark.parametrize(
    ("activations", "precision", "expected"),
    [
        (V2, "INT8", "INT8"),
        (VARS, "INT8", "INT8"),
        (V4, "INT8", "INT8"),
        ("", "INT8", "FP32"),
        (V2, "FP16", "FP32"),
        (VARS, "FP32", "FP32"),
    ],
)
def test_the_pass_runs_as_int8_for_quantization_aware_models_only_and_never_calibrates(
    activations, precision, expected
):
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    parameters = quantization_aware.pass_parameters(frozen(activations).graph_def, precision)
    assert parameters == {"precision_mode": expected, "use_calibration": False}


@pytest.mark.parametrize("precision", ["FP32", "FP16", "INT8"])
def test_tf_trt_makes_int8_of_v2_whatever_was_asked_for(precision):
    """What the statements rest on, as the pass itself shows it."""
    (engine,) = engine_ops(converted(frozen(V2), True, precision))
    assert (engine.precision, engine.explicit_precision, engine.use_calibration) == ("INT8", True, False)
    assert (engine.ops["Conv2D"], engine.ops["MatMul"], engine.ops[V2]) == (2, 1, 7)


@pytest.mark.parametrize("kind", [V3, VARS, ARGS])
@pytest.mark.parametrize("dynamic", [True, False])
def test_tf_trt_takes_ranges_of_activations_in_int8_without_calibration(kind, dynamic):
    (engine,) = engine_ops(converted(frozen(kind, ""), dynamic))
    assert (engine.precision, engine.explicit_precision, engine.use_calibration) == ("INT8", False, False)
    assert (engine.ops["Conv2D"], engine.ops["MatMul"], engine.ops[kind]) == (2, 1, 4)


def test_tf_trt_makes_fp16_of_int8_without_nodes_and_without_calibration():
    assert [engine.precision for engine in engine_ops(converted(frozen(""), True))] == ["FP16"]


def test_v2_around_activations_and_weights_becomes_explicit_int8_with_dynamic_shapes():
    said = stated(frozen(V2))
    assert said.explicit and said.problems == ()
    effect = {name for name, kind in kinds(said).items() if kind == "explicit INT8"}
    assert effect == {"quant_a0", "quant_a1", "quant_a2", "quant_w0", "quant_w1"}
    assert {kind for name, kind in kinds(said).items() if name not in effect} == {"no effect"}
    by_name = {short(node.name): node.text for node in said.nodes}
    assert "range -4 to 4" in by_name["quant_a0"] and "2 dimensions" in by_name["quant_a3"]


def test_v2_in_implicit_batch_mode_loses_every_layer_with_quantized_weights():
    said = stated(frozen(V2), dynamic=False)
    assert names(said.lost) == ["conv1", "conv2", "dense"]
    assert all("quant_w" in problem.text and "--use_dynamic_shape" in problem.mend for problem in said.lost)


def test_v2_around_activations_only_loses_the_convolutions():
    said = stated(frozen(V2, ""))
    assert names(said.lost) == ["conv1", "conv2"]
    assert all("plain constants" in problem.text for problem in said.lost)


@pytest.mark.parametrize("precision", ["FP32", "FP16"])
def test_v2_asked_for_another_precision_names_each_engine_that_becomes_int8(precision):
    said = stated(frozen(V2), precision)
    assert len(said.upgraded) == 1 and said.upgraded[0].name.startswith("TRTEngineOp")
    assert precision in said.upgraded[0].text
    assert said.downgraded == said.lost == ()


def test_an_engine_with_nodes_that_is_marked_fp16_by_hand_is_said_to_be_unbuildable():
    from tftrt_tools.models.savedmodel.job import graph
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    model = frozen(V2)
    after = converted(model, True)
    graph.set_on_engines(after, precision_mode="FP16")
    said = quantization_aware.statements(model.graph_def, after, "FP16", dynamic=True)
    assert ["is marked FP16" in problem.text for problem in said.unbuildable] == [True]


@pytest.mark.parametrize("kind", [V3, VARS, ARGS])
@pytest.mark.parametrize("dynamic", [True, False])
def test_ranges_of_activations_only_convert_without_a_problem(kind, dynamic):
    said = stated(frozen(kind, ""), dynamic=dynamic)
    assert not said.explicit and said.problems == ()
    assert set(kinds(said).values()) == {"dynamic range"}
    assert "within -6 and 6" in said.nodes[-1].text


@pytest.mark.parametrize("kind", [V3, VARS, ARGS])
def test_convolutions_with_fake_quantized_weights_are_lost_and_named(kind):
    said = stated(frozen(kind))
    assert names(said.lost) == ["conv1", "conv2"]
    assert all(kind in problem.text for problem in said.lost)


@pytest.mark.parametrize("kind", [V3, VARS, ARGS])
def test_constants_that_are_fake_quantized_inside_an_engine_are_said_to_be_unbuildable(kind):
    said = stated(frozen(kind))
    inside = {short(node.name) for node in said.nodes if node.weights and node.kind == "dynamic range"}
    assert "quant_w2" in inside
    assert set(names(said.unbuildable)) == inside
    assert all(problem.mend == f"--keep_native_nodes={problem.name}" for problem in said.unbuildable)


@pytest.mark.parametrize("kind", [V3, VARS, ARGS])
def test_fake_quantization_stays_native_unless_int8_is_asked_for(kind):
    said = stated(frozen(kind), "FP16")
    assert set(kinds(said).values()) == {"stays native"}
    assert {"conv1", "conv2"} <= set(names(said.lost))
    assert said.upgraded == ()
    assert all("only if INT8" in node.text for node in said.nodes)


@pytest.mark.parametrize("kind", [V4, CHANNELS])
def test_nodes_without_a_converter_stay_native_and_int8_becomes_fp16(kind):
    said = stated(frozen(kind, ""))
    assert set(kinds(said).values()) == {"stays native"}
    assert said.downgraded and all("is FP16 although INT8 was asked for" in problem.text for problem in said.downgraded)
    assert said.lost == ()
    with_weights = stated(frozen(kind))
    assert {"conv1", "conv2"} <= set(names(with_weights.lost))


def test_a_convolution_in_an_explicit_engine_whose_weights_are_quantized_outside_is_no_int8():
    said = stated(frozen(V2, CHANNELS))
    assert names(said.downgraded) == ["conv1", "conv2"]
    assert all(CHANNELS in problem.text for problem in said.downgraded)
    assert said.lost == ()


def test_fake_quantization_beside_v2_stays_native():
    said = stated(frozen(VARS, V2))
    assert {kind for name, kind in kinds(said).items() if "_a" in name} == {"stays native"}
    assert "also has QuantizeAndDequantizeV2" in said.nodes[0].text


def _convolution(**activation):
    import numpy as np
    import tensorflow as tf

    kernel = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype("float32")

    def call(x):
        arguments = {
            "input": x,
            "input_min": -2.0,
            "input_max": 2.0,
            "range_given": True,
            "name": "quant_a",
            **activation,
        }
        rounded = tf.raw_ops.QuantizeAndDequantizeV2(**arguments)
        return tf.nn.relu(tf.nn.conv2d(rounded, quantized.node(V2, tf.constant(kernel), 3.0, "quant_w"), 1, "SAME"))

    return function(call)


@pytest.mark.parametrize(
    ("activation", "text"),
    [
        (
            {"axis": 3, "input_min": [-2.0] * 7 + [-9.0], "input_max": [2.0] * 7 + [9.0]},
            "has 8 ranges, one for each channel",
        ),
        ({"range_given": False}, "takes its range from the data"),
        ({"num_bits": 4}, "has 4 bits"),
    ],
)
def test_what_explicit_mode_ignores_of_a_node_is_said(activation, text):
    said = stated(_convolution(**activation))
    assert names(said.altered) == ["quant_a"]
    assert text in said.altered[0].text
    assert stated(_convolution()).altered == ()


def test_equal_ranges_of_all_channels_are_one_range():
    assert stated(_convolution(axis=3, input_min=[-2.0] * 8, input_max=[2.0] * 8)).altered == ()


def test_an_uneven_range_is_stated_with_the_even_one_that_replaces_it():
    import tensorflow as tf

    def call(x):
        return tf.nn.relu(tf.quantization.fake_quant_with_min_max_vars(tf.nn.relu(x), 0.0, 6.0)) * 2.0

    (node,) = stated(function(call)).nodes
    assert "within -6 and 6, where the model says 0 to 6" in node.text


@pytest.mark.parametrize("layer", ["depthwise", "transposed"])
def test_other_convolutions_are_lost_by_the_same_rule(layer):
    import numpy as np
    import tensorflow as tf

    depthwise = np.ones((3, 3, 8, 1), np.float32)
    kernel = np.ones((3, 3, 8, 8), np.float32)

    def model(kind):
        def call(x):
            x = quantized.node(kind, x, 2.0, "quant_a")
            if layer == "depthwise":
                y = tf.nn.depthwise_conv2d(
                    x, quantized.node(kind, tf.constant(depthwise), 1.0, "quant_w"), [1, 1, 1, 1], "SAME", name="conv"
                )
            else:
                y = tf.nn.conv2d_transpose(
                    x, quantized.node(kind, tf.constant(kernel), 1.0, "quant_w"), [2, 8, 8, 8], 1, "SAME", name="conv"
                )
            return tf.nn.relu(y)

        return function(call, (2, 8, 8, 8))

    assert names(stated(model(VARS)).lost) == ["conv"]
    assert stated(model(V2)).lost == ()


def test_an_int8_engine_in_which_no_node_takes_effect_is_named():
    """TF-TRT marks it INT8; without a range TensorRT has nothing to compute in INT8 with."""
    import numpy as np
    import tensorflow as tf

    kernel = np.ones((3, 3, 8, 8), np.float32)

    def call(x):
        x = tf.nn.relu(tf.nn.conv2d(quantized.node(VARS, x, 2.0, "quant_a"), kernel, 1, "SAME"))
        x = tf.math.lgamma(x)  # no converter: splits the graph
        return tf.nn.relu(tf.nn.conv2d(tf.nn.relu(x), kernel, 1, "SAME"))

    said = stated(function(call))
    assert len(said.downgraded) == 1
    assert "no quantization node takes effect in it" in said.downgraded[0].text


def test_what_the_user_keeps_native_is_no_loss():
    from tftrt_tools.tftrt.conversion import pass_log
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    model = frozen(VARS)
    after = converted(model, True)
    conv1 = next(node.name for node in model.graph_def.node if node.name.endswith("conv1"))
    kept = (pass_log.LeftOut(conv1, "Conv2D", "kept native by --keep_native_nodes"),)
    said = quantization_aware.statements(model.graph_def, after, "INT8", dynamic=True, left_out=kept)
    assert names(said.lost) == ["conv2"]


def test_engines_of_different_precisions_are_judged_by_what_was_asked_of_each():
    from tftrt_tools.tftrt.conversion.job import quantization_aware

    model = frozen("")
    after = converted(model, True)
    (engine,) = engine_ops(after)
    for asked, downgraded in (("FP16", 0), ("INT8", 1)):
        said = quantization_aware.statements(model.graph_def, after, {engine.name: asked}, dynamic=True)
        assert len(said.downgraded) == downgraded


def test_statements_survive_json():
    import json

    from tftrt_tools.tftrt.conversion.quantization import Quantization

    for activations, weights in ((V2, None), (VARS, None), (V2, CHANNELS), ("", None)):
        said = stated(frozen(activations, weights), "FP16")
        assert Quantization.from_dict(json.loads(json.dumps(said.to_dict()))) == said


def test_the_statements_as_data_need_no_tensorflow():
    import subprocess
    import sys

    code = "import sys, tftrt_tools.tftrt.conversion.quantization\nprint('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("activations", "weights", "asked", "expected"),
    [
        (V2, None, "INT8", "INT8"),
        (V2, None, "FP16", "INT8"),
        (VARS, "", "INT8", "INT8"),
        (VARS, "", "FP16", "FP16"),
        ("", None, "FP16", "FP16"),
        (V4, "", "INT8", "FP16"),
    ],
)
def test_the_graph_pass_leaves_the_precision_to_the_nodes_and_says_where_that_is_not_what_was_asked(
    activations, weights, asked, expected
):
    from tftrt_tools.tftrt.conversion import settings
    from tftrt_tools.tftrt.conversion.job import graph_pass

    passed = graph_pass.run(
        frozen(activations, weights), settings.Settings(precision_mode=asked, use_dynamic_shape=True)
    )
    assert {engine.precision for engine in passed.engines} == {expected}
    assert not any(engine.use_calibration for engine in passed.engines)
    assert bool(passed.quantization.upgraded or passed.quantization.downgraded) == (asked != expected)
