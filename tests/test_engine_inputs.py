"""What reaches the engine ops for given calls; a call that the model refuses."""

import pytest
import tensorflow as tf

from tftrt_tools import errors
from tftrt_tools.conversion import engine_inputs, graph_pass
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.savedmodel import loading


def of_calls(path, call):
    root = tf.saved_model.load(str(path))
    function = root.signatures["serving_default"]
    frozen = graph_pass.freeze("serving_default", function)
    graph_def = graph_pass.run(frozen, Settings(use_dynamic_shape=True)).graph_def
    return engine_inputs.of_calls(frozen, graph_def, loading.input_specs(function), [call])


def test_shapes_come_from_inference_or_from_running_the_graph(zoo_model):
    found = of_calls(zoo_model("bert_encoder"), {"input_ids": (4, 16), "input_mask": (4, 16)})
    assert sorted(tuple(fed.shape for fed in call) for (call,) in found.values()) == [
        ((4, 16),), ((4, 16), (16, 64), (4, 1, 1, 16))]


def test_a_call_that_the_model_refuses_is_a_clear_error(zoo_model):
    """Shape inference finds it, before TensorFlow runs anything."""
    with pytest.raises(errors.TftrtError) as raised:
        of_calls(zoo_model("bert_encoder"), {"input_ids": (1, 16), "input_mask": (1, 8)})
    assert "fails at the declared shapes input_ids 1x16, input_mask 1x8: Dimensions must be equal" in raised.value.cause
    assert raised.value.mend == "check --shapes" and "\n" not in raised.value.cause
