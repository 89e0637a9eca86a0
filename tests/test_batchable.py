"""What TensorFlow Serving's batching refuses is named before a server starts: by configure, its --check, serve and publish."""

import pytest

from tests.command_line import assert_clear
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.serving.configuration import batchable


def specs(**shapes):
    return tuple(InputSpec(name, "float32", shape) for name, shape in shapes.items())


@pytest.mark.parametrize(("inputs", "outputs", "said"), [
    (dict(x=(None, 4)), dict(y=(None, 3)), ""),
    (dict(x=(None, 4), n=(None,)), dict(y=None), ""),
    (dict(x=(8, 4)), dict(y=(8, 3)), ""),
    (dict(x=(None, 4), keep=()), dict(y=(None,)), "input keep is a scalar, without rows"),
    (dict(x=(None, 4)), dict(y=(None,), mean=()), "output mean is a scalar, without rows"),
    (dict(x=(None, 4), bank=(5, 4)), dict(y=(None, 5)), "input bank always has 5 rows, and input x has others"),
    (dict(x=(None, 4)), dict(y=(None,), names=(3,)), "output names always has 3 rows, however many were sent"),
    (dict(x=(8, 4)), dict(y=(1, 3)), "output y always has 1 rows, however many were sent"),
    (dict(), dict(y=(3,)), "")])
def test_what_cannot_be_joined_or_cut_is_named(inputs, outputs, said):
    assert batchable.refused({"s": specs(**inputs)}, {"s": specs(**outputs)}) == ({"s": said} if said else {})


@pytest.fixture(scope="module")
def models(tftrt, tmp_path_factory):
    """A folder with a base path: a model with a scalar input, published with its warm-up."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("scalar")
    module = tf.Module()
    module.f = tf.function(lambda x, keep: {"y": tf.nn.relu(x * keep)},
                           input_signature=[tf.TensorSpec((None, 4), name="x"), tf.TensorSpec((), name="keep")])
    tf.saved_model.save(module, str(folder / "source"), signatures=module.f)
    done = tftrt("publish", folder / "source", "--model_name=m", f"--base_path={folder / 'models'}")
    assert done.returncode == 0, done.stderr
    assert "a server with --enable_batching refuses signature 'serving_default': input keep is a scalar" in done.stdout
    return folder


REFUSED = "batching refuses signature 'serving_default': input keep is a scalar"


def test_configure_refuses_to_batch_it_and_check_names_it(models, tftrt, tmp_path):
    flags = [f"--output_dir={tmp_path}", f"--model=m={models / 'models/m'}"]
    assert_clear(tftrt("configure", *flags, "--enable_batching", "--allow_uncovered"), 2, REFUSED)
    assert not list(tmp_path.iterdir())
    assert tftrt("configure", *flags).returncode == 0
    (tmp_path / "batching_parameters.txt").write_text("max_batch_size { value: 8 }")
    done = tftrt("configure", "--check", tmp_path / "models.config", tmp_path / "batching_parameters.txt")
    assert done.returncode == 3 and REFUSED in done.stdout
    assert tftrt("configure", "--check", tmp_path / "models.config").returncode == 0


def test_without_a_warm_up_the_other_signatures_can_be_batched(models, tftrt, tmp_path):
    done = tftrt("publish", models / "source", "--model_name=m", f"--base_path={tmp_path}", "--nowarmup")
    assert done.returncode == 0, done.stderr
    flags = [f"--output_dir={tmp_path / 'c'}", f"--model=m={tmp_path / 'm'}", "--enable_batching"]
    refused = tftrt("configure", *flags)
    assert_clear(refused, 2, REFUSED)
    assert "--allow_uncovered serves the others" in refused.stderr
    done = tftrt("configure", *flags, "--allow_uncovered")
    assert done.returncode == 0 and f"warning: {tmp_path / 'm/1'}: {REFUSED}" in done.stdout


def test_serve_refuses_what_would_not_load(models, tftrt):
    done = tftrt("serve", "--backend=local", "--port=0", "--model_name=m", f"--model_base_path={models / 'models/m'}", "--enable_batching")
    assert done.returncode == 2 and f"--enable_batching: {models / 'models/m/1'}: {REFUSED}" in done.stderr
