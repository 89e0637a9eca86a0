"""`tftrt verify ORIGINAL WRAPPED`: added signatures against the model that they wrap."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.command_line import assert_clear
from tests.wrapped import classifier, encoded, noise
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.inputs.sources_job import picture_ops
from tftrt_tools.wrapping import client_side
from tftrt_tools.wrapping.added import Pictures


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and pictures of several kinds and sizes."""
    folder = tmp_path_factory.mktemp("verified")
    classifier(folder / "model")
    (folder / "photos").mkdir()
    for number in range(9):
        form = ("PNG", "JPEG", "BMP")[number % 3]
        pixels = noise(12 + number, 20, 3, seed=number).repeat(4, 0).repeat(4, 1)
        (folder / f"photos/{number}.{form.lower()}").write_bytes(encoded(pixels, form))
    return folder


def verified(tftrt, folder, wrapped, *flags):
    """The result of a verification against the model of `folder`."""
    done = tftrt("verify", folder / "model", wrapped, "--json=-", *flags)
    return json.loads(done.stdout), done.returncode


@pytest.mark.parametrize("flags", [("--image_preset=torch", "--top_k=3"), ("--image_preset=caffe", "--image_resize=crop", "--argmax"),
                                   ("--image_preset=tf", "--image_resize=pad", "--broken=mark", "--output_types=float16"),
                                   ("--as_default", "--forms=encoded", "--image_scale=1/255")])
def test_files_and_pixels_are_answered_like_a_clients_floats(tftrt, folder, tmp_path, flags):
    assert tftrt("wrap", folder / "model", f"--output_saved_model_dir={tmp_path / 'wrapped'}", *flags).returncode == 0
    said, code = verified(tftrt, folder, tmp_path / "wrapped", f"--data={folder / 'photos'}")
    assert (code, said["passed"], said["problems"]) == (0, True, [])
    names = {name.partition("/")[0] for name in said["bounds"]}
    if "--as_default" in flags:
        assert names == {"serving_default", "serving_default (files)", "native"}
    else:
        assert names == {"uint8", "encoded", "encoded (files)", "serving_default"}
    for name, bounds in said["bounds"].items():
        # Another decoder of JPEG gives other pixels: only there the bounds are wide.
        assert bounds.get("snr_db", 80) == (15 if "(files)" in name else 60 if "float16" in str(flags) and "default" not in name else 80)
    # The record is what publish reads.
    assert tftrt("publish", tmp_path / "wrapped", "--model_name=m", f"--base_path={tmp_path / 'models'}").returncode == 0


def test_without_data_pictures_are_drawn(tftrt, folder, tmp_path):
    tftrt("wrap", folder / "model", f"--output_saved_model_dir={tmp_path / 'wrapped'}")
    said, code = verified(tftrt, folder, tmp_path / "wrapped")
    assert code == 0 and set(said["sources"].values()) == {"random"} and said["samples"]["encoded"] == 4


def test_a_wrong_normalization_fails(tftrt, folder, tmp_path):
    tftrt("wrap", folder / "model", f"--output_saved_model_dir={tmp_path / 'wrapped'}", "--image_preset=torch")
    record = tmp_path / "wrapped/assets.extra/tftrt_wrapped.json"
    text = record.read_text()
    record.write_text(text.replace("0.485", "0.45"))
    said, code = verified(tftrt, folder, tmp_path / "wrapped")
    assert code == 3 and any("encoded/scores: snr_db" in problem for problem in said["problems"]), said["problems"]
    record.write_text(text[:100])
    assert_clear(tftrt("verify", folder / "model", tmp_path / "wrapped"), 1, "tftrt_wrapped.json is damaged")


def test_what_cannot_be_compared_is_refused(tftrt, folder, tmp_path):
    tftrt("wrap", folder / "model", f"--output_saved_model_dir={tmp_path / 'wrapped'}")
    np.savez(tmp_path / "rows.npz", image=noise(2, 8, 8, 3))
    for flags, says in ((f"--data={tmp_path / 'rows.npz'}", "is arrays, and signatures of pictures were added"),
                        ("--shapes=image:1x9x9x3", "--shapes has no effect here: the calls are pictures"),
                        ("--rename=image=x", "--rename has no effect on signatures that `tftrt wrap` has added"),
                        ("--signature_keys=x", "no signature 'x'")):
        assert_clear(tftrt("verify", folder / "model", tmp_path / "wrapped", flags), 2, says)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.png").write_bytes(b"\x89PNG nothing")
    (tmp_path / "broken/b.png").write_bytes(encoded(noise(8, 8, 3)))
    assert_clear(tftrt("verify", folder / "model", tmp_path / "wrapped", f"--data={tmp_path / 'broken'}"), 2, "a.png cannot be decoded")
    said, code = verified(tftrt, folder, tmp_path / "wrapped", f"--data={tmp_path / 'broken'}", "--image_error_limit=1",
                          "--allow_constant_outputs")
    assert code == 0 and any("1 pictures could not be decoded: a.png" in one for one in said["warnings"])


@pytest.mark.parametrize("how", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("size", [(8, 8), (224, 224), (30, 7)])
def test_numpy_resizes_as_tensorflow_does_to_the_bit(how, size):
    for seed, shape in enumerate(((8, 8, 3), (97, 31, 3), (5, 200, 1), (1, 1000, 1))):
        pixels = noise(*shape, seed=seed)
        np.testing.assert_array_equal(client_side.resized(pixels, size, how), picture_ops.resized(tf.constant(pixels), size, how).numpy())


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_numpy_normalizes_as_tensorflow_does(dtype, first):
    options = DataOptions(image_scale=1 if dtype == "uint8" else 1 / 255, image_channels="BGR",
                          **({} if dtype == "uint8" else dict(image_mean=(0.485, 0.456, 0.406), image_std=(0.229, 0.224, 0.225))))
    pictures = Pictures(input="x", dtype=dtype, shape=None, size=(4, 5), channels=3, first=first, options=options, max_pixels=10, broken="fail")
    images = np.random.default_rng(0).uniform(0, 255, (2, 4, 5, 3)).astype(np.float32)
    mine = client_side.normalized(images, pictures)
    theirs = picture_ops.normalized(tf.constant(client_side.laid_out(images, pictures)), options, dtype, first).numpy()
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(mine, theirs)
