"""`tftrt build --repeat` and the progress of a build on a GPU, and the whole way of `tftrt optimize`. `make gpu-test`."""

import json
import os
import re
import shlex

import pytest

from tests.conftest import ROOT, run_tftrt
from tests.gpu_commands import convert, engines_of, report, verify
from tftrt_tools.base.process import child, progress
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.conversion import build as builds
from tftrt_tools.tftrt.conversion import layer_log

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(590)]

SHAPES = "--shapes=image:1x8x8x1,32x8x8x1"


@pytest.mark.gpu_alone
def test_the_fastest_of_two_builds_is_kept_with_the_times_of_both(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16")
    done = run_tftrt(
        "build",
        tmp_path / "model",
        SHAPES,
        "--repeat=2",
        f"--output={tmp_path / 'best'}",
        f"--json={tmp_path / 'said.json'}",
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    found = said["repeats"]
    report(test="build_repeat", model="digits_cnn", repeats=found, gpu=said["gpu"]["name"])
    assert [one["number"] for one in found["builds"]] == [1, 2] and found["kept"] in (1, 2)
    assert all(
        set(one["ms"]) == {"serving_default(image 1x8x8x1)", "serving_default(image 32x8x8x1)"}
        for one in found["builds"]
    )
    assert all(not one["unbuilt"] and one["build_seconds"] > 0 for one in found["builds"])
    (other,) = (one["kept_is"] for one in found["builds"] if one["number"] != found["kept"])
    assert other["low"] <= other["times"] <= other["high"] and found["told_apart"] == (other["low"] > 1)
    assert ("cannot be told apart" in done.stdout) != found["told_apart"]
    # Nothing of a cache: a second build that took the first one's times would take a fraction of its seconds.
    seconds = [one["build_seconds"] for one in found["builds"]]
    assert not any(engine["cached"] for engine in engines_of(said)) and min(seconds) > 0.3 * max(seconds), seconds
    assert passport.read(tmp_path / "best", passport.MANIFEST)["build"]["repeats"] == found
    code, verified, told = verify(zoo_model("digits_cnn"), tmp_path / "best")
    assert code == 0 and verified["engine_runs"], told


@pytest.mark.gpu_alone
def test_the_progress_of_a_build_tells_layers_that_add_up(zoo_model, tmp_path, monkeypatch):
    """With two profiles, nothing cached. The verbose log is kept, for what TensorRT really writes."""
    monkeypatch.setenv("TFTRT_TIMING_CACHE", "0")
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", "--use_dynamic_shape")
    said, logs = [], []
    run = child.run

    def kept(*arguments, **flags):
        done = run(*arguments, **flags)
        logs.append(done.log)
        return done

    monkeypatch.setattr(child, "run", kept)
    with progress.listening(lambda text, done, total: said.append(text)):
        assert "trt_logger" in layer_log.env(False, False)["TF_CPP_VMODULE"]
        done = builds.build(tmp_path / "model", tmp_path / "built", builds.Options(shapes="image:1x8x8x1,32x8x8x1"))
    log = max(logs, key=len)
    if os.environ.get("TFTRT_GPU_REPORT"):
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build/build_verbose.log").write_text(log)
    told = [re.search(r"profile (\d) of 2, times layer (\d+) of at most (\d+)", one) for one in said]
    told = [tuple(map(int, one.groups())) for one in told if one]
    costs, profiles = (
        log.count("Computing costs for"),
        re.findall(r"optimization profile number (\d+) \[\d+/(\d+)\]", log),
    )
    report(
        test="build_progress",
        model="digits_cnn",
        told=told[:3] + told[-3:],
        costs=costs,
        profiles=profiles,
        layers=re.findall(r"After concat removal: (\d+) layers", log),
        seconds=done.seconds,
        estimates=[one for one in said if "left for this engine" in one][-1:],
    )
    assert profiles[-2:] == [("0", "2"), ("1", "2")] and told, said[-20:]
    assert all(at <= most for _, at, most in told) and told == sorted(told) and {one[0] for one in told} == {1, 2}


def test_optimize_goes_the_whole_way(zoo_model, images, tmp_path):
    words = [
        "optimize",
        zoo_model("digits_cnn"),
        f"--data={images / 'held_back.npz'}",
        f"--labels={images / 'labels.npy'}",
        "--accuracy=top1:max-degradation=0.01",
        "--batch_size=1,8",
        f"--output={tmp_path / 'best'}",
        f"--work_dir={tmp_path / 'work'}",
        f"--engine_cache_dir={tmp_path / 'engines'}",
        f"--publish={tmp_path / 'models/digits'}",
        "--precision=FP32,FP16",
        f"--html={tmp_path / 'report.html'}",
        f"--json={tmp_path / 'story.json'}",
    ]
    done = run_tftrt(*words, "--max_minutes=6", timeout=450)
    assert done.returncode in (0, 3, 4), done.stdout[-3000:] + done.stderr[-3000:]
    story = json.loads((tmp_path / "story.json").read_text())
    report(
        test="optimize",
        model="digits_cnn",
        outcome=story["outcome"],
        verdict=story["verdict"],
        steps=[
            (one["name"], one["state"], one["exit_code"], one["seconds"], one["gave"] or one["cause"])
            for one in story["steps"]
        ],
    )
    state = {one["name"]: one["state"] for one in story["steps"]}
    assert story["gpu"] and story["left"] == [] and state["tune"] == state["convert"] == state["verify"] == "done"
    assert {"regress-batch-1", "regress-batch-8"} <= set(state) and "<svg" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "models/digits/1").exists() == (story["outcome"] == "kept")
    commands = [shlex.split(line[2:]) for line in done.stdout.splitlines() if line.startswith("$ tftrt ")]
    again = run_tftrt(*words, "--max_minutes=1", timeout=120)
    before = [one["name"] for one in json.loads((tmp_path / "story.json").read_text())["steps"] if one["before"]]
    assert {"inspect", "tune", "convert", "verify"} <= set(before) and len(commands) >= 7, again.stdout[-2000:]
