"""`tftrt wrap` of a converted model: its engines serve the added signatures too."""

import json

import numpy as np
import pytest

from tests.command_line import assert_clear
from tests.wrapped import encoded, noise
from tftrt_tools.models.savedmodel import passport


@pytest.fixture(scope="module")
def folder(tftrt, zoo_model, tmp_path_factory):
    """A converted model, and photos."""
    folder = tmp_path_factory.mktemp("converted")
    done = tftrt(
        "convert", f"--model={zoo_model('digits_cnn')}", f"--output={folder / 'converted'}", "--precision=FP16"
    )
    assert done.returncode == 0, done.stderr
    (folder / "photos").mkdir()
    for number in range(5):
        (folder / f"photos/{number}.png").write_bytes(encoded(noise(4, 5, seed=number).repeat(6, 0).repeat(6, 1)))
    return folder


@pytest.mark.parametrize("flags, names", [((), ["uint8", "encoded"]), (("--as_default",), ["serving_default"])])
def test_it_is_whole_verified_and_published(tftrt, zoo_model, folder, tmp_path, flags, names):
    done = tftrt(
        "wrap", folder / "converted", f"--output={tmp_path / 'wrapped'}", "--image_scale=1/255", "--top_k=2", *flags
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(tftrt("inspect", tmp_path / "wrapped", "--json=-").stdout)
    assert seen["disagreements"] == [] and len(seen["engines"]) == 1
    assert seen["engines"][0]["signatures"] == sorted({"native" if flags else "serving_default", *names}), seen[
        "engines"
    ]
    refused = tftrt("publish", tmp_path / "wrapped", "--model_name=m", f"--base_path={tmp_path / 'models'}")
    assert_clear(refused, 3, "it was never verified against its original")
    done = tftrt("verify", zoo_model("digits_cnn"), tmp_path / "wrapped", f"--data={folder / 'photos'}")
    assert done.returncode == 0, done.stdout + done.stderr
    done = tftrt(
        "publish",
        tmp_path / "wrapped",
        "--model_name=m",
        f"--base_path={tmp_path / 'models'}",
        f"--warmup_data={folder / 'photos'}",
    )
    assert done.returncode == 0, done.stderr
    assert_clear(tftrt("build", tmp_path / "wrapped", "--strip"), 2, "got signatures after its conversion")


def test_built_engines_stay(tftrt, folder, tmp_path):
    # Nothing of the model is loaded, so engines of another machine are no hindrance.
    asset = folder / "converted/assets/trt-serialized-engine.x"
    asset.parent.mkdir(exist_ok=True)
    asset.write_bytes(np.random.default_rng(0).bytes(1000))
    try:
        assert tftrt("wrap", folder / "converted", f"--output={tmp_path / 'wrapped'}").returncode == 0
        assert (tmp_path / "wrapped/assets" / asset.name).read_bytes() == asset.read_bytes()
    finally:
        asset.unlink()
    manifest = passport.read(tmp_path / "wrapped", passport.MANIFEST)
    assert manifest["wrapped"] == {"signatures": ["uint8", "encoded"], "default_was": ""}
    assert passport.read(tmp_path / "wrapped", passport.VERIFY) is None
