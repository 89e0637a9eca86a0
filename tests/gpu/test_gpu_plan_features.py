"""Plans of small models with what kept models of others out of plans. On a GPU: `make gpu-test`."""

import json

import pytest

from tests import feature_models, stacks
from tests.conftest import run_tftrt
from tests.gpu_commands import report

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(380), stacks.needs_bindings]


@pytest.mark.parametrize("kind", feature_models.FEATURES)
def test_the_plan_answers_as_the_model(kind, tmp_path):
    shapes = feature_models.save(kind, tmp_path / "m")
    made = run_tftrt(
        "convert",
        "--backend=tensorrt",
        f"--model={tmp_path / 'm'}",
        f"--output={tmp_path / 'plan'}",
        "--precision=FP16",
        f"--shapes={shapes}",
        timeout=350,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    verified = run_tftrt("verify", tmp_path / "m", tmp_path / "plan", "--json=-")
    said = json.loads(verified.stdout)
    report(test="plan features", model=kind, passed=verified.returncode == 0, snr_db=said["comparisons"][0]["snr_db"])
    assert verified.returncode == 0, said["problems"]
