"""--on=local on GPUs: trials of `tftrt tune` side by side, a model built for the kind of GPU that is here, and engines that another process builds.
`make gpu-test`."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, run_tftrt
from tests.engine_models import Steps, saved
from tests.gpu.test_gpu_tune import tune
from tests.gpu_commands import verify
from tests.rooms.tftrt.test_beside import ended, recorded
from tests.rooms.tftrt.test_engines import build
from tftrt_tools.models.engine_cache.store import Store
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.tftrt.conversion.job import beside

pytestmark = [pytest.mark.gpu, pytest.mark.gpu_alone, pytest.mark.timeout(590)]
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"
)


def gpus():
    """How many GPUs this process may use."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(visible.split(","))
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())


@needs_ray
def test_trials_run_on_two_gpus_and_what_they_made_wins(zoo_model, images, tmp_path):
    if gpus() < 2:
        pytest.skip("two GPUs are needed")
    model, work = zoo_model("digits_cnn"), tmp_path / "work"
    flags = ["--accuracy=top1:max-degradation=0.01", "--max_trials=6", "--server=triton", "--on=local"]
    said, done = tune(model, images, work, *flags, f"--output={tmp_path / 'winner'}")
    assert "tried here" not in done.stderr and not any(one["failure"] for one in said["trials"]), done.stderr
    assert all(one["engines"] and one["latencies"] for one in said["trials"])
    where = [json.loads(path.read_text())["measured"]["where"] for path in work.glob("trial-*.json")]
    assert len({one for one in where if one}) >= 2, where
    assert verify(model, tmp_path / "winner")[0] == 0
    # The same trials in one process, from the journal.
    again, _ = tune(model, images, work, *flags[:-1])
    assert [one["latencies"] for one in again["trials"]] == [one["latencies"] for one in said["trials"]]
    assert again["winner"] == said["winner"]


@needs_ray
def test_a_model_is_built_for_the_kind_that_is_here(converted, zoo_model, tmp_path):
    model = converted("digits_cnn", "--precision=FP16", "--use_dynamic_shape")
    done = run_tftrt(
        "build",
        model,
        "--shapes=image:1x8x8x1,8x8x8x1",
        "--on=local",
        f"--output={tmp_path / 'out'}",
        "--json=-",
        timeout=560,
    )
    assert done.returncode == 0, done.stderr
    (kind,) = json.loads(done.stdout)["kinds"]
    assert kind["status"] == "done" and kind["where"]["gpus"]
    code, checked, error = verify(zoo_model("digits_cnn"), tmp_path / "out" / kind["gpu_type"])
    assert code == 0 and checked["engine_runs"], error
    published = subprocess.run(
        [sys.executable, "-m", "tftrt_tools", "publish", str(tmp_path / "out"), "--model_name=digits"]
        + [f"--base_path={tmp_path / 'models'}", "--json=-"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert published.returncode == 0, published.stderr
    assert "nvidia.com/gpu.product" in published.stdout


def test_another_process_builds_engines_beside_the_conversion(tmp_path, monkeypatch):
    """On one GPU the helper has the same one; on several, another."""
    visible = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")
    monkeypatch.setenv(beside.VARIABLE, visible[-1])
    # On one GPU they would build in turns.
    monkeypatch.setenv("TFTRT_BUILD_TURNS", "0")
    helpers = []
    monkeypatch.setattr(beside.Helpers, "__init__", recorded(beside.Helpers.__init__, helpers))
    model = saved(Steps(), tmp_path / "model")
    store = Store(tmp_path / "cache")
    calls, gpu = [{"x": (1, 8)}, {"x": (4, 8)}], gpu_module.seen()
    result, _, _, _ = build(model, calls, tmp_path / "files", store, gpu=gpu)
    done = ended(helpers[0])
    assert done and not [one.exception() for one in done if one.exception()]
    assert len(result.built) == len(result.engines) > 1 and not result.unbuilt
    monkeypatch.delenv(beside.VARIABLE)
    again, _, _, _ = build(model, calls, tmp_path / "again", store, gpu=gpu)
    assert all(one.cached for one in again.built) and len(again.built) == len(result.built)


def test_a_conversion_with_helpers_verifies(zoo_model, tmp_path):
    if gpus() < 2:
        pytest.skip("two GPUs are needed")
    model, made = zoo_model("digits_cnn"), tmp_path / "made"
    done = run_tftrt(
        "convert", model, made, "--precision=FP16", "--shapes=image:1x8x8x1", "--keep_native_ops=MaxPool", "--on=local"
    )
    assert done.returncode == 0 and "changes nothing" not in done.stderr, done.stderr
    assert verify(model, made)[0] == 0
