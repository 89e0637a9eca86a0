"""The order of `tftrt optimize`, what it keeps, and its verdict, with commands that are read and not run; then the real way, without a GPU."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.command_line import assert_clear, processes_marked
from tests.conftest import ROOT
from tests.example_flags import check_flags
from tests.optimize_script import COMMAND, IMAGE, Script, diagnosis, machine, plan, trial
from tftrt_tools.accuracy import goal as goals
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _optimize_asked
from tftrt_tools.command_line.report import optimize as report
from tftrt_tools.command_line.report import optimize_plot
from tftrt_tools.models.inputs.rows import row_hashes
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.optimizing import goal_seen, known, mends, run, steps
from tftrt_tools.studies.tuning import table
from tftrt_tools.studies.tuning.latency import Latency
from tftrt_tools.tftrt.conversion.plan import Advice, Plan

LOOKED = ["profile", "diagnose", "diagnose"]
WHOLE = [
    "doctor",
    "inspect",
    "inspect",
    "data",
    "calibrate",
    "tune",
    "convert",
    "verify",
    "regress",
    "regress",
    *LOOKED,
]
AFTER = WHOLE[7:]  # what looks at the model


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Script(tmp_path)


def test_on_a_gpu_every_step_runs_and_the_goal_is_kept(script, tmp_path):
    done = script.run(slo="p99<20ms", rate=200.0, publish="models/best")
    assert script.names == [*WHOLE, "bench", "publish"]
    assert (done.story.outcome, done.story.exit_code, done.story.gpu, done.story.left) == ("kept", 0, "NVIDIA H200", ())
    assert "2.00 times as fast" in done.story.verdict and "250 requests a second" in done.story.verdict
    shapes = "--shapes=image:1x8x8x1,32x8x8x1"
    tuned = script.words("tune")
    assert {
        "--data=work/scored.npz",
        "--labels=work/labels.npy",
        "--calibration_data=work/calibration.npz",
        shapes,
        "--accuracy=top1:max-degradation=0.01",
    } <= set(tuned)
    assert "--flagfile=work/tune/best.flags" in script.words("convert") and f"--warmup_{shapes[2:]}" in script.words(
        "publish"
    )
    batches = [
        word for words in script.calls if words[0] == "regress" for word in words if word.startswith("--batch_size")
    ]
    assert batches == ["--batch_size=1", "--batch_size=32"] and "--lowest_rate=200" in script.words("bench")
    report.write_page(done, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    title = re.search(r"<title>(.*)</title>", page)[1]
    assert title == "tftrt optimize model: the candidate is 2.00 times as fast (1.90 to 2.10); the goal is kept"
    assert "KEPT: " in page and shlex.join(tuned).replace("'", "&#39;") in page and 'href="work/tune.html"' in page


def test_the_report_of_a_folder_from_before_is_found_under_its_old_name(script, tmp_path):
    story = script.run().story
    (tmp_path / "work/story.html").write_text("from before")
    assert report.page_of(story) == "from before"
    (tmp_path / "work/report.html").write_text("of now")
    assert report.page_of(story) == "of now"


def test_only_what_the_run_made_is_replaced_at_the_output(script, tmp_path):
    script.run()
    assert "--overwrite" not in script.words("convert")  # convert looks at the output once more at its end
    (tmp_path / "model" / "saved_model.pb").write_text("another")
    script.run()
    assert "--overwrite" in script.words("convert")
    (tmp_path / "model" / "saved_model.pb").write_text("a third")
    (tmp_path / "best" / "saved_model.pb").write_text("somebody's own")
    script.run()
    assert "--overwrite" not in script.words("convert")


def test_without_a_gpu_what_needs_one_is_left(script):
    script.documents["doctor"] = machine(gpu=False).to_dict()
    done = script.run(slo="p99<20ms")
    assert script.names == [
        "doctor",
        "inspect",
        "data",
        "calibrate",
        "convert-int8",
        "verify-int8",
        "convert",
        "verify",
    ]
    assert (done.story.outcome, done.story.exit_code) == ("open", 0) and "no GPU here" in done.story.verdict
    assert (
        done.story.left == ("tune", "convert", "verify", "regress", "profile", "diagnose", "bench")
        and done.story.command == COMMAND
    )
    assert "--precision=FP16" in script.words("convert") and not any(
        word.startswith("--shapes") for word in script.words("convert")
    )


@pytest.mark.parametrize(
    "level, wanted, studied",
    [
        (54.0, "snr_db:threshold=60", True),
        (54.0, "snr_db:threshold=40", False),
        (10.0, "top1:max-degradation=0.01", True),
        (54.0, "top1:max-degradation=0.01", False),
    ],
)
@pytest.mark.parametrize("scored", [True, False])
def test_without_a_gpu_nodes_are_studied_where_int8_misses_the_goal(script, level, wanted, studied, scored):
    """By the rows that are scored; where INT8 was not simulated on them, by those that calibrate."""
    script.documents["doctor"] = machine(gpu=False).to_dict()
    if scored:
        script.documents["verify-int8"]["comparisons"][0]["snr_db"] = level
        script.documents["verify-int8"]["problems"] = ["snr_db is 10, wanted >= 15"] if level < 15 else []
    else:
        script.documents["calibrate"]["comparison"]["signatures"][0]["levels"]["mse"]["p"] = level
        script.documents["verify-int8"]["simulation"] = {
            "simulated": {},
            "left_out": {"serving_default": "it draws random numbers"},
        }
    done = script.run(goal=wanted)
    assert ("sensitivity" in script.names) == studied == any("INT8 misses" in one for one in done.story.remarks)
    assert (". INT8 misses the goal" in done.story.verdict) == studied
    assert scored or any("INT8 was not simulated: it draws" in one.gave for one in done.story.steps)


def test_the_goal_itself_is_tested_on_the_rows_that_are_scored_and_not_the_snr_of_those_that_calibrate(script):
    """Calibration rows of another scale: each bit is kept there, and one class is answered for everything else."""
    script.documents["doctor"] = machine(gpu=False).to_dict()
    script.documents["calibrate"]["comparison"] |= {
        "reason": "nothing tells the methods apart",
        "signatures": [
            {
                "signature": "serving_default",
                "rows": 100,
                "apart": True,
                "levels": {},
                "nothing_shown": {"p": "saturated: 0 or 1 in all 128 rows"},
            }
        ],
    }
    script.documents["calibrate"]["data"] = {
        "warnings": ["integers (uint8) from 0 to 255 fill input image, which takes float32"]
    }
    wrong = {
        "accuracy": {"metric": "top1", "labels": 300, "metrics": {"top1": {"original": 0.99, "converted": 0.1}}},
        "passed": False,
        "problems": ["top1 is 0.1, wanted >= 0.95"],
        "calibration": {"scaled": ["image: is one of them scaled differently?"]},
    }
    script.documents["verify-int8"] |= wrong
    script.failing["verify-int8"] = errors.EXIT_CHECK
    done = script.run(publish="models/best")
    assert done.story.outcome == "open" and "INT8 misses the goal, simulated: top1 is 0.1" in done.story.verdict
    assert "publish" in script.names, "FP16 is converted, and right"
    assert [
        any(text in one for one in done.story.remarks) for text in ("integers", "saturated", "scaled differently")
    ] == [True] * 3
    script.documents["verify"] |= wrong
    script.failing["verify"] = errors.EXIT_CHECK
    done = script.run(precisions=("INT8",), publish="models/best", work_dir="other")
    assert (done.story.outcome, done.story.exit_code, "publish" in script.names) == ("not kept", 3, False)


def test_without_a_gpu_a_goal_that_verify_saw_missed_is_not_kept_and_nothing_is_published(script):
    script.documents["doctor"] = machine(gpu=False).to_dict()
    for metrics, wanted, outcome in (
        ({"original": 0.893, "converted": 0.893}, "top1:threshold=0.9", "not kept"),
        ({"original": 0.893, "converted": 0.893}, "top1:threshold=0.85", "open"),
        ({"original": 0.90, "converted": 0.88}, "top1:max-degradation=0.01", "not kept"),
    ):
        script.documents["verify"]["accuracy"] = {"metric": "top1", "labels": 75, "metrics": {"top1": metrics}}
        done = script.run(goal=wanted, publish="models/best", work_dir=f"work-{outcome}-{wanted[-4:]}")
        assert (done.story.outcome, "publish" in script.names) == (outcome, outcome == "open"), done.story.verdict
        assert ("and the goal is top1" in done.story.verdict) == (outcome == "not kept")


def test_int8_alone_that_misses_where_it_is_simulated_is_not_kept(script):
    script.documents["doctor"] = machine(gpu=False).to_dict()
    script.documents["verify"]["comparisons"][0]["snr_db"] = 150.0
    script.documents["verify-int8"]["comparisons"][0]["snr_db"] = 54.0
    done = script.run(goal="snr_db:threshold=60", precisions=("INT8",), publish="models/best")
    assert (
        done.story.outcome == "not kept"
        and done.story.exit_code == 3
        and "snr_db is 54" in done.story.verdict
        and "publish" not in script.names
    )
    done = script.run(goal="snr_db:threshold=60", precisions=("FP16", "INT8"), work_dir="other")
    assert done.story.outcome == "open", "FP16 is converted"


def test_a_goal_that_nobody_has_looked_at_is_said(script):
    script.documents["doctor"] = machine(gpu=False).to_dict()
    done = script.run(goal="wer:threshold=0.1")
    assert done.story.outcome == "open" and "Nobody has looked at wer yet" in done.story.verdict
    (gave,) = (one.gave for one in done.story.steps if one.step == "calibrate")
    assert "that `tftrt verify` asks of INT8" in gave and "simulated on 100 rows that calibrate" in gave
    script.documents["calibrate"]["comparison"]["signatures"][0]["rows"] = 1
    done = script.run(goal="snr_db:threshold=30", work_dir="other")
    assert any("simulated on 1 row, which says little" in one for one in done.story.remarks)


@pytest.mark.parametrize(
    ("comparisons", "wanted", "value"),
    [
        ([{"snr_db": 40.0}, {"snr_db": 30.0}], "snr_db:threshold=35", 30.0),
        ([{"max_abs": 1e-3}, {"max_abs": 1e-2}], "max_abs:threshold=0.1", 1e-2),
        ([{"top1": 0.5, "classes": False}, {"top1": 0.99, "classes": True}], "top1:threshold=0.9", 0.99),
        ([{"top1": 0.5, "classes": False}, {"top1": 0.7, "classes": False}], "top1:threshold=0.9", 0.5),
        ([{"snr_db": 10.0, "part_of": "a detector"}, {"snr_db": 30.0}], "snr_db:threshold=20", 30.0),
        ([{"snr_db": None}], "snr_db:threshold=20", None),
    ],
)
def test_the_goal_is_looked_up_as_tune_scores_it(comparisons, wanted, value):
    found = goal_seen.of_verification(goals.parse(wanted), {"comparisons": comparisons, "accuracy": None})
    assert (
        found is None
        if value is None
        else (found.converted, found.kept) == (value, goals.parse(wanted).kept(value, 1.0))
    )


def test_a_model_of_several_signatures_needs_one_named_where_its_rows_are_split(script):
    script.documents["inspect"]["signatures"].append(
        {**script.documents["inspect"]["signatures"][0], "signature": "other"}
    )
    with pytest.raises(errors.UsageError, match="2 signatures") as caught:
        script.run()
    assert "--signature_keys=serving_default" in caught.value.mend
    script.run(words={"signature_keys": ("--signature_keys=serving_default",)})


def test_the_mends_of_inspect_go_to_every_command_that_makes_the_graph(script):
    script.documents["inspect"] = plan(
        IMAGE, InputSpec("training", "bool", ()), offered=("training",), size=5
    ).to_dict()
    done = script.run(
        words={"signature_keys": ("--signature_keys=serving_default",)}, shapes="image:1x8x8x1;training:scalar"
    )
    assert done.story.mends == ("--freeze=training:false",), "tune searches the segment size"
    making = ("inspect", "calibrate", "tune", "convert")
    assert ["--freeze=training:false" in words for words in script.calls if words[0] in making] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert "--flagfile=work/tune/best.flags" in script.words("convert")
    assert all("--signature_keys=serving_default" in words for words in script.calls if words[0] in making[:3])
    script.documents["doctor"] = machine(gpu=False).to_dict()
    script.documents["inspect"] = plan(advice=Advice(3, True, ())).to_dict()
    script.run(work_dir="profiles")
    assert [
        "--use_dynamic_shape" in words for words in script.calls if words[0] in ("inspect", "calibrate", "convert")
    ] == [False, *[True] * 4]
    script.documents["inspect"] = plan(
        IMAGE, InputSpec("training", "bool", ()), offered=("training",), size=5
    ).to_dict()
    done = script.run(shapes="image:1x8x8x1;training:scalar", work_dir="other")
    wanted = {"--freeze=training:false", "--minimum_segment_size=5"}
    assert set(done.story.mends) == wanted and [
        wanted <= set(words) for words in script.calls if words[0] in making
    ] == [False, True, True, True, True]


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"calibration_data": "pictures"},
        {"precisions": ("FP32", "INT8"), "data": "pictures", "goal": "snr_db:threshold=60"},
    ],
)
def test_every_flag_that_is_repeated_exists_where_it_is_repeated(script, tmp_path, gpu, changes):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/a.png").touch()
    samples = {
        "allow_unsafe_deserialization": "",
        "custom_objects": "=m:d",
        "inputs": "=a",
        "op_library": "=x.so",
        "outputs": "=b",
        "image_size": "=8x8",
        "image_resize": "=crop",
        "image_preset": "=tf",
        "image_scale": "=1/255",
        "image_mean": "=1",
        "image_std": "=1",
        "image_channels": "=BGR",
        "image_error_limit": "=1",
        "allow_constant_outputs": "",
        "output_kind": "=p:ids",
        "engine_cache_dir": "=cache",
        "data_rows": "=9",
        "label_column": "=2",
        "classes": "=c.txt",
        "accuracy_output": "=s/p",
        "objective_shape": "=image:1x8x8x1",
        "on": "=local",
        "tags": "=serve",
        "freeze": "=t:false",
        "minimum_segment_size": "=4",
        "max_workspace_size_bytes": "=99",
        "keep_native_ops": "=Softmax",
        "keep_native_nodes": "=n.*",
        "calibration_batch_size": "=4",
        "num_calibration_batches": "=2",
        "engine_cache_max_bytes": "=1GiB",
        "signature_keys": "=serving_default",
    }
    assert set(samples) | {"engine_cache"} == set(_optimize_asked.repeated())
    script.documents["doctor"] = machine(gpu).to_dict()
    done = script.run(
        words={name: (f"--{name}{value}",) for name, value in samples.items()},
        slo="p99<20ms",
        publish="models/best",
        repeat=2,
        **changes,
    )
    assert done.story.ended == "" and len(script.calls) >= 6
    for words in script.calls:
        assert ("--image_preset=tf" in words) == any(word.endswith("pictures") for word in words), words


def signature(name, *inputs, offered=()):
    return plan(*inputs, name=name, offered=offered).signatures[0]


def test_an_input_is_frozen_only_where_its_name_says_what_it_is():
    flag, other, number = (
        InputSpec("is_training", "bool", ()),
        InputSpec("flip", "bool", ()),
        InputSpec("train", "int32", ()),
    )
    found = mends.of_plan(plan(flag, other, number, offered=("is_training", "flip", "train")), ())
    assert found.words == ("--freeze=is_training:false",)
    assert [one.partition(" only")[0] for one in found.left] == ["input flip", "input train"]
    assert mends.of_plan(plan(flag, other, offered=("is_training", "flip")), ("freeze",)) == mends.Mends()
    assert mends.of_plan(plan(size=7), ("minimum_segment_size",)) == mends.Mends()
    # The size of segments is advised for the mode that was tried.
    profiles = plan(size=7, advice=Advice(7, True, ()))
    assert mends.of_plan(profiles, ()).words == ("--use_dynamic_shape",)
    assert mends.of_plan(profiles, ("shapes",)).words == ("--minimum_segment_size=7",)
    # An input that one signature offers and another one reads is frozen in the one.
    two = plan(flag, offered=("is_training",)).signatures + (signature("train", flag),)
    both = Plan(model="m", tags=(), settings=plan().settings, tensorflow="", signatures=two)
    assert mends.of_plan(both, ()).words == ("--freeze=serving_default/is_training:false",)


def test_the_profile_and_what_its_mends_gave_are_told(script, tmp_path):
    done = script.run()
    known_ = done.known
    assert (
        known_.of("profile").gave == "serving_default(x 1x8x8x1) takes 1.070 ms, before 3.000 ms, 93% of it: engine GPU"
    )
    assert (
        known_.of("diagnose").gave
        == "1 finding, the first: the call crosses many borders, worth at most 0.200 ms of serving_default(image 1x8x8x1)"
    )
    assert "saves 0.200 ms of a call (95 %: 0.100 to 0.300)" in known_.of("diagnose --try").gave
    assert any("crosses many borders: tftrt convert" in one and "saves 0.200 ms" in one for one in done.story.remarks)
    assert "--profile=work/profile.json" in script.calls[-2] and "--try" in script.calls[-1]
    report.write_page(done, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "Where the time goes: serving_default(x 1x8x8x1)" in page and page.count("<svg") == 4


@pytest.mark.parametrize(
    ("alike", "says"),
    [
        (True, "1 fix tried; the best: tftrt convert"),
        (False, "1 fix tried; none is shown to be faster with answers like the model's: tftrt convert"),
        (None, "1 fix tried; none is shown to be faster with answers like the model's: tftrt convert"),
    ],
)
def test_the_best_mend_is_one_that_answers_like_the_model(script, alike, says):
    (found,) = script.documents["diagnose-try"]["findings"]
    found["trial"]["alike"] = alike
    told = script.run().known.of("diagnose --try").gave
    assert told.startswith(says) and ("but its answers" in told) == (alike is False)


def test_where_the_rows_fill_no_request_some_are_drawn(script):
    script.documents["data"] = {"rows": 20, "calibration_rows": 6, "in_both": 0}
    script.run()
    one, many = (set(words) for words in script.calls if words[0] == "regress")
    assert {
        "--data=work/scored.npz",
        "--labels=work/labels.npy",
        "--batch_size=1",
        "--accuracy=top1:max-degradation=0.01",
    } <= one
    assert "--shapes=serving_default/image:32x8x8x1" in many and not any(
        word.startswith(("--data", "--labels", "--accuracy", "--batch")) for word in many
    )


def test_without_a_mend_nothing_is_tried(script):
    script.documents["diagnose"] = diagnosis(command=())
    done = script.run()
    assert script.names == WHOLE[:-1] and done.known.of("diagnose --try").cause == "diagnose proposes no flag"
    script.failing["profile"] = errors.TftrtError("no profiler here", "")
    done = script.run(goal="top1:max-degradation=0.02")
    assert "diagnose" not in script.names and done.story.outcome == "kept", "what only looks does not decide"


def test_of_several_builds_the_fastest_is_verified(script, tmp_path):
    done = script.run(repeat=2)
    assert script.names == [*WHOLE[:7], "build", *WHOLE[7:]]
    assert script.words("build")[1] == "work/converted" and {"--repeat=2", "--output=best"} <= set(
        script.words("build")
    )
    assert "--output=work/converted" in script.words("convert")
    assert (
        done.known.of("build").gave
        == "build 2 is kept: it is 1.20 times as fast as build 1, the slowest (95 %: 1.10 to 1.30)"
    )
    script.run(repeat=2)
    assert script.names == ["doctor"]
    script.failing["build"] = errors.TftrtError("out of GPU memory", "fewer builds")
    (tmp_path / "best/saved_model.pb").unlink()
    story = script.run(repeat=2).story
    assert (story.exit_code, story.ended, story.made) == (1, "out of GPU memory", {})
    # Without a GPU there is one conversion, at its place.
    script.documents["doctor"] = machine(gpu=False).to_dict()
    story = script.run(repeat=2).story
    assert (
        script.words("convert")[1:3] == ["model", "best"] and "build" in story.left and story.made == {"model": "best"}
    )


def test_rows_for_calibration_of_the_users_own_are_taken(script):
    script.run(
        calibration_data="rows.npz", words={"image_scale": ("--image_scale=1/255",), "data_rows": ("--data_rows=9",)}
    )
    assert "data" not in script.names and "--calibration_data=rows.npz" in script.words("calibrate")
    assert {"--data=rows.npz", "--data_rows=9", "--labels=labels.npy"} <= set(script.words("verify"))
    assert not any(word.startswith("--server_image") for words in script.calls for word in words), (
        "arrays are no pictures"
    )


def test_without_int8_no_row_is_held_back(script):
    done = script.run(precisions=("FP16",))
    assert script.names == ["doctor", "inspect", "inspect", "tune", "convert", *AFTER]
    assert "--precision=FP16" in script.words("tune") and "no row is held back" in done.known.of("data").cause


# ---- what is kept
def test_the_same_command_does_nothing_twice(script, tmp_path):
    first = script.run()
    assert script.names == WHOLE
    again = script.run()
    assert script.names == ["doctor"] and again.story.outcome == first.story.outcome
    assert [(one.name, one.gave) for one in again.story.steps] == [(one.name, one.gave) for one in first.story.steps]
    assert all(one.before for one in again.story.steps if one.words and one.name != "doctor")


@pytest.mark.parametrize(
    "change, redone",
    [
        (lambda folder: (folder / "labels.npy").write_text("other labels"), ["data"]),
        (lambda folder: (folder / "work/scored.npz").unlink(), ["data"]),
        (lambda folder: (folder / "work/scored.npz").write_text("cut off"), ["data"]),
        (lambda folder: (folder / "work/tune.json").write_text("{"), ["tune"]),
        (lambda folder: (folder / "work/steps/tune.json").unlink(), ["tune"]),
        (lambda folder: (folder / "best/assets.extra/tftrt/verify.json").unlink(), ["verify"]),
        (lambda folder: (folder / "best/saved_model.pb").write_text("touched"), ["convert", *AFTER]),
        (lambda folder: (folder / "model/saved_model.pb").write_text("trained again"), WHOLE[1:]),
    ],
)
def test_a_step_is_done_again_where_something_it_depends_on_has_changed(script, tmp_path, change, redone):
    script.run()
    change(tmp_path)
    script.run()
    assert script.names == ["doctor", *redone]


def test_other_words_do_the_steps_again_that_have_them(script):
    script.run()
    script.run(goal="top1:max-degradation=0.02")
    assert script.names == ["doctor", "tune", "regress", "regress"], "the flags that tune wrote are the same"


def test_another_machine_does_what_its_gpu_decides(script):
    script.documents["doctor"] = machine(gpu=False).to_dict()
    script.run()
    script.documents["doctor"] = machine().to_dict()
    script.run()
    assert script.names == ["doctor", "inspect", "tune", "convert", *AFTER]
    script.documents["doctor"] = {**machine().to_dict(), "driver": "999.9"}
    script.run()
    assert script.names == ["doctor", "tune", "convert", *AFTER]
    script.documents["doctor"] = {**machine().to_dict(), "tensorrt_loaded": "9.9"}
    script.run()
    assert script.names == WHOLE


@pytest.mark.parametrize(
    "interrupt", [KeyboardInterrupt(), errors.Interrupted("ended by SIGTERM", "nothing was written")]
)
@pytest.mark.parametrize("command", [*dict.fromkeys(WHOLE), "bench", "publish"])
def test_an_interrupt_in_any_step_says_how_to_go_on_and_the_command_does(script, command, interrupt):
    flags = {"slo": "p99<20ms", "publish": "models/best"}
    script.failing[command] = interrupt
    with pytest.raises(errors.Interrupted) as caught:
        script.run(**flags)
    before = list(script.names)
    assert f"in step {command}" in caught.value.cause and f"tftrt {shlex.join(COMMAND)}" in caught.value.mend
    del script.failing[command]
    done = script.run(**flags)
    whole = [*WHOLE, "bench", "publish"]
    assert script.names == ["doctor", *whole[max(len(before) - 1, 1) :]] and done.story.outcome == "kept"


# ---- what fails
def test_where_no_trial_keeps_the_goal_the_nearest_is_made_and_named(script):
    script.documents["tune"] = {
        **script.documents["tune"],
        "winner": None,
        "best": 2,
        "trials": [trial(2, "FP16", 1.0, kept=False)],
    }
    script.failing["tune"] = 3
    done = script.run(publish="models/best")
    assert (done.story.outcome, done.story.exit_code) == ("not kept", 3) and done.story.verdict.startswith(
        "tune: no trial keeps top1 >= 0.98"
    )
    assert (
        "--flagfile=work/tune/best.flags" in script.words("convert")
        and "regress" in script.names
        and "publish" not in script.names
    )
    assert done.story.made == {"model": "best"}


def test_a_search_that_gave_no_model_leaves_the_default(script, tmp_path):
    script.run()
    # The flags of an earlier search are there, and are not taken.
    script.failing["tune"] = errors.CheckFailed("no trial gave a model: out of memory", "smaller shapes")
    done = script.run(goal="top1:max-degradation=0.02")
    assert (tmp_path / "work/tune/best.flags").exists() and "--precision=FP16" in script.words("convert")
    assert done.story.outcome == "not kept" and "no trial gave a model" in done.story.verdict


def test_a_wrong_model_is_not_timed(script):
    script.documents["verify"] = {**script.documents["verify"], "passed": False, "problems": ["p: 3 dB"]}
    script.failing["verify"] = 3
    done = script.run(slo="p99<20ms")
    assert (done.story.exit_code, done.story.verdict.partition(":")[0]) == (
        3,
        "verify",
    ) and "p: 3 dB" in done.story.verdict
    assert not {"regress", "profile", "diagnose", "bench"} & set(script.names)


def test_what_nobody_can_tell_is_asked_again(script):
    script.failing["regress"] = 4
    script.documents["regress"] = {"headline": "cannot tell: too noisy"}
    done = script.run()
    assert (done.story.outcome, done.story.exit_code) == ("cannot tell", 4) and "too noisy" in done.story.verdict
    del script.failing["regress"]
    assert script.run().story.outcome == "kept" and script.names == ["doctor", "regress", "regress"]


@pytest.mark.parametrize(
    "command, whole",
    [("calibrate", True), ("tune", True), ("convert", False), ("inspect", False), ("verify", False), ("data", False)],
)
def test_a_failed_step_is_told_and_ends_the_run_only_where_the_rest_needs_it(script, command, whole):
    script.failing[command] = errors.TftrtError("the disk is on fire", "put it out")
    done = script.run()
    assert done.known.of(command).state == "failed" and any(
        "the disk is on fire; put it out" in one for one in done.story.remarks
    ) == (command != "inspect")
    assert (done.story.exit_code, done.story.ended) == ((0, "") if whole else (1, "the disk is on fire"))
    del script.failing[command]
    assert script.run().story.outcome == "kept"


def test_a_command_that_refuses_its_words_ends_the_run_unless_the_model_is_there(script):
    script.failing["calibrate"] = errors.UsageError("--calibration_data holds nothing", "give some")
    with pytest.raises(errors.UsageError, match="holds nothing"):
        script.run()
    script.failing = {"bench": errors.UsageError("probes are too short", "longer ones")}
    done = script.run(slo="p99<20s")
    assert done.story.outcome == "cannot tell" and "probes are too short" in done.story.verdict


def test_a_version_that_cannot_be_published_is_an_error(script):
    script.failing["publish"] = errors.CheckFailed("it was never verified", "verify it")
    assert (
        (done := script.run(publish="models/best").story).exit_code == 3
        and done.ended == "it was never verified"
        and done.outcome == "kept"
    )


def test_sizes_that_are_not_known_end_the_run_early(script):
    script.documents["inspect"] = plan(InputSpec("ids", "int32", (None, None))).to_dict()
    with pytest.raises(errors.UsageError, match=r"unknown dimensions \(int32\[\?,\?\]\)") as caught:
        script.run()
    assert "--shapes='serving_default/ids:" in caught.value.mend and script.names == ["doctor", "inspect"]


@pytest.mark.parametrize("gpu", [True, False])
def test_shapes_that_the_model_refuses_end_the_run_before_anything_that_takes_long(tmp_path, monkeypatch, gpu):
    monkeypatch.chdir(tmp_path)
    script = Script(tmp_path, gpu)
    with pytest.raises(errors.UsageError, match="refuses image:1x9x9x1"):
        script.run(shapes="image:1x9x9x1")
    assert script.names == ["doctor", "inspect"]


# ---- the budget
def test_each_step_gets_a_part_of_what_is_left(script):
    script.run(max_minutes=100.0)
    limits = {
        name: float(word.partition("=")[2])
        for words in script.calls
        for name in [words[0]]
        for word in words
        if re.match(r"--max_(minutes|seconds|build_minutes)=", word)
    }
    assert limits["tune"] == pytest.approx(30, abs=1) and limits["convert"] == pytest.approx(64, abs=2)
    assert limits["regress"] == pytest.approx(0.7 * 60 * 25, rel=0.05), "half of it for the two batches"


def test_trials_of_an_earlier_run_do_not_eat_the_budget_of_this_one(script, tmp_path):
    from tftrt_tools.studies.tuning.journal import Journal
    from tftrt_tools.studies.tuning.tried import Measured
    from tftrt_tools.tftrt.conversion.settings import Settings

    Journal(tmp_path / "work/tune").put("sha256:x", Settings(), Measured(accuracy=0.9, seconds=1200.0), "tftrt")
    script.run(max_minutes=100.0)
    assert "--max_minutes=50.0" in script.words("tune")


def test_a_step_that_takes_too_long_is_ended_and_the_run_goes_on(script, monkeypatch):
    monkeypatch.setattr(run, "_LEAST_SECONDS", 0.0)
    script.slow["calibrate"] = lambda: time.sleep(30)
    done = script.run(max_minutes=0.02)
    one = done.known.of("calibrate")
    assert (
        one.state == "out of time"
        and one.seconds < 20
        and "minutes were over" in one.cause
        and "convert" in script.names
    )
    del script.slow["calibrate"]
    script.run()
    assert "calibrate" in script.names, "with more time it is done"


def test_where_the_model_is_not_made_in_time_the_run_ends(script, monkeypatch):
    monkeypatch.setattr(run, "_LEAST_SECONDS", 0.0)
    script.slow["convert"] = lambda: time.sleep(30)
    done = script.run(max_minutes=0.02)
    assert (done.story.exit_code, done.known.of("convert").state) == (
        1,
        "out of time",
    ) and "minutes were over" in done.story.ended


def test_what_has_no_time_left_is_named(script, monkeypatch):
    monkeypatch.setattr(run, "_LEAST_SECONDS", 1e9)
    done = script.run()
    assert script.names == [] and "were used up before" in done.story.ended and done.story.exit_code == 1


def test_a_search_that_was_cut_short_goes_on_with_more_time(script):
    script.documents["tune"] = {**script.documents["tune"], "ended": "--max_minutes=30 are over; next would be INT8"}
    script.run(max_minutes=60.0)
    script.run(max_minutes=60.0)
    assert script.names == ["doctor"]
    script.run(max_minutes=120.0)
    assert script.names == ["doctor", "tune"]


def test_every_step_is_named_once_and_every_name_is_a_step():
    names = [one.name for one in steps.ORDER]
    assert len(set(names)) == len(names)
    assert set(names) == {
        getattr(known, one)
        for one in (
            "MACHINE",
            "INSPECT",
            "MENDED",
            "DATA",
            "CALIBRATE",
            "SIMULATED",
            "SENSITIVITY",
            "TUNE",
            "CONVERT",
            "BUILD",
            "PROFILE",
            "DIAGNOSE",
            "TRIED",
            "VERIFY",
            "REGRESS",
            "BENCH",
            "PUBLISH",
        )
    }


# ---- the command itself
def optimize(tftrt, folder, model, *flags, **changes):
    given = {
        "--data": "held_back.npz",
        "--labels": "labels.npy",
        "--accuracy": "top1:max-degradation=0.01",
        "--output": "best",
        **changes,
    }
    return tftrt(
        "optimize",
        *([model] if model else []),
        *(f"{name}={value}" for name, value in given.items() if value is not None),
        *flags,
        cwd=folder,
    )


@pytest.fixture
def folder(tmp_path, images):
    for name in ("held_back.npz", "labels.npy"):
        os.symlink(images / name, tmp_path / name)
    return tmp_path


@pytest.mark.slow
def test_the_whole_way_without_a_gpu(tftrt, zoo_model, folder, monkeypatch):
    monkeypatch.chdir(folder)
    os.symlink(zoo_model("digits_cnn"), folder / "digits_cnn")
    done = optimize(
        tftrt,
        folder,
        "digits_cnn",
        "--batch_size=1,8",
        "--output_flagfile=best.flags",
        "--html=mine.html",
        "--publish=models/digits",
        "--max_minutes=30",
    )
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line[2:]) for line in done.stdout.splitlines() if line.startswith("$ tftrt ")]
    assert [words[1] for words in commands] == [
        "doctor",
        "inspect",
        "data",
        "calibrate",
        "convert",
        "verify",
        "convert",
        "verify",
        "publish",
    ]
    for words in commands:
        check_flags(words)
    assert (
        "OPEN: FP16, simulated on 300 rows, answers like the original" in done.stdout
        and "300 rows to score, 100 other rows" in done.stdout
    )
    (following,) = re.findall(r"^next, on a machine with a GPU: (.*)$", done.stdout, re.MULTILINE)
    assert "\nnext: " not in done.stdout, "here nothing is left to do"
    check_flags(shlex.split(following))
    assert shlex.split(following)[1:] == [
        "optimize",
        "digits_cnn",
        "--accuracy=top1:max-degradation=0.01",
        "--batch_size=1,8",
        "--data=held_back.npz",
        "--html=mine.html",
        "--labels=labels.npy",
        "--max_minutes=30.0",
        "--output=best",
        "--output_flagfile=best.flags",
        "--publish=models/digits",
    ]
    work = folder / "optimize-digits_cnn"
    assert (folder / "mine.html").read_text().count("<svg") == 2 and (work / "report.html").is_file()
    assert 'href="optimize-digits_cnn/verify.html"' in (folder / "mine.html").read_text()
    with np.load(work / "scored.npz") as scored, np.load(work / "calibration.npz") as held_back:
        assert not set(row_hashes(dict(scored))) & set(row_hashes(dict(held_back)))
    assert (folder / "models/digits/1/saved_model.pb").is_file()
    again = optimize(tftrt, folder, "digits_cnn", "--batch_size=1,8", "--publish=models/digits", "--json=-")
    story = json.loads(again.stdout)
    assert (story["kind"], story["outcome"], story["exit_code"]) == ("optimization", "open", 0)
    assert {one["name"]: one["before"] for one in story["steps"] if one["words"]} == {
        "doctor": False,
        "inspect": True,
        "data": True,
        "calibrate": True,
        "convert-int8": True,
        "verify-int8": True,
        "convert": True,
        "verify": True,
        "publish": True,
    }
    assert not (folder / "models/digits/2").exists()
    # A command that was printed can be repeated, and so can the conversion by its flags.
    assert tftrt(*commands[7][1:], cwd=folder).returncode == 0
    assert tftrt("convert", "--flagfile=best.flags", "--dry_run", cwd=folder).returncode == 0


@pytest.mark.slow
def test_int8_that_misses_the_goal_is_studied_for_real(tftrt, zoo_model, folder):
    done = optimize(
        tftrt, folder, zoo_model("digits_cnn"), "--json=-", **{"--accuracy": "snr_db:threshold=60", "--labels": None}
    )
    story = json.loads(done.stdout)
    studied = next(one for one in story["steps"] if one["name"] == "sensitivity")
    assert done.returncode == 0 and studied["state"] == "done" and studied["gave"], done.stderr


@pytest.mark.slow
def test_ctrl_c_in_a_real_step_leaves_no_process_and_the_command_goes_on(tftrt, zoo_model, folder):
    words = [
        "optimize",
        str(zoo_model("digits_cnn")),
        "--data=held_back.npz",
        "--labels=labels.npy",
        "--accuracy=top1:max-degradation=0.01",
        "--output=best",
        "--work_dir=work",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "TFTRT_TEST_MARK": folder.name}
    with subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    ) as running:
        for line in running.stdout:
            if line.startswith("$ tftrt calibrate"):
                break
        time.sleep(1.0)
        running.send_signal(signal.SIGINT)
        rest, told = running.communicate(timeout=60)
    assert running.returncode == 1 and told.startswith(
        "tftrt: error: interrupted in step calibrate\n  the steps that are done are kept in work; the same command"
    ), told
    assert not processes_marked(folder.name) and not (folder / "best").exists()
    done = tftrt(*words, "--json=-", cwd=folder)
    assert done.returncode == 0, done.stderr
    before = [one["name"] for one in json.loads(done.stdout)["steps"] if one["before"]]
    assert before == ["inspect", "data"]


@pytest.mark.parametrize(
    "changes, flags, code, says",
    [
        ({"--data": None}, (), 2, "--data is missing"),
        ({"--accuracy": None}, (), 2, "--accuracy is missing"),
        ({"--output": None}, (), 2, "--output is missing"),
        ({"--accuracy": "top1:0.01"}, (), 2, "--accuracy: 'top1:0.01' is no goal"),
        ({"--accuracy": "top9:threshold=1"}, (), 2, "--accuracy: no metric 'top9'"),
        ({"--data": "nothing.npz"}, (), 2, "--data=nothing.npz: no such file"),
        ({}, ("--max_minutes=0",), 2, "--max_minutes=0 is no budget"),
        ({"--accuracy": "top1:max-degradation=1"}, (), 2, "every model keeps it"),
        ({"--accuracy": "top1:percent-max-degradation=150"}, (), 2, "all of top1"),
        ({"--accuracy": "nosuchmodule:metric:threshold=0"}, (), 2, "no module nosuchmodule"),
        ({"--labels": "nothing.npy"}, (), 2, "--labels=nothing.npy: no such file"),
        ({"--labels": "held_back.npz"}, ("--classes=none.txt",), 2, "--classes=none.txt cannot be read"),
        ({"--labels": "cut.npy"}, (), 2, "cut.npy is no readable .npz or .npy file"),
        ({"--labels": "two.npz"}, (), 2, "--labels=two.npz holds 2 arrays: a, b"),
        (
            {"--labels": "rows.csv"},
            ("--label_column=nowhere",),
            2,
            "--label_column=nowhere: rows.csv has no such column",
        ),
        ({"--accuracy": "auc:threshold=0.5", "--labels": None}, (), 2, "auc compares answers with --labels alone"),
        ({"--accuracy": "rmse:percent-max-degradation=1", "--labels": None}, (), 2, "a percentage of that is nothing"),
        ({}, ("--work_dir=held_back.npz",), 2, "is no folder"),
        ({}, ("--work_dir=best",), 2, "are both best"),
        ({}, ("--max_minutes=-3",), 2, "is no budget"),
        ({}, ("--max_minutes=inf",), 2, "is no budget"),
        ({}, ("--batch_size=1,many",), 2, "'many' is no batch size"),
        ({}, ("--batch_size=0",), 2, "'0' is no batch size"),
        ({}, ("--batch_size=1", "--shapes=image:1x8x8x1"), 2, "--shapes and --batch_size exclude each other"),
        ({}, ("--shapes=image",), 2, "--shapes"),
        ({}, ("--precision=FP64",), 2, "FP64 is no precision"),
        ({}, ("--precision=",), 2, "nothing is no precision"),
        ({}, ("--rate=100",), 2, "--rate says nothing without --slo"),
        ({}, ("--slo=fast",), 2, "--slo: 'fast' is no bound"),
        ({}, ("--slo=mean<3ms",), 2, "has no percentile"),
        ({}, ("--slo=p99<3ms", "--server=triton"), 2, "--slo is looked at under TensorFlow Serving alone"),
        ({}, ("--publish=digits",), 2, "is no BASE_PATH/MODEL_NAME"),
        ({}, ("--publish=models/a b",), 2, "is no BASE_PATH/MODEL_NAME"),
        ({}, ("--calibration_data=no.npz",), 2, "no such file"),
        ({}, ("--precision=FP16", "--calibration_data=held_back.npz"), 2, "--calibration_data has no effect"),
        ({"--output": "there"}, (), 2, "the output directory exists"),
        ({}, ("--html=no/folder.html",), 2, "cannot be written"),
        ({"--output": "model"}, (), 2, "lie inside one another"),
        # Against the model, which is looked at and not loaded.
        ({"--data": "other_name.npz"}, (), 2, "the data has an array 'pixels' that is no input"),
        ({"--data": "other_shape.npz"}, (), 2, "the data of input 'image' has shape"),
        ({"--data": "text.npz"}, (), 2, "the data of input 'image'"),
        ({"--data": "none.npz"}, (), 2, "is empty"),
        ({"--data": "nan.npz"}, (), 2, "holds NaN or Inf"),
        ({"--data": "cut.npz"}, (), 2, "cut.npz is no readable .npz or .npy file"),
        ({}, ("--calibration_data=other_name.npz",), 2, "--calibration_data=other_name.npz: the data has an array"),
        ({}, ("--calibration_data=other_shape.npz",), 2, "has shape"),
        ({"--labels": "few.npy"}, (), 2, "--labels holds 3 int64 values for 400 rows"),
        ({"--labels": "half.npy"}, (), 2, "--labels: float64[400] fits no output"),
        # Two checks see these, and they are told once.
        ({"--accuracy": "top1:0.01"}, (), 2, "tftrt: error: --accuracy: 'top1:0.01' is no goal"),
        ({}, ("--shapes=image",), 2, "tftrt: error: --shapes: 'image' names no input"),
        ({}, ("--freeze=flag",), 2, "tftrt: error: --freeze: 'flag' is no input with its value"),
        ({"--accuracy": "rmse:threshold=1"}, (), 2, "rmse does not apply to --labels, which are classes of"),
        ({"--labels": "complex.npy"}, (), 2, "--labels: complex128[400] fits no output"),
        ({"--labels": "eleven.npy"}, (), 2, "--labels: 10 is no class of serving_default/probabilities, which has 10"),
        (
            {"--labels": "names.txt"},
            ("--classes=classes.txt",),
            2,
            "--labels holds 'cat', which --classes does not name",
        ),
        ({"--data": "photos", "--labels": "few.npy"}, (), 2, "--labels=few.npy holds 3 values, and photos 2 rows"),
        ({}, ("--accuracy_output=logits",), 2, "--accuracy_output=logits is no output of the model"),
        ({}, ("--shapes=pixels:1x2",), 2, "--shapes: no input 'pixels'"),
        ({}, ("--shapes=image:1x9x8x1",), 2, "'serving_default' refuses image:1x9x8x1"),
        ({}, ("--signature_keys=other",), 2, "no signature 'other'"),
        ({}, ("--freeze=flag:1",), 2, "--freeze: no input 'flag'"),
        ({}, ("--keep_native_nodes=([",), 2, "is no regular expression"),
        # Places.
        ({"--output": "rows.csv/best"}, (), 2, "rows.csv is no folder"),
        ({"--output": "/proc/best"}, (), 2, "/proc cannot be written to by this user"),
        ({}, ("--publish=rows.csv/m",), 2, "rows.csv is no directory"),
        ({}, ("--publish=/proc/m",), 2, "--publish=/proc/m: /proc cannot be written to"),
        ({}, ("--publish=model/variables/m",), 2, "lies inside the model"),
        ({}, ("--publish=best/m",), 2, "lies inside the model"),
        ({}, ("--work_dir=/proc/w",), 2, "/proc cannot be written to"),
        ({}, ("--work_dir=model/w",), 2, "--work_dir=model/w lies inside the model"),
        ({}, ("--output_flagfile=/sys/best.flags",), 2, "cannot be written: this user cannot write to /sys"),
    ],
)
def test_what_can_never_work_is_refused_before_any_step(tftrt, zoo_model, folder, changes, flags, code, says):
    _write_wrong_files(folder)
    os.symlink(zoo_model("digits_cnn"), folder / "model")
    (folder / "there").mkdir()
    (folder / "there/saved_model.pb").touch()
    (folder / "cut.npy").write_bytes((folder / "labels.npy").read_bytes()[:200])
    np.savez(folder / "two.npz", a=[1], b=[1])
    (folder / "rows.csv").write_text("name,label\na,1\n")
    there = sorted(os.listdir(folder))
    assert_clear(optimize(tftrt, folder, "model", *flags, **changes), code, says)
    assert sorted(os.listdir(folder)) == there, "nothing was begun"


def _write_wrong_files(folder):
    images, labels = np.load(folder / "held_back.npz")["image"], np.load(folder / "labels.npy")
    for name, arrays in {
        "other_name": {"pixels": images},
        "other_shape": {"image": images[:, :4]},
        "text": {"image": images.astype("U3")},
        "none": {"image": images[:0]},
        "nan": {"image": np.full_like(images, np.nan)},
    }.items():
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "cut.npz").write_bytes((folder / "held_back.npz").read_bytes()[:2000])
    for name, values in {
        "few": labels[:3],
        "half": labels + 0.5,
        "complex": labels.astype(complex),
        "eleven": np.append(labels[1:], 10),
    }.items():
        np.save(folder / f"{name}.npy", values)
    (folder / "names.txt").write_text("cat\n" * len(labels))
    (folder / "classes.txt").write_text("\n".join("0123456789"))
    (folder / "photos").mkdir()
    for number in range(2):
        Image.fromarray((255 * images[number, ..., 0]).astype(np.uint8)).save(folder / f"photos/{number}.png")


def test_all_that_can_never_work_is_told_at_once(tftrt, zoo_model, folder):
    _write_wrong_files(folder)
    there = sorted(os.listdir(folder))
    flags = ("--slo=fast", "--publish=digits", "--html=no/folder.html", "--output_flagfile=no/flags", "--max_minutes=0")
    wrong = {"--data": "other_name.npz", "--labels": "nothing.npy", "--output": "photos"}
    done = optimize(tftrt, folder, zoo_model("digits_cnn"), "--calibration_data=none.npz", *flags, **wrong)
    assert_clear(done, 2, "9 things are wrong: (1) no/folder.html cannot be written")
    for says in (
        "no/flags cannot be written",
        "--max_minutes=0 is no budget",
        "--slo: 'fast' is no bound",
        "--publish=digits is no BASE_PATH/MODEL_NAME",
        "the output directory exists",
        "--labels=nothing.npy: no such file",
        "'pixels' that is no input",
        "is empty",
    ):
        assert says in done.stderr, says
    assert sorted(os.listdir(folder)) == there


def test_data_may_leave_out_what_says_whether_a_model_is_trained(tftrt, folder):
    """Its value is frozen once the graph was looked at: that it has no rows is no mistake."""
    module = tf.Module()
    module.serve = tf.function(
        lambda image, is_training: {"y": tf.cond(is_training, lambda: image, lambda: 2.0 * image)},
        input_signature=[tf.TensorSpec([None, 4], name="image"), tf.TensorSpec([], tf.bool, name="is_training")],
    )
    tf.saved_model.save(module, str(folder / "model"), {"serving_default": module.serve})
    np.savez(folder / "rows.npz", image=np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    flags = {"--data": "rows.npz", "--labels": None, "--accuracy": "snr_db:threshold=20"}
    done = optimize(tftrt, folder, "model", "--precision=FP16", **flags)
    assert "$ tftrt inspect" in done.stdout and "is_training" not in done.stderr, done.stderr


def test_models_that_are_none_are_refused(tftrt, converted, folder):
    assert_clear(optimize(tftrt, folder, None), 2, "usage: tftrt optimize MODEL")
    assert_clear(optimize(tftrt, folder, "nowhere"), 2, "no such file or directory: nowhere")
    assert_clear(optimize(tftrt, folder, converted("digits_cnn", "--precision=FP16")), 2, "is a converted model itself")


def test_open_sizes_are_told_before_any_step(tftrt, zoo_model, folder):
    np.savez(folder / "texts.npz", input_ids=np.ones((8, 16), np.int32), input_mask=np.ones((8, 16), np.int32))
    done = optimize(
        tftrt,
        folder,
        zoo_model("bert_encoder"),
        **{"--data": "texts.npz", "--labels": None, "--accuracy": "snr_db:threshold=30"},
    )
    assert_clear(done, 2, "has unknown dimensions")
    assert "--shapes=" in done.stderr and not (folder / "optimize-bert_encoder").exists()


def test_labels_are_looked_at_where_the_data_leaves_a_frozen_input_out(tftrt, folder):
    from tests import signature_models

    signature_models.with_unread_input(folder / "model")
    np.savez(folder / "rows.npz", x=signature_models.rows(9))
    np.save(folder / "few.npy", np.zeros((3, signature_models.WIDTH), np.float32))
    flags = {"--data": "rows.npz", "--labels": "few.npy", "--accuracy": "rmse:threshold=9"}
    done = optimize(tftrt, folder, "model", "--precision=FP16", "--freeze=training:false", **flags)
    assert done.returncode == 2 and "--labels holds 3 float32 values for 9 rows" in done.stderr


def test_a_signature_that_was_not_simulated_is_named(script):
    script.documents["doctor"] = machine(gpu=False).to_dict()
    part = {"simulated": {"a": "INT8"}, "rows": 200, "left_out": {"b": "its inputs are random"}}
    script.documents["verify-int8"]["simulation"] = script.documents["verify"]["simulation"] = part
    assert ". INT8 was not simulated on the rows that are scored for b" in script.run().story.verdict
    said = script.run(precisions=("INT8",), work_dir="other").story.verdict
    assert "INT8, simulated on 200 rows, answers like the original; b: not simulated" in said


def won_by_a_plan(script):
    """The documents of a search that a plan wins, with its table."""
    tuned = script.documents["tune"]
    plan_row = table.Row(
        trial=2,
        what="plan, FP16",
        latencies={"s(x 8)": Latency(0.5, 0.01, 60)},
        rows_per_second=16000.0,
        accuracy=0.98,
        snr_db=float("inf"),
        kept=True,
        build_seconds=9.0,
        model_bytes=2_000_000,
        servers=("triton",),
        remark="winner",
    )
    tuned["trials"] = [{**one, "high_precision": [], "backend": "tensorrt"} for one in tuned["trials"]]
    tuned |= {
        "table": [plan_row.to_dict()],
        "calls": ["s(x 8)"],
        "goal": {"metric": "top1"},
        "legend": "what it means",
        "hints": ["its calls as CUDA graphs take 0.250 ms"],
    }
    script.documents["convert"] = {"backend": "tensorrt", "settings": {"precision_mode": "FP16"}, "cached": True}


def test_a_plan_that_wins_is_verified_compared_and_published_for_triton(script, tmp_path):
    won_by_a_plan(script)
    done = script.run(
        server="triton", slo="p99<20ms", repeat=2, publish="models/best", words={"inputs": ("--inputs=a",)}
    )
    assert done.story.ended == "" and done.story.made == {"model": "best"}
    assert "--server=triton" in script.words("tune") and "--server=triton" in script.words("publish")
    assert not any(word.startswith("--server") for words in script.calls for word in words if words[0] == "verify")
    assert "--output=best" in script.words("convert")
    assert done.known.of("build").cause == "builds of a plan are not compared" and "build" not in script.names
    assert "batching is tuned for TensorFlow Serving alone" in done.known.of("bench").cause
    # A plan is profiled alone, and has no flags of the way to a SavedModel.
    assert not {"--original=model", "--inputs=a"} & set(script.words("profile"))
    assert "--inputs=a" in script.words("verify")
    assert done.known.of("convert").gave == "FP16, plan, taken from the engine cache"
    assert done.known.of("tune").gave.startswith("plan, FP16, trial 2: 1.000 ms at call")
    assert done.story.remarks[0] == "its calls as CUDA graphs take 0.250 ms"
    report.write_page(done, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "The models that were tried" in page and "plan, FP16" in page and "what it means" in page and ">inf<" in page


def test_the_bars_of_the_trials_tell_plans_from_conversions(script):
    won_by_a_plan(script)
    script.documents["tune"]["trials"][0] |= {"backend": "tftrt"}
    script.documents["tune"]["trials"][1] |= {"compared": True}
    drawn = optimize_plot._trials(script.documents["tune"])
    assert "1: FP32" in drawn and "2: plan, FP16, only compared" in drawn


def test_a_promise_that_was_not_looked_at_is_not_said_to_be_kept(script):
    won_by_a_plan(script)
    story = script.run(server="triton", slo="p99<20ms").story
    assert story.outcome == "cannot tell" and "batching is tuned for TensorFlow Serving alone" in story.verdict


def test_without_a_server_that_is_named_no_command_gets_one(script):
    done = script.run(publish="models/best")
    assert not any(word.startswith("--server") for words in script.calls for word in words)
    assert done.story.outcome == "kept"
