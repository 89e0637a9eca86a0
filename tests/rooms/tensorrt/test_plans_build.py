"""`tftrt build PLAN` without a GPU: what it keeps and changes, what it refuses. Real builds are in test_gpu_plans.py."""

import json
import shutil

import pytest

from tests import doubles, onnx_files, plan_jobs, stacks
from tests.command_line import assert_clear
from tests.gpu_commands import NO_GPU
from tftrt_tools.base import errors
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.tensorrt.plans import build, building, convert, making
from tftrt_tools.tensorrt.plans.settings import Settings

TABLE = "TRT-8503-EntropyCalibration2\nx: 3c010a14\n"
FLAGS = "--backend=tensorrt\n--precision=INT8\n--shapes=x:8x4\n"


@pytest.fixture
def builds(monkeypatch):
    """Everything but TensorRT's own part, and its Python package."""
    monkeypatch.setattr(bindings, "installed", lambda: True)
    doubles.job(monkeypatch, building.build, plan_jobs.built)
    doubles.job(monkeypatch, building.check, plan_jobs.checked)
    monkeypatch.setattr(making, "_check_calls", lambda *arguments: None)


@pytest.fixture
def plan(builds, tmp_path):
    """A plan directory in INT8, with a table that is gone, weights beside the graph, a library of plugins, and a verification."""
    folder = tmp_path / "made"
    folder.mkdir()
    source = onnx_files.product(folder / "source.onnx", outside=True)
    (folder / "own.so").write_bytes(b"library")
    (folder / "table").write_text(TABLE)
    settings = Settings(
        precision_mode="INT8",
        shapes="x:8x4",
        calibration_table=str(folder / "table"),
        plugins=(str(folder / "own.so"),),
    )
    convert.convert(source, tmp_path / "plan", settings, flag_file=FLAGS)
    passport.write(tmp_path / "plan", passport.VERIFY, {"passed": True})
    (folder / "table").unlink()
    return tmp_path / "plan"


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_plan_is_built_anew_from_what_its_directory_keeps(plan, tmp_path):
    before = snapshot(plan)
    done = build.build(plan, tmp_path / "again", build.Options())
    assert snapshot(plan) == before
    said, first = (passport.read(path, passport.MANIFEST) for path in (tmp_path / "again", plan))
    assert (said["source"], said["source_digest"], said["before"]) == (
        first["source"],
        first["source_digest"],
        files.digest(plan),
    )
    assert (
        done.ranged == 1
        and first["before"] == ""
        and (tmp_path / "again/model.plan").read_bytes() == (plan / "model.plan").read_bytes()
    )
    kept = {*snapshot(tmp_path / "again")} | {(passport.folder(plan) / passport.VERIFY).relative_to(plan)}
    assert kept == {*before}, "all but the verification, which was of another plan"
    assert document.read(tmp_path / "again").plugins[0].file == "plugins/own.so"
    assert (passport.folder(tmp_path / "again") / passport.FLAGS).read_text() == FLAGS


def test_other_shapes_replace_the_plan_in_its_place(plan, tmp_path):
    (plan / "model.plan").write_bytes(b"cut")
    done = build.build(plan, None, build.Options(shapes="x:1x4|x:min=2x4,max=9x4", max_workspace_size_bytes=1 << 20))
    assert [one.text() for one in document.read(plan).profiles] == ["x 1x4", "x 2x4 to 9x4"] and done.output == str(
        plan
    )
    said = passport.read(plan, passport.MANIFEST)
    assert said["settings"]["max_workspace_size_bytes"] == 1 << 20 and said["settings"]["precision_mode"] == "INT8"
    assert "--shapes=x:1x4|x:min=2x4,max=9x4" in (passport.folder(plan) / passport.FLAGS).read_text().splitlines()
    assert "--shapes=x:8x4" not in (passport.folder(plan) / passport.FLAGS).read_text()
    assert not list(tmp_path.glob(".*")) and (plan / "model.onnx").is_file()
    # Once more: the libraries of plugins come from the directory itself.
    build.build(plan, None, build.Options())
    assert [one.text() for one in document.read(plan).profiles] == ["x 1x4", "x 2x4 to 9x4"]


