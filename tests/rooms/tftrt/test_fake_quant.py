"""Models as tensorflow-model-optimization writes them: FakeQuantWithMinMaxVars around activations, …PerChannel around weights.

A model that its 0.7.5 made (Keras 2.14, convolutions, depthwise, batch normalisation, dense) has these ops in these places, and became one
INT8 engine as well (2026-11-23).
"""

import numpy as np
import pytest
import tensorflow as tf

from tests import quantized
from tests.prepared_models import answers, prepared
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel import preparation
from tftrt_tools.models.savedmodel.job import fake_quant
from tftrt_tools.tftrt.conversion.job import graph_pass, prepare
from tftrt_tools.tftrt.conversion.settings import Settings

V2, _, _, VARS, _, CHANNELS = quantized.KINDS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("aware") / "model"
    quantized.build(path, VARS, CHANNELS)
    return path


def images(seed=0):
    return np.random.default_rng(seed).normal(size=(3, 8, 8, 3)).astype("f4")


def passed(path, **settings):
    root = tf.saved_model.load(str(path))
    return prepare.passed("serving_default", root.signatures["serving_default"], Settings(**settings))


def test_on_weights_they_are_computed_and_the_answers_stay(model):
    frozen = prepared(model)
    done = frozen.preparation
    assert [name.rsplit("/", 1)[-1] for name in done.folded] == [
        "quant_w0",
        "quant_w1",
        "quant_w2",
    ] and done.unquantized == ()
    assert (
        preparation.Preparation.from_dict(done.to_dict()) == done
        and "3 quantizations of constant weights" in _output.prepared(done)[0]
    )
    [expected] = [one.numpy() for one in frozen.original(image=tf.constant(images())).values()]
    np.testing.assert_array_equal(answers(frozen, images())[0], expected)


def test_int8_is_one_engine_with_the_ranges_of_the_model(model):
    _, result = passed(model, precision_mode="INT8", use_dynamic_shape=True)
    assert [engine.precision for engine in result.engines] == ["INT8"] and result.coverage == 1.0
    assert {node.kind for node in result.quantization.nodes} == {"dynamic range"} and result.quantization.problems == ()


def test_in_another_precision_activations_are_rounded_as_before_unless_the_user_does_without(model):
    _, result = passed(model, precision_mode="FP16", use_dynamic_shape=True)
    assert (
        VARS in {one.op for one in result.left_out} and len(result.engines) > 1 and result.quantization.problems == ()
    )
    frozen, result = passed(model, precision_mode="FP16", use_dynamic_shape=True, allow_quantization_changes=True)
    assert len(frozen.preparation.unquantized) == 4 and "left out" in _output.prepared(frozen.preparation)[1]
    assert (len(result.engines), result.coverage) == (1, 1.0)
    [expected] = [one.numpy() for one in frozen.original(image=tf.constant(images())).values()]
    error = answers(frozen, images())[0] - expected
    assert 0 < np.sqrt(np.mean(error**2)) < 0.2 * np.sqrt(np.mean(expected**2))
    # In INT8 they are ranges, whatever is allowed.
    assert prepared(model, precision_mode="INT8", allow_quantization_changes=True).preparation.unquantized == ()


def test_what_is_kept_and_what_explicit_quantization_needs_stays(model, tmp_path):
    kept = prepared(model, keep_native_nodes=".*/quant_w0").preparation.folded
    assert [name.rsplit("/", 1)[-1] for name in kept] == ["quant_w1", "quant_w2"]
    quantized.build(tmp_path / "model", V2, CHANNELS)
    root = tf.saved_model.load(str(tmp_path / "model"))
    graph_def = graph_pass.freeze("serving_default", root.signatures["serving_default"]).graph_def
    assert fake_quant.fold(graph_def) == ()
