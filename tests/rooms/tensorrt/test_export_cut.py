"""`tftrt export --freeze` and `--outputs`: inputs with one value for good, outputs that are cut off; bad input for both."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from tests import onnx_sources
from tftrt_tools.command_line import cli
from tftrt_tools.models.kinds.onnx import file


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A SavedModel whose conditional ONNX cannot say."""
    return onnx_sources.trained(tmp_path_factory.mktemp("trained") / "saved")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A SavedModel with two signatures: serving_default takes a, b and gives y, z and w; other takes x and gives y."""
    module = tf.Module()
    module.first = tf.function(
        lambda a, b: {"y": tf.tanh(a) @ tf.ones((4, 2)), "z": tf.exp(b), "w": a + b},
        input_signature=[tf.TensorSpec((None, 4), tf.float32, "a"), tf.TensorSpec((None, 4), tf.float32, "b")],
    )
    module.second = tf.function(
        lambda x: {"y": tf.nn.relu(x) + 1}, input_signature=[tf.TensorSpec((None, 4), tf.float32, "x")]
    )
    folder = tmp_path_factory.mktemp("two") / "saved"
    tf.saved_model.save(module, str(folder), {"serving_default": module.first, "other": module.second})
    return str(folder)


def test_conditionals_that_onnx_cannot_say_are_named_with_the_input_that_decides_them(trained, tftrt, tmp_path):
    done = tftrt("export", trained, f"--output={tmp_path / 'm.onnx'}")
    cause, mend = done.stderr.splitlines()
    assert (
        done.returncode == 1
        and "its conditionals (StatefulPartitionedCall/cond) keep values" in cause
        and "OptionalFromValue" in cause
    )
    assert "--freeze=training:false (or true)" in mend and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["false", "serving_default/training:false"])
def test_a_frozen_input_takes_the_conditionals_away(value, trained, tftrt, tmp_path):
    flag = value if ":" in value else f"training:{value}"
    done = tftrt(
        "export", trained, f"--output={tmp_path / 'm.onnx'}", f"--freeze={flag}", f"--json={tmp_path / 'j.json'}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: input training is false for good (--freeze)" in done.stdout
    (made,) = json.loads((tmp_path / "j.json").read_text())["files"]
    assert made["verification"]["passed"] and "If" not in file.overview(str(tmp_path / "m.onnx")).ops
    # Callers still give the input, and it changes nothing.
    session, x = (
        onnxruntime.InferenceSession(tmp_path / "m.onnx"),
        np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
    )
    first, second = (session.run(["y"], {"x": x, "training": np.array(training)})[0] for training in (False, True))
    np.testing.assert_array_equal(first, second)
    expected = tf.saved_model.load(trained).signatures["serving_default"](
        x=tf.constant(x), training=tf.constant(False)
    )["y"]
    np.testing.assert_allclose(first, expected, atol=1e-6)
    # The file says so itself: a later comparison gives the model this value, too.
    assert file.overview(str(tmp_path / "m.onnx")).facts["tftrt.freeze"] == "training:False"
    assert tftrt("verify", trained, tmp_path / "m.onnx").returncode == 0


def test_outputs_that_are_cut_take_their_nodes_with_them(two, tftrt, tmp_path):
    done = tftrt(
        "export",
        two,
        f"--output={tmp_path / 'm.onnx'}",
        "--outputs=y,serving_default/w",
        f"--json={tmp_path / 'j.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = {one["signature"]: one for one in json.loads((tmp_path / "j.json").read_text())["files"]}
    first, second = made["serving_default"], made["other"]
    assert [one["name"] for one in first["outputs"]] == ["w", "y"] and [one["name"] for one in second["outputs"]] == [
        "y"
    ]
    assert {one["output"] for one in first["verification"]["comparisons"]} == {"w", "y"}
    graph = onnx.load(tmp_path / "m.serving_default.onnx").graph
    assert "Exp" not in {node.op_type for node in graph.node} and [one.name for one in graph.input] == ["a", "b"]
    assert tftrt("verify", two, tmp_path / "m.serving_default.onnx").returncode == 0
    # An input that only a cut output needed stays, so that callers need no change.
    done = tftrt("export", two, f"--output={tmp_path / 'n.onnx'}", "--signature_keys=serving_default", "--outputs=z")
    assert done.returncode == 0 and [one.name for one in onnx.load(tmp_path / "n.onnx").graph.input] == ["a", "b"]


def test_each_signature_is_compared_on_its_own_arrays_of_the_data(two, tftrt, tmp_path):
    rows = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", **{"serving_default/a": rows, "b": rows, "other/x": rows})
    done = tftrt(
        "export",
        two,
        f"--output={tmp_path / 'm.onnx'}",
        f"--data={tmp_path / 'rows.npz'}",
        "--precision=FP16",
        "--signature_keys=other",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left aside: serving_default/a, b" in done.stdout
    done = tftrt(
        "verify",
        two,
        two,
        f"--data={tmp_path / 'rows.npz'}",
        "--signature_keys=serving_default",
        "--nowrite",
        f"--json={tmp_path / 'j.json'}",
    )
    verified = json.loads((tmp_path / "j.json").read_text())
    assert (
        done.returncode == 0
        and verified["sources"] == {"serving_default": "data"}
        and verified["samples"] == {"serving_default": 8}
    )
    assert verified["warnings"] == ["arrays of signatures that were not asked for were left aside: other/x"], (
        done.stdout
    )


@pytest.mark.parametrize(
    ("flags", "said", "mend"),
    [
        (["--outputs=yy"], "--outputs: no output 'yy'", "did you mean 'y'?"),
        (["--outputs=other/zzz"], "no output 'other/zzz'", "there are: "),
        (
            ["--outputs=z"],
            "--outputs=z leaves signature 'other' without an output",
            "name one of y, or choose signatures",
        ),
        (["--outputs=,"], "--outputs=, names no output", "name one"),
        (["--freeze=training:false"], "--freeze: no input 'training'", "inputs here: "),
        (["--freeze=a:1"], "--freeze: input 'a' is float32[?,4]", "only a single bool or number"),
        (["--freeze=a"], "no input with its value", "write "),
    ],
)
def test_what_cannot_be_cut_or_frozen_is_one_line_before_the_work(flags, said, mend, two, capsys, tmp_path):
    assert cli.main(["export", two, f"--output={tmp_path / 'm.onnx'}", *flags]) == 2
    cause, help_text = capsys.readouterr().err.splitlines()
    assert said in cause and mend in help_text and list(tmp_path.iterdir()) == []
