"""What can never work is told before any work: nothing is converted, measured or written."""

import os

import numpy as np
import pytest

from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tftrt_tools.base import errors

_TUNE = ("tune", "model", "--accuracy=top1:max-degradation=0.01", "--shapes=image:1x8x8x1,8x8x8x1")
_REGRESS = ("regress", "--in_process", "--native=model", "--candidate=made")
_INT8 = "--precision=INT8"


@pytest.fixture
def folder(zoo_model, converted, images, tmp_path):
    os.symlink(zoo_model("digits_cnn"), tmp_path / "model")
    os.symlink(converted("digits_cnn", "--precision=FP16"), tmp_path / "made")
    for name in ("held_back.npz", "calibration.npz", "labels.npy"):
        os.symlink(images / name, tmp_path / name)
    rows = np.load(images / "held_back.npz")["image"]
    np.savez(tmp_path / "other_name.npz", pixels=rows)
    np.savez(tmp_path / "other_shape.npz", image=rows[:, :4])
    np.save(tmp_path / "few.npy", np.zeros(3, np.int64))
    (tmp_path / "a file").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("convert", "model", "out", _INT8, "--calibration_data=nothing.npz"), "nothing.npz: no such file"),
        (("convert", "model", "out", _INT8, "--calibration_data=other_name.npz"), "'pixels' that is no input"),
        (("convert", "model", "out", _INT8, "--calibration_data=other_shape.npz"), "has shape"),
        (("convert", "model", "out", _INT8, "--calibration_table=nothing.json"), "nothing.json"),
        (("convert", "model", "a file/out"), "a file is no folder"),
        (("convert", "model", "/proc/out"), "/proc cannot be written to by this user"),
        (("convert", "model", "out", "--json=/sys/result.json"), "this user cannot write to /sys"),
        (("wrap", "model", "--output=a file/out", "--top_k=2"), "a file is no folder"),
        (("build", "made", "--strip", "--output=a file/out"), "a file is no folder"),
        (("calibrate", "model", "--calibration_data=other_shape.npz", "--output=t"), "has shape"),
        (("calibrate", "model", "--calibration_data=calibration.npz", "--output=a file"), "a file"),
        (("calibrate", "model", "--calibration_data=calibration.npz", "--output=/sys/t"), "cannot write to /sys"),
        (("sensitivity", "model", "--data=other_name.npz"), "'pixels' that is no input"),
        (("sensitivity", "model", "--data=held_back.npz", "--calibration_data=other_shape.npz"), "has shape"),
        (("sensitivity", "model", "--data=held_back.npz", "--html=/sys/page.html"), "cannot write to /sys"),
        (("verify", "model", "made", "--data=other_shape.npz"), "has shape"),
        (("verify", "model", "made", "--data=held_back.npz", "--labels=few.npy"), "--labels holds 3 int64 values"),
        (("verify", "model", "made", "--data=held_back.npz", "--labels=nothing.npy"), "--labels=nothing.npy"),
        (("verify", "model", "made", "--html=a file/page.html"), "cannot be written"),
        ((*_REGRESS, "--data=other_name.npz"), "'pixels' that is no input"),
        ((*_REGRESS, "--save_baseline=auto", "--history_dir=a file/kept"), "--history_dir=a file/kept: "),
        ((*_REGRESS, "--save_baseline=auto", "--history_dir=/proc/kept"), "/proc cannot be written to"),
        ((*_TUNE, "--data=other_name.npz"), "'pixels' that is no input"),
        ((*_TUNE, "--data=held_back.npz", "--labels=few.npy"), "--labels holds 3 int64 values"),
        ((*_TUNE, "--data=held_back.npz", "--accuracy_output=logits"), "--accuracy_output=logits is no output"),
        ((*_TUNE, "--data=held_back.npz", "--calibration_data=nothing.npz"), "no such file"),
        ((*_TUNE, "--data=held_back.npz", "--calibration_data=other_shape.npz"), "--calibration_data=other_shape.npz:"),
        ((*_TUNE, "--data=held_back.npz", "--output=a file/out"), "a file is no folder"),
        ((*_TUNE, "--data=held_back.npz", "--work_dir=a file/work"), "a file is no folder"),
        ((*_TUNE, "--data=held_back.npz", "--output_flagfile=/sys/flags"), "cannot write to /sys"),
    ],
)
def test_what_can_never_work_is_told_before_any_work(folder, words, says):
    there = sorted(os.listdir(folder))
    done = run_tftrt(*words, cwd=folder, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert_clear(done, errors.EXIT_USAGE, says)
    assert sorted(os.listdir(folder)) == there, "nothing was begun"


def test_all_files_that_cannot_be_written_are_named(folder):
    flags = ("--html=a file/page.html", "--plot=nowhere/p.svg", "--json=/sys/r.json")
    done = run_tftrt("verify", "model", "made", *flags, cwd=folder)
    assert_clear(done, errors.EXIT_USAGE, "3 things are wrong")
    assert all(place in done.stderr for place in ("a file/page.html", "nowhere/p.svg", "/sys/r.json"))
