"""--on=local on GPUs: trials of `tftrt tune` side by side, and a model built for the kind of GPU that is here. `make gpu-test`."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, run_tftrt
from tests.gpu.test_gpu_tune import tune
from tests.gpu_commands import verify

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.gpu_alone,
    pytest.mark.timeout(590),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"),
]


def gpus():
    """How many GPUs this process may use."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(visible.split(","))
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())


def test_trials_run_on_two_gpus_and_what_they_made_wins(zoo_model, images, tmp_path):
    if gpus() < 2:
        pytest.skip("two GPUs are needed")
    model, work = zoo_model("digits_cnn"), tmp_path / "work"
    flags = ["--accuracy=top1:max-degradation=0.01", "--max_trials=6", "--server=triton", "--on=local"]
    said, done = tune(model, images, work, *flags, f"--output_saved_model_dir={tmp_path / 'winner'}")
    assert "tried here" not in done.stderr and not any(one["failure"] for one in said["trials"]), done.stderr
    assert all(one["engines"] and one["latencies"] for one in said["trials"])
    where = [json.loads(path.read_text()).get("where", "") for path in work.glob("trial-*.json")]
    assert len({one for one in where if one}) >= 2, where
    assert verify(model, tmp_path / "winner")[0] == 0
    # The same trials in one process, from the journal.
    again, _ = tune(model, images, work, *flags[:-1])
    assert [one["latencies"] for one in again["trials"]] == [one["latencies"] for one in said["trials"]]
    assert again["winner"] == said["winner"]


def test_a_model_is_built_for_the_kind_that_is_here(converted, zoo_model, tmp_path):
    model = converted("digits_cnn", "--precision_mode=FP16", "--use_dynamic_shape")
    done = run_tftrt(
        "build",
        model,
        "--shapes=image:1x8x8x1,8x8x8x1",
        "--on=local",
        f"--output_saved_model_dir={tmp_path / 'out'}",
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
