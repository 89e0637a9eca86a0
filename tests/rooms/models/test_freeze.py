"""Inputs frozen to a value: conditionals go away, the signature and the answers for that value stay."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, prepared, unet_with_conditionals
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel import frozen_inputs
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


@pytest.fixture(scope="module")
def unet(tmp_path_factory):
    return unet_with_conditionals(tmp_path_factory.mktemp("unet") / "model")


def volume(seed=1):
    return np.random.default_rng(seed).normal(size=(2, 8, 8, 8, 1)).astype("f4")


def test_conditionals_go_away_and_the_answers_stay(unet):
    before = prepared(unet, use_dynamic_shape=True)
    assert (
        before.preparation.offered == ("training",)
        and "--freeze=training:false" in _output.prepared(before.preparation)[0]
    )
    many = graph_pass.run(before, Settings(use_dynamic_shape=True))
    frozen = prepared(unet, use_dynamic_shape=True, freeze="training:false")
    done = frozen.preparation
    assert (
        done.frozen == (("training", False),)
        and done.offered == ()
        and Preparation.from_dict(json.loads(json.dumps(done.to_dict()))) == done
    )
    passed = graph_pass.run(frozen, Settings(use_dynamic_shape=True, freeze="training:false"))
    assert len(passed.engines) < len(many.engines) and passed.coverage > many.coverage
    assert not {"Switch", "Merge", "RandomUniform", "StatelessIf", "If"} & {node.op for node in passed.graph_def.node}
    expected = list(frozen.original(volume=tf.constant(volume()), training=tf.constant(False)).values())[0].numpy()
    for sent in (False, True):  # what is sent is not read
        fed = {"volume": volume(), "training": np.array(sent)}
        np.testing.assert_allclose(
            answers(frozen, *(fed[name] for name in frozen.input_names))[0], expected, rtol=1e-5, atol=1e-6
        )


def test_the_other_branch_runs_where_the_value_says_so(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x"), tf.TensorSpec((), tf.int32, name="mode")])
    def serve(x, mode):
        y = tf.cond(mode > 1, lambda: tf.cond(mode > 2, lambda: x * 3.0, lambda: x * 2.0), lambda: x - 1.0)
        return {"y": y + tf.cast(mode, tf.float32)}

    module = tf.Module()
    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": serve})
    x = np.arange(8, dtype="f4").reshape(2, 4)
    for mode, expected in ((1, x - 1 + 1), (2, x * 2 + 2), (3, x * 3 + 3)):
        frozen = prepared(tmp_path / "m", freeze=f"mode:{mode}", minimum_segment_size=1)
        fed = {"x": x, "mode": np.int32(7)}
        np.testing.assert_allclose(answers(frozen, *(fed[name] for name in frozen.input_names))[0], expected)
        assert not {"Switch", "Merge"} & {node.op for node in frozen.graph_def.node}
    # Something else reads it too, and it is no bool: nothing is offered.
    assert prepared(tmp_path / "m").preparation.offered == ()


SPECS = {
    "a": [InputSpec("training", "bool", ()), InputSpec("x", "float32", (None, 4))],
    "b": [InputSpec("training", "bool", ()), InputSpec("img/k:0", "int32", ()), InputSpec("rate", "float32", ())],
}


def test_the_grammar():
    found = frozen_inputs.values("training:false;img/k:0:4;b/rate:0.5", SPECS)
    assert found == {"a": {"training": False}, "b": {"training": False, "img/k:0": 4, "rate": 0.5}}
    assert found["b"]["img/k:0"].dtype == np.int32 and found["b"]["rate"].shape == ()
    assert (
        frozen_inputs.values("b/training:1", SPECS) == {"b": {"training": True}}
        and frozen_inputs.values("", SPECS) == {}
    )


def test_signatures_of_one_function_get_the_same_value():
    frozen_inputs.check("training:false", SPECS, {"a": ("b",)})
    with pytest.raises(errors.UsageError, match="'a' and 'b' are one function"):
        frozen_inputs.check("b/training:false", SPECS, {"a": ("b",)})
    entry = {"name": "a", "twins": ["b"], "preparation": {"frozen": [["training", False]]}}
    assert frozen_inputs.of_manifest({"signatures": [entry]}, SPECS) == {
        "a": {"training": False},
        "b": {"training": False},
    }
    assert frozen_inputs.of_manifest({"signatures": [{"name": "b"}]}, SPECS) == {"b": {}}


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("training", "is no input with its value"),
        ("training:", "is no input"),
        ("training:true;training:false", "given twice"),
        ("trainin:true", "no input 'trainin'"),
        ("training:no", "'no' is no value"),
        ("x:1", r"is float32\[\?,4\]"),
        ("b/img/k:0:1.5", "no value"),
        ("rate:fast", "no value"),
        ("img/k:0:9999999999", "no value"),
    ],
)
def test_what_cannot_be_frozen_is_a_clear_error(flag, said):
    with pytest.raises(errors.UsageError, match=said):
        frozen_inputs.values(flag, SPECS)


def test_convert_keeps_the_signature_and_verify_sends_the_value(tftrt, unet, tmp_path):
    done = tftrt(
        "convert", f"--model={unet}", f"--output={tmp_path / 'out'}", "--use_dynamic_shape", "--freeze=training:false"
    )
    assert done.returncode == 0, done.stderr
    assert "input training is false for good (--freeze)" in done.stdout
    assert "--freeze=training:false" in (tmp_path / "out/assets.extra/tftrt/convert.flags").read_text()
    verified = tftrt("verify", unet, tmp_path / "out")
    assert verified.returncode == 0 and "PASSED" in verified.stdout, verified.stdout + verified.stderr
    # Data need not hold the input; with another value it would compare two different things.
    np.savez(tmp_path / "rows.npz", volume=volume())
    assert tftrt("verify", unet, tmp_path / "out", f"--data={tmp_path / 'rows.npz'}").returncode == 0
    np.savez(tmp_path / "other.npz", volume=volume(), training=np.array(True))
    other = tftrt("verify", unet, tmp_path / "out", f"--data={tmp_path / 'other.npz'}")
    assert other.returncode == 2 and "another value than False" in other.stderr
