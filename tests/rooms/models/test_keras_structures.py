"""Keras 3 models whose inputs and outputs are dicts, lists, or both in each other, and layers that give several outputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.command_line import assert_clear
from tests.conftest import run_tftrt
from tftrt_tools.base import errors
from tftrt_tools.models.sources import keras_job
from tftrt_tools.models.sources.opened import KerasRequest

pytestmark = stacks.needs_keras_3
L = keras.layers


def shared_beside_its_number():
    """Keras 3's own names: dense, dense, dense_1. Numbers alone would make two outputs dense_1, and one would be lost."""
    x, twice = L.Input((6,), name="x"), L.Dense(3, name="dense")
    return keras.Model(x, [twice(x), twice(x * 2.0), L.Dense(5, name="dense_1")(x)])


def dict_that_is_not_sorted():
    b, a = L.Input((6,), name="b"), L.Input((6,), name="a")
    return keras.Model({"b": b, "a": a}, L.Dense(3, name="y")(a - b))


def structures_in_inputs():
    z, a = L.Input((6,), name="z"), L.Input((6,), name="a")
    return keras.Model([{"z": z}, [a]], [L.Dense(3, name="y")(a - z), {"w": L.Dense(2, name="w")(z)}])


def structures_in_a_dict():
    x = L.Input((6,), name="x")
    return keras.Model(x, {"o": {"p": L.Dense(2)(x)}, "q": [L.Dense(3)(x), L.Dense(4)(x)]})


def list_of_one():
    x = L.Input((6,), name="x")
    return keras.Model([x], [L.Dense(3, name="y")(x)])


def two_outputs_at_the_end():
    """Keras 3 does not say what they are called."""
    x = L.Input((6,), name="x")
    return keras.Sequential(
        [x, L.Dense(4), keras.Model(i := L.Input((4,)), [L.Dense(2)(i), L.Dense(3)(i)], name="last")]
    )


def slashes_in_keys():
    x = L.Input((6,), name="x")
    return keras.Model(x, {"a/b": L.Dense(2)(x), "c": L.Dense(3)(x)})


def sequential():
    return keras.Sequential([L.Input((6,), name="x"), L.Dense(3, name="y")])


NAMES = {
    shared_beside_its_number: ["dense_0", "dense_2", "dense_1"],
    dict_that_is_not_sorted: ["y"],
    structures_in_inputs: ["y", "w"],
    structures_in_a_dict: ["o_p", "q_0", "q_1"],
    list_of_one: ["y"],
    sequential: ["y"],
    two_outputs_at_the_end: ["last_0", "last_1"],
    slashes_in_keys: ["a_b", "c"],
}


@pytest.mark.parametrize("made", NAMES, ids=lambda made: made.__name__)
def test_no_output_is_lost_and_each_is_that_of_keras(made, tmp_path):
    keras.utils.set_random_seed(1)
    model = made()
    model.save(tmp_path / "m.keras")
    keras_job.job(KerasRequest(source=str(tmp_path / "m.keras"), output=str(tmp_path / "out")))
    signature = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"]
    draw = np.random.default_rng(0)
    feed = {one.name: draw.random((4, 6), np.float32) for one in model.inputs}
    given = model.input if hasattr(model, "_inputs_struct") else model.inputs[0]
    wanted = model(keras.tree.pack_sequence_as(given, [feed[one.name] for one in keras.tree.flatten(given)]))
    answers = signature(**{name: tf.constant(array) for name, array in feed.items()})
    assert sorted(answers) == sorted(NAMES[made])
    for name, one in zip(NAMES[made], keras.tree.flatten(wanted), strict=True):
        np.testing.assert_allclose(answers[name], one, rtol=1e-5, atol=1e-5)


class Nested(keras.Model):
    """Its outputs lie in each other, which no signature holds."""

    def __init__(self, **options):
        super().__init__(**options)
        self.dense = L.Dense(3)

    def call(self, x):
        return {"a": {"b": self.dense(x)}}


def test_what_keras_cannot_write_is_told_in_a_line(tmp_path):
    x = L.Input((6,), name="x")
    keras.Model(x, L.Dense(3, name="my out-1")(x)).save(tmp_path / "name.keras")
    nested = Nested()
    nested(np.ones((2, 6), np.float32))
    nested.save(tmp_path / "nested.keras")
    for name, custom, says in (
        ("name", "", "'my out-1' is not a valid scope name"),
        ("nested", f"{__name__}:CUSTOM", "Got a non-Tensor value"),
    ):
        request = KerasRequest(
            source=str(tmp_path / f"{name}.keras"), output=str(tmp_path / "out"), custom_objects=custom
        )
        with pytest.raises(errors.TftrtError, match=says) as told:
            keras_job.job(request)
        assert "flat list or dict" in told.value.mend and "\x1b" not in told.value.cause


CUSTOM = {"Nested": Nested}


def test_keras_own_quantization_needs_no_consent(tmp_path):
    model = keras.Sequential([L.Input((6,), name="x"), L.Dense(8), L.Dense(3, name="y")])
    model.quantize("int8")
    model.save(tmp_path / "m.keras")
    assert keras_job.job(KerasRequest(source=str(tmp_path / "m.keras"), output=str(tmp_path / "out"))).parameters


def test_legacy_keras_that_is_not_there_is_told(tmp_path):
    list_of_one().save(tmp_path / "m.keras")
    done = run_tftrt("inspect", tmp_path / "m.keras", env={"TF_USE_LEGACY_KERAS": "1"})
    assert_clear(done, 1, "TF_USE_LEGACY_KERAS is set: TensorFlow asks for tf_keras, which is not installed")
