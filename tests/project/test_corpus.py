"""Models that others have trained convert and verify on a CPU, each in all precisions with data of its kind: `make corpus`.

Models are made once, in build/real_models/models; results are kept in build/real_models/tests for the table that `make corpus` prints.
"""

import os
import pathlib

import pytest

from benchmarks import _precision_run
from benchmarks.real_models import __main__ as real_models
from benchmarks.real_models import cases, make, run
from tests.conftest import ROOT

BUILD = ROOT / "build" / "real_models"
MODELS = pathlib.Path(
    os.environ.get("TFTRT_CORPUS", BUILD / "models")
)  # TFTRT_CORPUS=DIR: models that were made before


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", cases.chosen([]), ids=lambda case: case.name)
def test_a_real_model_converts_and_verifies_in_every_precision(case):
    if not make.made(MODELS, case):
        make.make(MODELS, case)
    output = BUILD / "tests"
    real_models.main([f"--models={case.name}", f"--models_dir={MODELS}", f"--output={output}", "--again"])
    lines = _precision_run.read(output / run.FILE)
    last = {line["column"]: line for line in lines if line["kind"] == "step" and line["model"] == case.name}
    exported = last.pop("export ONNX")
    if case.no_onnx:
        assert exported["exit"] == 1 and case.no_onnx in exported["message"], exported["message"]
    else:
        assert exported["exit"] == 0, exported["message"]
    assert set(last) == {
        "inspect",
        *(f"{step} {precision}" for step in ("convert", "verify") for precision in ("FP32", "FP16", "INT8")),
    }
    wrong = {name: line["message"] for name, line in last.items() if line["exit"] or line["traceback"]}
    for name, why in case.fails:
        assert why in wrong.pop(name, ""), last[name]
    if last["verify INT8"]["exit"] == 3 and "wanted" in wrong.get("verify INT8", ""):
        # What 8 bits cost a model is no fault of the conversion, and verify says it.
        del wrong["verify INT8"]
    assert wrong == {}
