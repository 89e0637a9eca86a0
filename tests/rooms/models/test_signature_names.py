"""SIGNATURE/OUTPUT where the signature's own name has slashes."""

import numpy as np
import tensorflow as tf

from tftrt_tools.models.savedmodel.signatures import Once, split


def test_the_longest_signature_is_meant():
    assert split("a/b/out", ["a", "a/b"]) == ("a/b", "out") and split("a/out/x", ["a", "a/b"]) == ("a", "out/x")
    assert split("out", ["a"]) == ("", "out") and split("c/out", ["a"]) == ("", "c/out")


def test_a_twin_with_slashes_is_called_by_its_leader():
    walked = Once({"serve/top": ("serve/other",)})
    assert walked.path("serve/other/y") == "serve/top/y" and walked.path("y") == "y"


def test_verify_takes_thresholds_kinds_and_labels_of_it(tmp_path, tftrt):
    module = tf.Module()
    module.f = tf.function(
        lambda x: {"o/p": tf.nn.softmax(tf.nn.relu(x * 2.0) + 1.0)},
        input_signature=[tf.TensorSpec((None, 8), name="x")],
    )
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"a/b": module.f})
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(8, 8)).astype("f4"))
    np.save(tmp_path / "labels.npy", np.arange(8))
    done = tftrt(
        "verify",
        tmp_path / "m",
        tmp_path / "m",
        "--thresholds=a/b/o/p:max_abs<=1",
        "--output_kind=a/b/o/p:probabilities",
        f"--data={tmp_path / 'rows.npz'}",
        f"--labels={tmp_path / 'labels.npy'}",
        "--label_output=a/b/o/p",
    )
    assert done.returncode == 0, done.stdout + done.stderr
