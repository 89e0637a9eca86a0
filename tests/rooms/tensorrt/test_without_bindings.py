"""A Python without TensorRT's Python package, as 3.12 is with TensorRT 8.6: each command that builds or runs plans says so, and what installs
it. Where the package is installed, the children do not find it."""

import re
import sys

import numpy as np
import pytest

from tests import conftest, doubles, onnx_files, plan_jobs
from tests.command_line import assert_clear
from tests.gpu_commands import NO_GPU
from tftrt_tools.base import errors
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.studies.profiling import plan
from tftrt_tools.tensorrt.plans import building, convert, making
from tftrt_tools.tensorrt.plans.settings import Settings

ROOT = conftest.ROOT
HIDDEN = {"PYTHONPATH": f"{ROOT / 'tests/without_tensorflow'}:{ROOT}", "TFTRT_TEST_HIDDEN": "tensorrt"}
GOAL = ("--data=rows.npz", "--accuracy=snr_db:threshold=30", "--shapes=x:8x4", "--output=out")
RUN, BUILD = "plan, a plan of TensorRT 8.5.3.1, does not run here", "no plan can be built here"
TUNE = "tune measures speed, and plans cannot be built here"
COMMANDS = [
    (BUILD, "convert --backend=tensorrt --model=model.onnx --output=out --shapes=x:8x4"),
    (BUILD, "convert --flagfile=plan/assets.extra/tftrt/convert.flags --output=out"),
    (BUILD, "build plan"),
    (BUILD, "build plan --output=out"),
    (RUN, "verify model.onnx plan"),
    (RUN, "verify plan model.onnx --data=rows.npz"),
    (RUN, "verify model.onnx plan --tensors=all"),
    (RUN, "bench model.onnx plan"),
    (RUN, "bench --in_process=plan"),
    (RUN, "bench localhost:1 --model_name=m --original=plan"),
    (RUN, "smoke localhost:1 --model_name=m --original=plan"),
    (RUN, "regress --native=model.onnx --candidate=plan"),
    (TUNE, " ".join(("tune model.onnx", *GOAL))),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with an ONNX file, rows for it, and a plan directory whose plan nothing can run."""
    folder = tmp_path_factory.mktemp("plans")
    source = onnx_files.product(folder / "model.onnx")
    np.savez(folder / "rows.npz", x=np.random.default_rng(0).random([16, 4], np.float32))
    flags = f"--backend=tensorrt\n--model={source}\n--precision=FP16\n--shapes=x:8x4\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bindings, "installed", lambda: True)
        doubles.job(patch, building.build, plan_jobs.built)
        patch.setattr(making, "_check_calls", lambda *arguments: None)
        convert.convert(source, folder / "plan", Settings(precision_mode="FP16", shapes="x:8x4"), flag_file=flags)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(("cannot", "line"), COMMANDS, ids=[line for _, line in COMMANDS])
def test_a_command_that_needs_it_is_two_lines_and_writes_nothing(work, cannot, line):
    before = contents(work)
    done = conftest.run_tftrt(*line.split(), cwd=work, env=HIDDEN)
    assert_clear(done, 1, f"{cannot}: {errors.no_bindings()}\n")
    mend = done.stderr.splitlines()[1]
    assert "in a checkout of tftrt-tools: pip install -c constraints.txt '.[tftrt]'" in mend
    assert ("with Python 3.10" in mend) == (sys.version_info[:2] != (3, 10))
    assert contents(work) == before


@pytest.mark.slow
def test_to_tune_a_plan_is_refused_after_the_note_of_what_is_tuned(work):
    before = contents(work)
    done = conftest.run_tftrt("tune", "plan", *GOAL, cwd=work, env=HIDDEN)
    note, *lines = done.stderr.splitlines(keepends=True)
    assert note.startswith("plan is a plan: its plan is not read")
    done.stderr = "".join(lines)
    assert_clear(done, 1, f"{TUNE}: {errors.no_bindings()}\n")
    assert contents(work) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["inspect plan", "publish plan --server=triton --unverified --model_name=m --base_path=published"]
)
def test_what_only_reads_a_plan_does_without_it(work, line):
    done = conftest.run_tftrt(*line.split(), cwd=work, env=HIDDEN)
    assert done.returncode == 0 and errors.no_bindings() not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", ["diagnose model.onnx plan --stored", "profile plan --stored"])
def test_a_kept_profile_is_looked_for_without_it(work, line):
    done = conftest.run_tftrt(*line.split(), cwd=work, env={**HIDDEN, **NO_GPU})
    assert_clear(done, 1, "plan carries no profile")


@pytest.mark.parametrize(
    ("python", "built_with", "says"),
    [
        (
            (3, 10),
            "",
            r"in a checkout of tftrt-tools: pip install -c constraints.txt '.\[tftrt\]'; or install the tensorrt of .*",
        ),
        ((3, 11), "", r"pip install tensorrt==8\.6\.1 .*; or install the tensorrt of your GPU's driver"),
        ((3, 12), "", r"with Python 3\.10, in a checkout of .*; or install the tensorrt of your GPU's driver"),
        ((3, 10), "8.5.3.1", r"in a checkout of .*"),
        ((3, 11), "8.5.3.1", r"with Python 3\.10, in a checkout of .*"),
        ((3, 12), "8.5.3.1", r"with Python 3\.10, in a checkout of .*"),
        ((3, 11), "8.6.1", r"pip install tensorrt==8\.6\.1 .*"),
        ((3, 12), "8.6.1", r"with Python 3\.10 or 3\.11: pip install tensorrt==8\.6\.1 .*"),
        ((3, 12), "10.3.0.26", r"pip install 'tensorrt==10\.3\.0\.\*'"),
        ((3, 12), "10.8.0", r"pip install 'tensorrt==10\.8\.0\.\*'"),
        ((3, 12), "10.3; rm x", r"install the tensorrt that the plan was built with"),
        ((3, 12), "?", r"install the tensorrt that the plan was built with"),
    ],
)
def test_the_mend_is_for_this_python_and_this_plan(monkeypatch, python, built_with, says):
    monkeypatch.setattr(sys, "version_info", (*python, 0))
    told = bindings.missing("plan does not run here", built_with)
    assert re.fullmatch(says, told.mend)
    assert told.cause.endswith(f"TensorRT's Python package is not installed for this Python 3.{python[1]}")


def test_a_folder_of_its_name_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "tensorrt").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    assert not bindings.installed()
    (tmp_path / "tensorrt/__init__.py").write_text("")
    assert bindings.installed()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from tensorrt_bindings import *", "does not load in this Python .*: No module named 'tensorrt_bindings'"),
        ("from . import tensorrt", "does not load in this Python .*: cannot import name 'tensorrt'"),
    ],
)
def test_a_package_that_lacks_a_part_is_told_as_such(monkeypatch, tmp_path, text, says):
    """TensorRT 8.6's package takes all it has from another one, which may be missing."""
    (tmp_path / "tensorrt").mkdir()
    (tmp_path / "tensorrt/__init__.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("tensorrt")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(errors.TftrtError, match=says) as told, errors.translated():
        __import__("tensorrt")
    assert told.value.mend == errors.install_bindings()


def test_engines_that_are_to_be_taken_apart_name_it_once(monkeypatch, tmp_path):
    """Each of the six parts said it for itself on a GPU with Python 3.12."""
    asset = engine_assets.EngineAsset(engine="e", input_shapes=((1, 8),), bytes=1, tensorrt="8.6.1.6")
    monkeypatch.setattr(engine_assets, "read", lambda model: [asset])
    monkeypatch.setattr(bindings, "installed", lambda: False)
    found, (remark,) = plan.measure(tmp_path)
    assert not found and remark.startswith(f"the engines cannot be taken apart: {errors.no_bindings()} (")
    assert bindings.missing("", "8.6.1.6").mend in remark
