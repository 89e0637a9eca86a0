"""`tftrt tune` of ONNX files and of plan directories, without a GPU and without TensorFlow: ONNX Runtime stands in for the plans."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from tests import onnx_files, plan_recordings, stacks
from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.studies.tuning import given

SHAPES = "--shapes=image:1x8x8x1,8x8x8x1"
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
PRECISIONS = {"digits.onnx": ("FP32", "FP16", "INT8"), "plan": ("FP16",)}
# A Python in which TensorFlow and TensorRT are hidden.
BARE = os.pathsep.join([str(ROOT / "tests/without_tensorflow"), str(ROOT)])


@pytest.fixture(scope="module")
def folder(onnx_model, tmp_path_factory):
    """A folder with the digits as digits.onnx, and with a plan directory `plan` around the same file."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copy(onnx_model("digits_cnn"), folder / "digits.onnx")
    plan_recordings.directory(folder / "plan")
    (folder / "plan/model.onnx").write_bytes((folder / "digits.onnx").read_bytes())
    return folder


@pytest.fixture(scope="module", params=["digits.onnx", "plan"])
def tuned(request, folder, images, tmp_path_factory):
    """(the model, the folder in which it was tuned, CompletedProcess)."""
    work = tmp_path_factory.mktemp("tuned")
    model = folder / request.param
    # Of a plan its file is searched: once it is found, the search is the same.
    precisions = PRECISIONS[request.param]
    flags = [
        f"--precision={','.join(precisions)}",
        f"--data={images / 'held_back.npz'}",
        "--data_rows=80",
        SHAPES,
        "--accuracy=snr_db:threshold=15",
        f"--calibration_data={images / 'calibration.npz'}",
        "--num_calibration_batches=8",
        "--objective_shape=image:1x8x8x1",
        "--output_flagfile=winner.flags",
        "--html=tuning.html",
        f"--engine_cache_dir={work / 'engines'}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.tune_unbuilt", str(model), *flags],
        capture_output=True,
        text=True,
        cwd=work,
        env={**os.environ, "PYTHONPATH": BARE, **NO_GPU},
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return model, work, done


def test_plans_of_a_file_are_searched_without_tensorflow(tuned):
    model, work, done = tuned
    said = json.loads((work / f"tune-{model.name}/tuning.json").read_text())
    file = model / "model.onnx" if model.is_dir() else model
    assert said["model"] == str(file) and said["native_runtime"] == "ONNX Runtime on the CPU"
    trials = said["trials"]
    if "INT8" in PRECISIONS[model.name]:
        *trials, as_chosen = trials
        # Its builds need a GPU, and here even TensorRT's package is hidden.
        assert as_chosen["settings"]["int8_as"] == "auto"
        assert as_chosen["failure"] == f"no plan can be built here: {errors.no_bindings()}"
    assert [(one["backend"], one["settings"]["precision_mode"]) for one in trials] == [
        ("tensorrt", one) for one in PRECISIONS[model.name]
    ]
    assert not any(one["failure"] for one in trials) and all(one["kept"] for one in trials)
    assert said["server"] == "" and not any(one.get("compared") for one in trials)
    levels = [float(one["accuracy"]) for one in trials]
    assert levels == sorted(levels, reverse=True) and levels[-1] > 15
    assert model.is_dir() or levels[0] > 100 > levels[1]
    assert (
        said["objective"] == "serving_default(image 1x8x8x1)"
        and said["winner"]
        and said["final"]["call"] == said["objective"]
    )
    assert "times as fast as ONNX Runtime on the CPU" in done.stdout and "TensorFlow" not in done.stdout
    page = (work / "tuning.html").read_text()
    assert "<td>ONNX Runtime on the CPU</td>" in page and "<td>TensorFlow</td>" not in page


