"""ResNet-50 in FP16 on a GPU, all the way: converted with engines, published, served by the development server, asked. `make gpu-test`."""

import json
import shutil

import pytest

from tests.conformance.launch import LocalServer
from tests.conftest import run_tftrt
from tests.gpu_commands import convert, report
from tftrt_tools.servers.serving.smoke import gate

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(580)]

SHAPES = "image:1x224x224x3,8x224x224x3"
BOUNDS = "--thresholds=snr_db>=25"  # random weights: the margins of top-1 are thin


def tftrt(*arguments):
    done = run_tftrt(*arguments, timeout=560)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_resnet50_is_published_served_and_its_engines_run_there(zoo_model, tmp_path):
    original, models = zoo_model("resnet50", size=224, width=64), tmp_path / "models"
    manifest = convert(original, tmp_path / "fp16", "--precision=FP16", f"--shapes={SHAPES}")
    tftrt("verify", original, tmp_path / "fp16", f"--shapes={SHAPES}", BOUNDS)
    tftrt("publish", tmp_path / "fp16", "--model_name=resnet50", f"--base_path={models}")
    shutil.copytree(original, models / "native" / "1")
    listed = " ".join(
        f'config {{ name: "{name}" base_path: "{models / name}" model_platform: "tensorflow" }}'
        for name in ("resnet50", "native")
    )
    (models / "models.config").write_text(f"model_config_list {{ {listed} }}")
    flags = [f"--model_config_file={models / 'models.config'}", "--max_num_load_retries=0"]
    with LocalServer(flags, tmp_path / "server.log", env={gate.VARIABLE: "False"}) as server:
        said = json.loads(
            tftrt(
                "smoke",
                server.grpc_address,
                "--model_name=resnet50",
                f"--original={original}",
                f"--shapes={SHAPES}",
                "--native_model_name=native",
                f"--server_pid={server.process.pid}",
                "--require_engines",
                "--timeout_seconds=120",
                BOUNDS,
                "--json=-",
            )
        )
    published = json.loads((models / "resnet50/1/assets.extra/tftrt/publish.json").read_text())
    report(
        test="served",
        model="resnet50 FP16",
        passed=True,
        engines=said["engines"],
        calls=said["calls"],
        comparisons=said.get("comparisons"),
        convert_seconds=manifest["seconds"],
        warm_up=published["warmup"]["count"],
    )
    assert published["warmup"]["count"] == 2  # one for each shape
    assert (said["engines"]["answer"], said["engines"]["certainty"]) == ("yes", "certain"), said["engines"]
