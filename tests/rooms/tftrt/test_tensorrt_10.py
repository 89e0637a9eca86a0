"""TF-TRT with a TensorRT that has no implicit batch mode, as NVIDIA's container 25.02 has: a stand-in says that it is here."""

import numpy as np
import pytest

from tests.command_line import assert_clear
from tftrt_tools.base import errors, stack
from tftrt_tools.base.process import progress
from tftrt_tools.tftrt.conversion import calibrate_job, inspect_job
from tftrt_tools.tftrt.conversion import settings as settings_module
from tftrt_tools.tftrt.conversion.job import planner
from tftrt_tools.tftrt.conversion.settings import Settings, checked

SHAPES = "image:1x8x8x1,8x8x8x1"


@pytest.fixture
def tensorrt_10(monkeypatch):
    """TensorRT 10 is here, and nothing was said of it yet."""
    monkeypatch.setattr(stack, "tensorrt_major", lambda: 10)
    settings_module._say_once.cache_clear()
    yield
    settings_module._say_once.cache_clear()


@pytest.fixture
def notes():
    """What is noted."""
    said = []
    with progress.notes_to(said.append):
        yield said


def test_dynamic_shapes_are_chosen_and_said_once(tensorrt_10, notes):
    assert checked(Settings()).dynamic and checked(Settings(dynamic_shape_profile_strategy="Range")).dynamic
    assert notes == [
        "TensorRT 10 has no implicit batch mode: engines get dynamic shapes (--use_dynamic_shape); --shapes names those that will be served"
    ]


@pytest.mark.parametrize("given", [{"shapes": SHAPES}, {"use_dynamic_shape": True}])
def test_who_has_dynamic_shapes_already_hears_nothing(given, tensorrt_10, notes):
    assert checked(Settings(**given)) == Settings(**given) and notes == []


def test_implicit_batch_is_refused(tensorrt_10):
    with pytest.raises(errors.UsageError, match="which TensorRT 10 does not have"):
        checked(Settings(use_dynamic_shape=False))


def test_int8_is_said_to_be_unseen_there(tensorrt_10, notes):
    checked(Settings(precision_mode="INT8", shapes=SHAPES))
    (note,) = notes
    assert note.startswith("INT8 with TensorRT 10 was not run with this project") and "calibrators" in note


@pytest.mark.parametrize("major", [7, 8, None])
def test_with_implicit_batch_mode_all_is_as_before(major, monkeypatch, notes):
    monkeypatch.setattr(stack, "tensorrt_major", lambda: major)
    for one in (Settings(), Settings(use_dynamic_shape=False), Settings(precision_mode="INT8")):
        assert checked(one) == one and not one.dynamic
    assert notes == []


def test_the_mode_that_is_gone_is_not_tried_to_compare(tensorrt_10):
    assert planner.other_mode("serving_default", None, Settings(use_dynamic_shape=True)) is None


@pytest.mark.parametrize("refuse", [inspect_job._refuse_settings, calibrate_job._refuse_pass_settings])
def test_what_was_chosen_for_the_user_is_no_flag_of_a_converted_model(refuse, tensorrt_10):
    refuse(checked(Settings()))
    with pytest.raises(errors.UsageError, match="--minimum_segment_size has no effect"):
        refuse(checked(Settings(minimum_segment_size=7)))


@pytest.mark.parametrize("command", ["convert", "inspect", "calibrate", "sensitivity"])
def test_commands_refuse_it_before_any_waiting(command, tensorrt_10, tftrt, zoo_model):
    model = zoo_model("digits_cnn")
    named = {"convert": (f"--model={model}", "--output=never"), "calibrate": (model, "--output=never")}
    done = tftrt(command, *named.get(command, (model,)), "--nouse_dynamic_shape")
    assert_clear(done, 2, "--nouse_dynamic_shape asks for an implicit batch")


@pytest.fixture(scope="module")
def implicit(zoo_model, tftrt, tmp_path_factory):
    """The digits CNN, converted with an implicit batch."""
    out = tmp_path_factory.mktemp("implicit") / "out"
    done = tftrt("convert", f"--model={zoo_model('digits_cnn')}", f"--output={out}")
    assert done.returncode == 0, done.stderr
    return out


def test_engines_of_an_implicit_batch_are_not_built(implicit, tensorrt_10, tftrt):
    done = tftrt("build", implicit, f"--shapes={SHAPES}")
    assert_clear(done, 2, "have an implicit batch, which TensorRT 10 does not have")
    assert "convert the original model again" in done.stderr


def test_nor_does_tensorrt_calibrate_them(implicit, zoo_model, tensorrt_10, tftrt, tmp_path):
    np.savez(tmp_path / "data.npz", image=np.random.default_rng(0).random((8, 8, 8, 1), np.float32))
    flags = (f"--output_table={tmp_path / 'table'}", f"--calibration_data={tmp_path / 'data.npz'}")
    done = tftrt("calibrate", implicit, "--calibrator=tensorrt", *flags)
    *_, cause, mend = done.stderr.splitlines()  # behind the notes on the batch mode and on INT8
    assert done.returncode == 2 and mend.startswith("  convert the original model again here")
    assert cause == (
        f"tftrt: error: the engine ops of {implicit} have an implicit batch, which TensorRT 10 does not have, so it cannot calibrate them"
    )
    # The original gets dynamic shapes, and then there is no GPU here.
    original = tftrt("calibrate", zoo_model("digits_cnn"), "--calibrator=tensorrt", *flags)
    assert original.returncode == 1 and "--calibrator=tensorrt calibrates on a GPU" in original.stderr


def test_they_can_be_taken_away(implicit, tensorrt_10, tftrt, tmp_path):
    done = tftrt("build", implicit, "--strip", f"--output={tmp_path}/out")
    assert done.returncode == 0, done.stderr


def test_inspect_and_convert_use_dynamic_shapes(zoo_model, tensorrt_10, tftrt, tmp_path):
    seen = tftrt("inspect", zoo_model("digits_cnn"))
    assert seen.returncode == 0 and "With FP32, dynamic shapes (Optimal)" in seen.stdout
    assert "TensorRT 10 has no implicit batch mode" in seen.stderr
    done = tftrt("convert", f"--model={zoo_model('digits_cnn')}", f"--output={tmp_path}/out", "--json=-")
    assert done.returncode == 0 and '"use_dynamic_shape": true' in done.stdout