def test_of_a_plan_directory_its_file_is_tuned_and_that_is_said(tuned):
    model, work, done = tuned
    told = f"{model} is a plan: its plan is not read, and what is tuned is model.onnx, from which it was built"
    notes = json.loads((work / f"tune-{model.name}/tuning.json").read_text())["notes"]
    assert (told in notes, told in done.stdout) == (model.is_dir(), model.is_dir())


def test_the_recipe_makes_the_file_of_the_winner_again(tuned, tmp_path):
    model, work, done = tuned
    said = json.loads((work / f"tune-{model.name}/tuning.json").read_text())
    export, convert = (shlex.split(one)[1:] for one in said["recipe"])
    assert export[:2] == ["export", said["model"]] and not any("signature_keys" in word for word in export)
    made = next(word for word in export if word.startswith("--output=")).removeprefix("--output=")
    again = run_tftrt(
        *(f"--output={tmp_path / 'model.onnx'}" if word.startswith("--output=") else word for word in export)
    )
    assert again.returncode == 0, again.stderr
    assert onnx.load(tmp_path / "model.onnx").graph == onnx.load(made).graph
    assert (
        convert[:2] == ["convert", "--flagfile=winner.flags"]
        and f"--model={made}" in (work / "winner.flags").read_text()
    )
    assert re.search(
        rf"^next: tftrt convert --flagfile=winner.flags --output=\S*{model.stem}_tuned$|^next: .*model_tuned$",
        done.stdout,
        re.MULTILINE,
    )


def needed(tmp_path):
    np.savez(tmp_path / "data.npz", image=np.random.default_rng(0).random((8, 8, 8, 1), np.float32))
    return (f"--data={tmp_path / 'data.npz'}", "--accuracy=snr_db:threshold=30", SHAPES)


