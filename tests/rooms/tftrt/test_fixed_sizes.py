"""--fix_sizes: inputs that take one size for good, with any batch."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, prepared, save
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel import fixed_sizes
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings, checked

FILTERS = np.random.default_rng(0).normal(scale=0.3, size=(3, 3, 3, 4)).astype("f4")
BEHIND = np.random.default_rng(1).normal(scale=0.3, size=(3, 3, 4, 3)).astype("f4")


def model(path):
    """A picture of open sizes, which goes through a bilinear resize to another's size and a transposed convolution."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, None, None, 3), name="x")])
    def serve(x):
        down = tf.nn.relu(tf.nn.conv2d(x, FILTERS, 2, "SAME"))
        up = tf.image.resize(down, tf.shape(x)[1:3])
        sizes = tf.stack([tf.shape(x)[0], tf.shape(x)[1], tf.shape(x)[2], 3])
        return {"y": tf.nn.conv2d(up, BEHIND, 1, "SAME") + tf.nn.conv2d_transpose(down, FILTERS, sizes, 2)}

    return save(serve, path)


def test_a_model_of_open_sizes_goes_into_one_engine(tmp_path):
    path, settings = model(tmp_path / "m"), {"use_dynamic_shape": True, "fix_sizes": "x:12x10x3"}
    open_ones = graph_pass.run(prepared(path, use_dynamic_shape=True), Settings(use_dynamic_shape=True))
    frozen = prepared(path, **settings)
    done = graph_pass.run(frozen, Settings(**settings))
    assert len(open_ones.engines) > 1 and len(done.engines) == 1 and not done.native_ops
    assert frozen.preparation.sizes == (("x", (None, 12, 10, 3)),)
    assert any("input x takes ?,12,10,3 alone" in line for line in _output.prepared(frozen.preparation))
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, 12, 10, 3)).astype("f4")
        expected = tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(x))["y"].numpy()
        np.testing.assert_allclose(answers(frozen, x)[0], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="must be equal"):
        answers(frozen, np.zeros((2, 12, 12, 3), "f4"))


def test_a_request_of_another_size_is_an_error_and_no_wrong_answer(tftrt, tmp_path):
    path, target = model(tmp_path / "m"), tmp_path / "out"
    flags = ["--use_dynamic_shape", "--fix_sizes=x:12x10x3", f"--json={tmp_path / 'j.json'}"]
    made = tftrt("convert", f"--model={path}", f"--output={target}", *flags)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "input x takes ?,12,10,3 alone" in made.stdout
    assert "--fix_sizes=x:12x10x3" in (target / "assets.extra/tftrt/convert.flags").read_text()
    assert json.loads((tmp_path / "j.json").read_text())["settings"]["fix_sizes"] == "x:12x10x3"
    # The sizes are known from the converted model.
    verified = tftrt("verify", path, target)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    other = tftrt("verify", path, target, "--shapes=x:2x12x12x3", "--nowrite")
    assert other.returncode == 2 and "float32[?,12,10,3]" in other.stderr
    np.savez(tmp_path / "rows.npz", x=np.zeros((2, 12, 12, 3), "f4"))
    sent = tftrt("verify", path, target, f"--data={tmp_path / 'rows.npz'}", "--nowrite")
    assert sent.returncode in (1, 2) and "Traceback" not in sent.stderr and "12,10,3]" in sent.stderr


def spec(name, *shape):
    return InputSpec(name=name, dtype="float32", shape=shape)


@pytest.mark.parametrize(
    ("flag", "specs", "expected"),
    [
        ("x:8x6", [spec("x", None, None, 6)], {"x": (None, 8, 6)}),
        ("x:8x6", [spec("x", 1, None, 6)], {"x": (1, 8, 6)}),
        ("x:8x6", [InputSpec(name="x", dtype="float32", shape=None)], {"x": (None, 8, 6)}),
        ("x:8;y:4", [spec("x", None, None), spec("y", None, None)], {"x": (None, 8), "y": (None, 4)}),
        ("other/x:8", [spec("x", None, None)], {}),
        ("serve/x:8", [spec("x", None, None)], {"x": (None, 8)}),
        ("", [spec("x", None, None)], {}),
    ],
)
def test_which_inputs_are_fixed(flag, specs, expected):
    assert fixed_sizes.of_signature(flag, "serve", specs) == expected


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("x:8x6,9x6", "x has to have one size"),
        ("x:scalar", "x has to have one size"),
        ("x:8x5", "8x5 is no row of x float32[?,?,6]"),
        ("x:8", "8 is no row of x"),
        ("z:8x6", "no input 'z'"),
        ("other/x:8x6", "no input 'other/x'"),
        ("12x10x3", "'12x10x3' names no input"),
        ("x:1", "1 is no row of x"),
    ],
)
def test_what_cannot_be_is_refused(flag, said):
    with pytest.raises(errors.UsageError, match=re.escape(said)):
        checked(Settings(fix_sizes=flag))
        fixed_sizes.check(flag, {"serve": [spec("x", None, None, 6)]}, {"serve": []})


@pytest.mark.parametrize("fixed", ["", "x:12x10x3"])
def test_inspect_says_what_known_sizes_would_bring(fixed, tftrt, tmp_path):
    done = tftrt("inspect", model(tmp_path / "m"), "--use_dynamic_shape", *([f"--fix_sizes={fixed}"] if fixed else []))
    told = "2 nodes (Conv2DBackpropInput, ResizeBilinear) would be in engines if their sizes were known: --fix_sizes"
    assert done.returncode == 0 and (told in " ".join(done.stdout.split())) == (not fixed), done.stdout
    flags = ["--use_dynamic_shape", "--dry_run", *([f"--fix_sizes={fixed}"] if fixed else [])]
    done = tftrt("convert", f"--model={tmp_path / 'm'}", *flags)
    assert done.returncode == 0 and (f"{told} gives inputs one size" in done.stdout) == (not fixed), done.stdout
