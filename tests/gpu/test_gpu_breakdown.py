"""`tftrt bench --breakdown` on a GPU: the engines have a part of their own. `make gpu-test`."""

import json

import pytest

from tests.conformance.launch import LocalServer
from tests.conftest import run_tftrt
from tests.gpu_commands import EXACT, convert, report
from tftrt_tools.studies.bench import breakdown

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]


def test_engines_have_a_part_of_the_time(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "models" / "digits" / "1", "--precision=FP16", EXACT)
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    flags = (
        "--model_name=digits",
        f"--model_base_path={tmp_path / 'models' / 'digits'}",
        f"--monitoring_config_file={tmp_path / 'monitoring'}",
    )
    with LocalServer(flags, tmp_path / "log") as server:
        done = run_tftrt(
            "bench",
            server.grpc_address,
            "--model_name=digits",
            "--breakdown",
            f"--rest={server.rest_address}",
            "--batch_size=8",
            f"--model_dir={tmp_path / 'models' / 'digits' / '1'}",
            "--duration_seconds=3",
            f"--json={tmp_path / 'b.json'}",
            timeout=400,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (taken,) = json.loads((tmp_path / "b.json").read_text())["breakdowns"]
    parts = {part["name"]: part["ms"] for part in taken["parts"]}
    report(test="breakdown", model="digits_cnn FP16", passed=True, parts=parts, alone=taken["alone"])
    assert parts[breakdown.ENGINES] > 0 and not any("no engine ran" in note for note in taken["notes"])
    assert sum(parts.values()) == pytest.approx(taken["total_ms"])