def test_a_directory_without_ranges_of_its_own_needs_its_table(plan):
    (passport.folder(plan) / document.RANGES).unlink()
    with pytest.raises(errors.UsageError, match="--calibration_table=.*no such file"):
        build.build(plan, None, build.Options())


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("model.onnx", "has no model.onnx, from which its plan could be built"),
        ("assets.extra/tftrt/manifest.json", "has no assets.extra/tftrt/manifest.json"),
        ("plugins/own.so", "needs the plugins of"),
        ("model.onnx.data", ""),
    ],
)
def test_a_directory_that_lacks_something_stays_as_it_is(plan, tftrt, gone, says):
    shutil.move(plan / gone, plan.parent / "away") if (plan / gone).exists() else next(plan.glob("*.data")).unlink()
    before = snapshot(plan)
    done = tftrt("build", plan, env=NO_GPU)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr and says in done.stderr, done.stderr
    assert snapshot(plan) == before


def test_a_damaged_manifest_is_told(plan, tftrt):
    path = passport.folder(plan) / passport.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "settings": {"precision_mode": "FP8"}}))
    assert_clear(tftrt("build", plan, env=NO_GPU), 1, "manifest.json is damaged")


def test_other_shapes_than_the_model_takes_are_refused_before_the_build(plan, tftrt):
    before = snapshot(plan)
    assert_clear(tftrt("build", plan, "--shapes=x:8x5"), 2, "refuses x:8x5")
    assert_clear(tftrt("build", plan, "--shapes=x:8x4|"), 2, "--shapes is empty")
    assert_clear(tftrt("build", plan, f"--output={plan.parent}"), 2, "lie inside one another")
    assert snapshot(plan) == before


@stacks.needs_bindings
def test_without_a_gpu_the_directory_stays_as_it_is(plan, tftrt, monkeypatch):
    monkeypatch.undo()
    before = snapshot(plan)
    assert_clear(tftrt("build", plan, "--max_build_minutes=1", env=NO_GPU), 1, "no GPU is visible here")
    assert snapshot(plan) == before and [path.name for path in plan.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "flag",
    [
        "--strip",
        "--repeat=2",
        "--layer_precisions",
        "--dynamic_shape_profile_strategy=Range",
        "--allow_build_at_runtime",
        "--tags=serve",
    ],
)
def test_flags_of_tf_trt_have_no_effect_on_a_plan(plan, tftrt, flag):
    assert_clear(tftrt("build", plan, flag), 2, f"{flag.partition('=')[0]} has no effect: ")


def test_the_command_says_what_it_built(plan, tftrt, monkeypatch):
    asked = []
    doubles.job(monkeypatch, building.build, lambda request: asked.append(request) or plan_jobs.built(request))
    done = tftrt("build", plan, "--shapes=x:16x4", "--max_build_minutes=1")
    # The bound is the child's; what else it does has time besides.
    assert [one.minutes for one in asked] == [1.0]
    assert done.returncode == 0 and "INT8 plan of" in done.stdout and f"written: {plan}" in done.stdout, done.stderr
    assert "next, with --data of your own: tftrt verify " in done.stdout


@pytest.mark.parametrize(("opset", "says"), [(18, "the file has opset 18, and 16 is what `tftrt export "), (16, "")])
def test_a_build_that_dies_on_a_newer_file_says_how_to_make_an_older_one(opset, says, tmp_path, tftrt, monkeypatch):
    monkeypatch.setattr(bindings, "installed", lambda: True)
    monkeypatch.setattr(building, "build", plan_jobs.dying)
    doubles.job(monkeypatch, building.check, plan_jobs.checked)
    source = onnx_files.product(tmp_path / "m.onnx", opset=opset)
    done = tftrt(
        "convert", "--backend=tensorrt", f"--model={source}", f"--output={tmp_path / 'plan'}", "--shapes=x:8x4"
    )
    cause, mend = done.stderr.splitlines()[:2]
    assert (
        done.returncode == 1
        and "native code ended the process (SIGSEGV)" in cause
        and says in mend
        and ("opset" in mend) == bool(says)
    )
    assert not (tmp_path / "plan").exists()
