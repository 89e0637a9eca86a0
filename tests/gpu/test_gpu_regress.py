"""`tftrt regress` on a GPU: engines run in both ways of asking, and an engine that cannot serve a shape is found. `make gpu-test`."""

import json

import pytest

from tests.conftest import run_tftrt
from tests.gpu_commands import EXACT, convert, report

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]
QUICK = ("--metrics=p50", "--rounds=12", "--max_rounds=12", "--requests=32", "--no_engine_fallback")


def regress(native, candidate, folder, *flags):
    done = run_tftrt(
        "regress",
        f"--native={native}",
        f"--candidate={candidate}",
        *QUICK,
        *flags,
        f"--json={folder / 'r.json'}",
        f"--log_file={folder / 'log'}",
        timeout=500,
    )
    return done, json.loads((folder / "r.json").read_text()) if (folder / "r.json").exists() else None


@pytest.mark.parametrize("way", ["--backend=local", "--in_process"])
def test_the_engines_of_the_candidate_ran(zoo_model, images, tmp_path, way):
    manifest = convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", EXACT)
    done, document = regress(
        zoo_model("digits_cnn"),
        tmp_path / "model",
        tmp_path,
        way,
        f"--data={images / 'held_back.npz'}",
        "--batch_size=8",
        f"--labels={images / 'labels.npy'}",
        "--accuracy=top1:max-degradation=0.01",
        "--engine_mib_at_most=64",
        "--build_seconds_at_most=600",
    )
    assert document and done.returncode in (0, 3, 4), done.stdout[-2000:] + done.stderr[-2000:]
    checks = {one["name"]: one["verdict"] for one in document["checks"]}
    report(
        test="regress",
        model=f"digits_cnn FP16, {way}",
        passed=True,
        engines=document["engines"],
        verdict=document["verdict"],
        outcome=document["outcome"],
        convert_seconds=manifest["seconds"],
    )
    assert (document["engines"]["answer"], document["engines"]["certainty"]) == ("yes", "certain"), document["engines"]
    assert (
        document["failed"] == {"native": 0, "candidate": 0}
        and checks["answers"] == checks["goal/no_engine_fallback"] == "pass"
    )
    assert checks["goal/engine_mib_at_most"] == checks["goal/build_seconds_at_most"] == "pass"


@pytest.mark.parametrize("way", ["--launch=local", "--in_process"])
def test_a_shape_without_an_engine_fails_the_goal(zoo_model, tmp_path, way):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", EXACT)
    done, document = regress(zoo_model("digits_cnn"), tmp_path / "model", tmp_path, way, "--batch_size=5")
    report(
        test="regress",
        model=f"digits_cnn FP16, a shape without an engine, {way}",
        passed=True,
        code=done.returncode,
        said=done.stderr[-500:],
    )
    assert done.returncode == 3, done.stdout[-2000:] + done.stderr[-2000:]
    failed = {one["name"]: one["reason"] for one in document["checks"] if one["verdict"] == "fail"}
    if way == "--in_process":
        assert "goal/no_engine_fallback" in failed, failed
    else:
        assert "no engine of the candidate serves" in failed["requests/candidate"] and document["verdict"] is None, (
            failed
        )
