"""`tftrt verify --tensors` of TF-TRT's engines: those that are saved give what leaves them; for what is inside they are built anew. `make
gpu-test`."""

import json

import pytest

from tests import stacks
from tests.conftest import run_tftrt
from tests.gpu_commands import convert, report

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]
BUILT = "Building a new TensorRT engine"


@pytest.fixture(scope="module", params=["implicit", "profiles"])
def engines(request, zoo_model, tmp_path_factory):
    """digits_cnn in FP16 with saved engines for batches of 1 and 8."""
    path = tmp_path_factory.mktemp("tensors") / request.param
    flags = ["--use_dynamic_shape" if request.param == "profiles" else "--nouse_dynamic_shape"]
    convert(zoo_model("digits_cnn"), path, "--precision=FP16", "--shapes=image:1x8x8x1,8x8x8x1", *flags)
    return path


def compared(original, converted, tensors, folder):
    """(what is said, the log)."""
    done = run_tftrt(
        "verify",
        original,
        converted,
        f"--tensors={tensors}",
        f"--json={folder / 'j.json'}",
        f"--log_file={folder / 'log'}",
        timeout=370,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "j.json").read_text()), (folder / "log").read_text(errors="replace")


def test_inner_tensors_of_engines(engines, zoo_model, tmp_path):
    said, log = compared(zoo_model("digits_cnn"), engines, "all", tmp_path)
    levels = [float(one["snr_db"]) for one in said["inners"]]
    report(test="inner tensors", model=engines.name, levels=levels)
    assert (
        said["arithmetic"] == "FP16"
        and said["fallbacks"] == []
        and len(levels) == stacks.here().shared
        and said["passed"]
    )
    assert any(level < 120 for level in levels), "nothing of it is TensorFlow's own"
    assert BUILT in log and "_marked" in log


def test_what_leaves_a_saved_engine_is_asked_of_that_engine(engines, zoo_model, tmp_path):
    said, log = compared(zoo_model("digits_cnn"), engines, stacks.PROBABILITIES, tmp_path)
    (inner,) = said["inners"]
    assert 30 < float(inner["snr_db"]) < 120 and said["fallbacks"] == []
    assert BUILT not in log
