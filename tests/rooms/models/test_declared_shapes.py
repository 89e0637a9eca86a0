"""Declared shapes are run with drawn values; a model that refuses those gets pictures and zeros. The real child, no GPU."""

import types

import pytest
import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.models.execution import coverage, inputs, run
from tftrt_tools.models.kinds.savedmodel import kind
from tftrt_tools.models.savedmodel.shapes import InputSpec


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    class Decoder(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "jpeg")])
        def decode(self, jpeg):
            def read(text):
                return tf.image.resize(tf.image.decode_jpeg(text, channels=3), [4, 4])

            return {"pixels": tf.map_fn(read, jpeg, fn_output_signature=tf.TensorSpec([4, 4, 3], tf.float32))}

    path = tmp_path_factory.mktemp("decoder") / "model"
    module = Decoder()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.decode})
    return path


def drawn(shape):
    return [run.Call("serving_default", inputs.random([InputSpec("jpeg", "string", (None,))], {"jpeg": shape}, seed=0))]


def test_a_model_that_decodes_pictures_gets_pictures(decoder):
    calls = drawn((2,))
    answered, done = coverage.answered(kind.at(decoder), calls, None)
    assert [call.shapes for call in answered] == [{"jpeg": (2,)}] and len(done.answers) == 1
    assert answered[0].inputs["jpeg"][0] != calls[0].inputs["jpeg"][0]


def test_a_shape_that_the_model_refuses_is_told_with_its_reason(decoder):
    with pytest.raises(errors.CallFailed) as caught:
        coverage.answered(kind.at(decoder), drawn((2, 2)), None)
    assert "jpeg 2x2" in caught.value.cause and "root error" not in caught.value.cause


def test_a_process_that_sees_no_gpu_is_said_to_see_none(decoder):
    declared = types.SimpleNamespace(
        inputs=(InputSpec("jpeg", "string", (None,)),), calls=({"jpeg": (2,)},), unbuilt=()
    )
    with pytest.raises(errors.TftrtError) as caught:
        coverage.check(kind.at(decoder), {"serving_default": declared}, None)
    assert "sees no GPU" in caught.value.cause and "nvidia-smi" in caught.value.mend
