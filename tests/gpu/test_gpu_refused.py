"""A node that TensorRT itself refuses by name: it stays in TensorFlow, and the rest is built. On a GPU: `make gpu-test`."""

import numpy as np
import pytest

from tests import keras_layers
from tests.conftest import run_tftrt
from tests.gpu_commands import NO_GPU, convert, engines_of, report, verify
from tftrt_tools.models.savedmodel import passport

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]

MODEL = "conv1d"  # its depthwise convolution of one dimension has no kernel
SHAPES = f"--shapes={keras_layers.INPUT}:1x24x16,4x24x16"
# Its normalization stays in TensorFlow, so that TensorRT does not know how many channels come out of it.
OUTSIDE = "--keep_native_ops=FusedBatchNormV3"
WAYS = {
    "FP16": ["--precision=FP16"],
    "INT8": ["--precision=INT8", "--calibration_data=data.npz"],
    "TensorRT calibrates": [
        "--precision=INT8",
        "--calibration_data=data.npz",
        "--calibrator=tensorrt",
        "--calibration_batch_size=16",
    ],
}


def source(folder):
    """(model, flags by way)."""
    np.savez(folder / "data.npz", **keras_layers.inputs(MODEL, 32))
    named = {way: [flag.replace("data.npz", str(folder / "data.npz")) for flag in flags] for way, flags in WAYS.items()}
    return keras_layers.build(MODEL, folder / "in"), named


def went_on(way, said, model, target):
    """The refused node is told, the rest runs in engines, and the answers are right."""
    (signature,) = said["signatures"]
    nodes = [one["node"] for one in signature["refused_nodes"]]
    code, result, error = verify(model, target)
    report(
        test="refused nodes",
        way=way,
        nodes=nodes,
        engines=len(engines_of(said)),
        coverage=signature["coverage"],
        snr_db=result and min(float(one["snr_db"]) for one in result["comparisons"]),
        passed=code == 0,
    )
    assert code == 0, error or result["problems"]
    assert nodes and all("depthwise" in node for node in nodes)
    assert engines_of(said) and not signature["unbuilt"] and 0 < signature["coverage"] < 1


@pytest.mark.parametrize("way", WAYS)
def test_convert_goes_on_without_the_node(way, tmp_path):
    model, flags = source(tmp_path)
    # TensorRT's own calibration builds each engine twice.
    shapes = SHAPES.rpartition(",")[0] if way == "TensorRT calibrates" else SHAPES
    said = convert(model, tmp_path / "out", shapes, "--noengine_cache", OUTSIDE, *flags[way])
    went_on(way, said, model, tmp_path / "out")


@pytest.mark.parametrize("way", ["FP16", "INT8"])
def test_build_splits_the_engine_op(way, tmp_path):
    model, flags = source(tmp_path)
    convert(model, tmp_path / "plain", "--use_dynamic_shape", OUTSIDE, *flags[way], env=NO_GPU)
    done = run_tftrt("build", tmp_path / "plain", f"--output={tmp_path / 'out'}", SHAPES, timeout=550)
    assert done.returncode == 0, done.stderr
    went_on(f"build {way}", passport.read(tmp_path / "out", passport.MANIFEST), model, tmp_path / "out")


def test_without_leave_the_whole_engine_op_stays(tmp_path):
    model, flags = source(tmp_path)
    done = run_tftrt(
        "convert",
        f"--model={model}",
        f"--output={tmp_path / 'out'}",
        SHAPES,
        OUTSIDE,
        "--noengine_cache",
        "--noleave_refused_nodes",
        *flags["FP16"],
        timeout=550,
    )
    report(test="refused nodes", way="not left", exit=done.returncode, passed=done.returncode in (1, 3))
    assert done.returncode in (1, 3) and "depthwise" in done.stderr + done.stdout, done.stderr + done.stdout
