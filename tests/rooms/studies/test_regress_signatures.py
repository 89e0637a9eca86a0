"""`tftrt regress` of two signatures of one model, which take the same pictures as float32, as uint8 and as encoded files."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.command_here import run_program
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import regress as command

QUICK = ("--metrics=p50", "--rounds=12", "--max_rounds=12", "--requests=16", "--allow_worse")
SCALE = "--image_scale=0.00392156862745098"
MODEL = """
import sys
import numpy as np
import tensorflow as tf

SPEC = tf.TensorSpec((32, 32, 3), tf.float32)


class Classifier(tf.Module):
    def __init__(self):
        self.weights = tf.Variable(np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32))

    def scores(self, image):
        return {"scores": tf.reduce_mean(image, [1, 2]) @ self.weights}

    @tf.function(input_signature=[tf.TensorSpec((None, 32, 32, 3), tf.float32, name="image")])
    def floats(self, image):
        return self.scores(image)

    @tf.function(input_signature=[tf.TensorSpec((None, 32, 32, 3), tf.uint8, name="image")])
    def bytes(self, image):
        return self.scores(tf.cast(image, tf.float32) / 255)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="image")])
    def encoded(self, image):
        def decode(one):
            return tf.image.resize(tf.cast(tf.io.decode_jpeg(one, channels=3), tf.float32), (32, 32)) / 255
        return self.scores(tf.map_fn(decode, image, fn_output_signature=SPEC))

    @tf.function(input_signature=[tf.TensorSpec((None, 32, 32, 3), tf.uint8, name="image")])
    def best(self, image):
        return {"index": tf.argmax(self.bytes(image)["scores"], -1)}


model = Classifier()
tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.floats, "uint8": model.bytes, "encoded": model.encoded,
                                                    "best": model.best})
"""


def run(*arguments):
    values, positional = _flags.parse("regress", command, [str(one) for one in arguments])
    return command.run(values, positional)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signatures")
    run_program(MODEL, folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(1)
    for number in range(5):
        Image.fromarray(np.kron(rng.integers(0, 256, (6, 8, 3), np.uint8), np.ones((8, 8, 1), np.uint8))).save(
            folder / f"{number}.jpg"
        )
    return folder


def pair(model, candidate, *more):
    return (
        f"--native={model}",
        f"--candidate={model}",
        "--native_signature=serving_default",
        f"--candidate_signature={candidate}",
        *more,
    )


@pytest.mark.parametrize("how, candidate", [("", "encoded"), ("--in_process", "uint8")])
def test_two_signatures_get_the_same_pictures(model, photos, tmp_path, how, candidate):
    code = run(
        *pair(
            model, candidate, f"--data={photos}", SCALE, *QUICK, f"--json={tmp_path / 'out.json'}", *filter(None, [how])
        )
    )
    found = json.loads((tmp_path / "out.json").read_text())
    assert code == errors.EXIT_DONE and found["workload"]["signature"] == f"serving_default and {candidate}"
    assert found["answers"]["requests"] == 5 and not found["answers"]["problems"]
    assert found["answers"]["arithmetic"][0] == "FP16" and "rounded" in found["answers"]["arithmetic"][1]


def test_other_values_are_seen(model, photos, tmp_path):
    """Without the scale the float signature gets pixels 255 times as large."""
    run(*pair(model, "uint8", f"--data={photos}", *QUICK, "--in_process", f"--json={tmp_path / 'out.json'}"))
    assert json.loads((tmp_path / "out.json").read_text())["answers"]["problems"]


@pytest.mark.parametrize(
    "more, cause",
    [
        (("encoded",), "random values would not be the same"),
        (("best", "--data=PHOTOS"), "they cannot be compared"),
        (("nothing",), "the candidate model has no signature 'nothing'"),
        (("encoded", "--signature_keys=uint8"), "--signature_keys does not go with"),
        (("encoded", "--rename=image=x"), "--rename does not go with"),
    ],
)
def test_signatures_that_do_not_go_together(model, photos, more, cause):
    with pytest.raises(errors.UsageError, match=cause):
        run(*pair(model, *(one.replace("PHOTOS", str(photos)) for one in more), "--in_process", *QUICK))


def test_drawn_values_go_to_signatures_of_the_same_inputs(model, tmp_path):
    """uint8 and best have other outputs, so only their speed is compared."""
    code = run(
        f"--native={model}",
        f"--candidate={model}",
        "--native_signature=uint8",
        "--candidate_signature=best",
        "--nocompare",
        "--in_process",
        *QUICK,
        f"--json={tmp_path / 'out.json'}",
    )
    found = json.loads((tmp_path / "out.json").read_text())
    assert code == errors.EXIT_DONE and found["answers"] is None and found["verdict"]["judgements"][0]["rounds"] == 12
