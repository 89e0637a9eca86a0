"""What kept models of others out of plans: each is exported for TensorRT 8.5, with equal answers, and its parser refuses nothing."""

import json

import pytest

from tests import feature_models

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("kind", feature_models.FEATURES)
def test_it_is_exported_and_nothing_is_refused(kind, tftrt, tmp_path):
    shapes = feature_models.save(kind, tmp_path / "m")
    done = tftrt(
        "export",
        tmp_path / "m",
        f"--output={tmp_path / 'm.onnx'}",
        f"--shapes={shapes}",
        f"--json={tmp_path / 'j.json'}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = json.loads((tmp_path / "j.json").read_text())["files"]
    assert not [one for one in made["findings"] if one["certain"]] and not [
        one["undone"] for one in made["rewrites"] if one["undone"]
    ]