@stacks.needs_bindings
@pytest.mark.parametrize("name", ["digits.onnx", "plan"])
def test_without_a_gpu_the_reason_is_told_and_nothing_is_left(folder, tftrt, tmp_path, name):
    done = tftrt("tune", folder / name, *needed(tmp_path), "--backend=tensorrt", cwd=tmp_path, env=NO_GPU)
    told = [line for line in done.stderr.splitlines() if "is a plan: " not in line]
    assert done.returncode == 1 and told[0].startswith(
        "tftrt: error: tune measures speed, and plans cannot be built here: no GPU is visible here"
    )
    assert len(told) == 2 and "`tftrt doctor`" in told[1] and [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_without_tensorrt_it_says_what_to_install(folder, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tftrt_tools",
            "tune",
            str(folder / "digits.onnx"),
            *needed(tmp_path),
            "--backend=tensorrt",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": BARE, **NO_GPU},
        timeout=120,
    )
    assert_clear(done, 1, f"tune measures speed, and plans cannot be built here: {errors.no_bindings()}")


@pytest.mark.parametrize(
    ("name", "flags", "says", "mend"),
    [
        (
            "digits.onnx",
            ("--backend=tftrt",),
            "--backend=tftrt cannot tune ",
            "--backend=tensorrt searches among plans of TensorRT itself",
        ),
        (
            "plan",
            ("--backend=tftrt",),
            "it is a plan directory, and TF-TRT takes TensorFlow models",
            "--backend=tensorrt",
        ),
        (
            "digits.onnx",
            ("--server=tensorflow",),
            "--server=tensorflow: TensorFlow Serving runs nothing that tensorrt makes of an ONNX file",
            "--server=triton, or leave --server out",
        ),
        (
            "digits.onnx",
            ("--backend=tftrt,tensorrt",),
            "it is an ONNX file, and TF-TRT takes TensorFlow models",
            "--backend=tensorrt",
        ),
        ("digits.onnx", ("--backend=tensorrt", "--inputs=image"), "--inputs has no effect", "leave it out"),
        ("digits.onnx", ("--backend=tensorrt", "--signature_keys=score"), "no signature 'score'", "serving_default"),
        (
            "plan",
            ("--backend=tensorrt", "--output=PLAN", "--overwrite"),
            "lie inside one another",
            "another output directory",
        ),
        ("none.onnx", ("--backend=tensorrt",), "no such file: ", "check the path"),
        (
            "program.pt2",
            ("--backend=tensorrt",),
            "it is a PyTorch program",
            "`tftrt tune FILE --backend=tensorrt` takes that",
        ),
    ],
)
def test_what_cannot_be_tuned_is_a_line_with_its_mend(folder, tftrt, tmp_path, name, flags, says, mend):
    done = tftrt(
        "tune",
        folder / name,
        *needed(tmp_path),
        *(word.replace("PLAN", str(folder / "plan")) for word in flags),
        cwd=tmp_path,
        env=NO_GPU,
    )
    assert_clear(done, 2, says)
    assert mend in done.stderr.splitlines()[-1] and [path.name for path in tmp_path.iterdir()] == ["data.npz"]


def test_a_plan_that_is_not_whole_is_refused(folder, tmp_path):
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan/plan.json").write_bytes((folder / "plan/plan.json").read_bytes())
    with pytest.raises(errors.TftrtError, match="plan"):
        given.model(tmp_path / "plan", ("tensorrt",))


@pytest.mark.parametrize("precision", ["FP16", "INT8"])
def test_a_file_with_a_precision_inside_names_what_to_tune(folder, tmp_path, precision, tftrt):
    source = pathlib.Path(onnx_files.two_products(tmp_path / "given.onnx"))
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    data = [f"--calibration_data={tmp_path / 'rows.npz'}", "--nojudge_precision"] if precision == "INT8" else []
    assert (
        tftrt("export", source, f"--output={tmp_path / 'made.onnx'}", f"--precision={precision}", *data).returncode == 0
    )
    plan_recordings.directory(tmp_path / "plan")
    (tmp_path / "plan/model.onnx").write_bytes((tmp_path / "made.onnx").read_bytes())
    with pytest.raises(errors.UsageError, match="made.onnx has a precision written in already") as raised:
        given.model(tmp_path / "made.onnx", ("tensorrt",))
    assert raised.value.mend == f"tune what it was made from: {os.path.relpath(source)}"
    with pytest.raises(errors.UsageError, match="plan/model.onnx has a precision written in already"):
        given.model(tmp_path / "plan", ("tensorrt",))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("image:3x8x8x1", "--objective_shape=image:3x8x8x1 is not one of --shapes"),
        ("image", "--objective_shape: 'image' names no input"),
        ("pixels:1x8x8x1", "--objective_shape: no input 'pixels'"),
        ("image:1x9x8x1", "--objective_shape=image:1x9x8x1 is not one of --shapes"),
        ("image:0x8", "--objective_shape: "),
        ("score/image:1x8x8x1", "--objective_shape: no signature 'score'"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "model"])
def test_a_shape_to_minimize_is_checked_before_a_gpu_is_looked_for(
    folder, zoo_model, tftrt, tmp_path, kind, shape, says
):
    model = folder / "digits.onnx" if kind == "file" else zoo_model("digits_cnn")
    backends = ("--backend=tensorrt",) if kind == "file" else ()
    assert_clear(
        tftrt("tune", model, *needed(tmp_path), *backends, f"--objective_shape={shape}", cwd=tmp_path, env=NO_GPU),
        2,
        says,
    )


def test_optimize_checks_it_before_anything_is_run(zoo_model, tftrt, tmp_path):
    data, _, shapes = needed(tmp_path)
    done = tftrt(
        "optimize",
        zoo_model("digits_cnn"),
        data,
        shapes,
        "--accuracy=snr_db:threshold=30",
        "--output=out",
        "--objective_shape=image:3x8x8x1",
        cwd=tmp_path,
        env=NO_GPU,
    )
    assert_clear(done, 2, "--objective_shape=image:3x8x8x1 is not one of --shapes")
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]
