"""`tftrt diagnose` on a GPU: what is wrong comes first, and what its mend gives stands beside the estimate. `make gpu-test`."""

import json

import pytest

from tests.conftest import run_tftrt
from tests.gpu_commands import convert, report

pytestmark = [pytest.mark.gpu, pytest.mark.gpu_alone, pytest.mark.timeout(590)]


def test_a_shape_without_an_engine_is_found_and_its_mend_is_measured(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", "--shapes=image:1x8x8x1,32x8x8x1")
    done = run_tftrt(
        "diagnose",
        zoo_model("digits_cnn"),
        tmp_path / "model",
        "--shapes=image:1x8x8x1,8x8x8x1,32x8x8x1",
        "--try",
        f"--json={tmp_path / 'd.json'}",
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "d.json").read_text())["findings"][0]
    assert first["cause"] == "fallback" and "8x8x8x1" in first["call"], done.stdout
    trial = first["trial"]
    report(test="diagnose", model="digits_cnn, batch 8 without an engine", worth_ms=1e3 * first["worth"], trial=trial)
    assert not trial["problem"] and trial["after"] < trial["before"], trial
