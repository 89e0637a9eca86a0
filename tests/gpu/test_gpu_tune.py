"""`tftrt tune` on a GPU: real trials, interrupted and taken up again, the winner converted. `make gpu-test`."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import stacks
from tests.conftest import ROOT, run_tftrt
from tests.gpu_commands import report, verify
from tftrt_tools.models.savedmodel import passport

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(590)]

SHAPES = "--shapes=image:1x8x8x1,40x8x8x1"


def arguments(model, images, work, *flags):
    """Without plans, where none are asked for."""
    alone = [] if any(one.startswith(("--backend", "--server")) for one in flags) else ["--backend=tftrt"]
    return [
        model,
        f"--data={images / 'held_back.npz'}",
        f"--labels={images / 'labels.npy'}",
        f"--calibration_data={images / 'calibration.npz'}",
        "--calibration_batch_size=32",
        SHAPES,
        f"--work_dir={work}",
        f"--engine_cache_dir={work.parent / 'engines'}",
        *alone,
        *flags,
    ]


def tune(model, images, work, *flags, code=0):
    """Returns: (the result, CompletedProcess)."""
    done = run_tftrt("tune", *arguments(model, images, work, *flags), "--json=-", timeout=580)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout), done


def text(trial):
    settings = trial["settings"]
    return (
        f"{settings['precision_mode']}+{len(trial['high_precision'])} size {settings['minimum_segment_size']} "
        f"{settings['dynamic_shape_profile_strategy']} {settings['use_dynamic_shape']}"
    )


def note(name, said):
    """Keep the table for the report."""
    for one in said["trials"]:
        times = {call: round(latency["ms"], 4) for call, latency in one["latencies"].items()}
        report(
            test="tune",
            model=name,
            trial=one["number"],
            settings=text(one),
            ms=times,
            accuracy=one["accuracy"],
            kept=one["kept"],
            build_seconds=one["build_seconds"],
            seconds=one["seconds"],
            failure=one["failure"],
            winner=one["number"] == said["winner"],
        )
    if said["final"]:
        report(
            test="tune",
            model=name,
            in_turns={number: round(one["ms"], 4) for number, one in said["final"]["latencies"].items()},
            times={
                number: [round(one[key], 3) for key in ("times", "low", "high")]
                for number, one in said["final"]["times_as_fast_as_tensorflow"].items()
            },
        )
    report(
        test="tune",
        model=name,
        native={call: round(one["ms"], 4) for call, one in said["native"].items()},
        original=said["original"],
        ended=said["ended"],
        notes=said["notes"],
    )


def test_digits_are_tuned_and_the_winner_converts_to_a_model_that_keeps_the_goal(zoo_model, images, tmp_path):
    said, done = tune(
        zoo_model("digits_cnn"),
        images,
        tmp_path / "work",
        "--accuracy=top1:max-degradation=0.01",
        "--max_trials=7",
        f"--output_flagfile={tmp_path / 'winner.flags'}",
        f"--output={tmp_path / 'winner'}",
        f"--html={tmp_path / 'tuning.html'}",
        f"--plot={tmp_path / 'tuning.svg'}",
    )
    note("digits_cnn", said)
    trials = said["trials"]
    assert [one["settings"]["precision_mode"] for one in trials[:3]] == ["FP32", "FP16", "INT8"]
    assert not any(one["failure"] for one in trials), [one["failure"] for one in trials]
    winner = trials[said["winner"] - 1]
    assert winner["kept"] and winner["accuracy"] >= said["original"] - 0.01 - 1e-9
    for one in trials:
        assert one["engines"] and one["engine_bytes"] and one["build_seconds"] > 0 and one["kernels"]
        assert set(one["latencies"]) == set(said["native"]) == set(said["calls"])
        assert all(latency["ms"] > 0 and latency["calls"] >= 30 for latency in one["latencies"].values())
    final = said["final"]
    assert final["call"] == said["objective"] and {"0", str(said["winner"])} <= set(final["latencies"]), said["notes"]
    faster = final["times_as_fast_as_tensorflow"][str(said["winner"])]
    assert 0 < faster["low"] <= faster["times"] <= faster["high"]
    assert re.search(r"winner: trial .* times as fast as TensorFlow \(95 %: ", done.stderr)
    assert "<svg" in (tmp_path / "tuning.svg").read_text() and "<svg" in (tmp_path / "tuning.html").read_text()
    code, checked, error = verify(
        zoo_model("digits_cnn"),
        tmp_path / "winner",
        f"--data={images / 'held_back.npz'}",
        f"--labels={images / 'labels.npy'}",
    )
    assert checked, error
    assert (
        checked["accuracy"]["converted"] >= said["original"] - 0.01 - 1e-9
        and checked["engine_runs"]
        and not checked["builds"]
    )
    assert (
        passport.read(tmp_path / "winner", passport.MANIFEST)["settings"]["precision_mode"]
        == winner["settings"]["precision_mode"]
    )
    again = run_tftrt(
        "convert",
        f"--flagfile={tmp_path / 'winner.flags'}",
        f"--output={tmp_path / 'again'}",
        f"--engine_cache_dir={tmp_path / 'engines'}",
        timeout=400,
    )
    assert again.returncode == 0, again.stderr
    assert "came from the engine cache" in again.stdout


def test_a_finished_search_is_taken_from_its_folder_and_another_threshold_needs_no_new_trial(
    zoo_model, images, tmp_path
):
    flags = ("--precision=FP32,FP16", "--max_trials=2")
    first, _ = tune(zoo_model("digits_cnn"), images, tmp_path / "work", "--accuracy=top1:max-degradation=0.01", *flags)
    files = {path.name: path.read_bytes() for path in (tmp_path / "work").glob("trial-*.json")}
    second, _ = tune(zoo_model("digits_cnn"), images, tmp_path / "work", "--accuracy=top1:threshold=0.9", *flags)
    assert [one["latencies"] for one in second["trials"]] == [one["latencies"] for one in first["trials"]]
    # What was timed in turns is taken from the folder as well, unless another trial may win now.
    assert second["final"] == first["final"] or second["winner"] != first["winner"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "work").glob("trial-*.json")} == files and len(
        files
    ) == 2
    said, done = tune(
        zoo_model("digits_cnn"), images, tmp_path / "work", "--accuracy=snr_db:threshold=300", *flags, code=3
    )
    assert said["winner"] is None and said["best"] and "no trial keeps snr_db >= 300; nearest is trial" in done.stderr
    wrong = shutil.copytree(images, tmp_path / "wrong")  # the original may be right on all rows
    labels = np.load(wrong / "labels.npy")
    np.save(wrong / "labels.npy", np.concatenate([(labels[:4] + 1) % 10, labels[4:]]))
    done = run_tftrt(
        "tune",
        *arguments(zoo_model("digits_cnn"), wrong, tmp_path / "work", "--accuracy=top1:threshold=0.9999"),
        timeout=300,
    )
    assert done.returncode == 3 and "the original itself misses the goal" in done.stderr


def test_an_interrupted_search_goes_on_where_it_ended(zoo_model, images, tmp_path):
    work = tmp_path / "work"
    flags = arguments(
        zoo_model("digits_cnn"),
        images,
        work,
        "--accuracy=top1:max-degradation=0.01",
        "--precision=FP32,FP16",
        "--max_trials=2",
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", "tune", *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )
    deadline = time.monotonic() + 400
    while not (work / "trial-0001.json").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1 and "the finished trials are in" in error
    assert not list(work.glob(".trial-*"))
    before = (work / "trial-0001.json").read_bytes()
    said, _ = tune(
        zoo_model("digits_cnn"),
        images,
        work,
        "--accuracy=top1:max-degradation=0.01",
        "--precision=FP32,FP16",
        "--max_trials=2",
    )
    assert len(said["trials"]) == 2 and (work / "trial-0001.json").read_bytes() == before


@pytest.fixture(scope="module")
def spread(zoo_model):
    """spread_cnn, large enough that INT8 pays on a data-centre GPU."""
    return zoo_model("spread_cnn", width=256, size=32, blocks=2)


def test_a_model_that_plain_int8_breaks_is_saved_by_a_few_nodes_kept_high(spread, images, tmp_path):
    said, done = tune(
        spread,
        images,
        tmp_path / "work",
        "--accuracy=top1:max-degradation=0.01",
        "--max_trials=10",
        "--max_minutes=7",
        "--precision=FP16,INT8",
        "--shapes=image:40x8x8x1",
    )
    note("spread_cnn", said)
    fp16, plain = said["trials"][:2]
    assert fp16["kept"] and plain["settings"]["precision_mode"] == "INT8" and not plain["kept"], (
        fp16["accuracy"],
        plain["accuracy"],
    )
    # What plain INT8 breaks was computed in INT8.
    assert plain["kernels"]["INT8"] > 0 and not any("INT8 was asked for and not taken" in one for one in said["notes"])
    winner = said["trials"][said["winner"] - 1]
    high = [one for one in said["trials"] if one["high_precision"]]
    if plain["latencies"][said["objective"]]["ms"] < fp16["latencies"][said["objective"]]["ms"]:
        # Where INT8 is faster at all, keeping nodes high was tried, and the ranking put the spread block first.
        assert high and any(
            re.search("spread_(expand|depthwise|project)", name) for name in high[0]["high_precision"]
        ), said["notes"]
        assert any(one["kept"] for one in high), [
            (one["high_precision"], one["accuracy"], one["failure"]) for one in high
        ]
    assert (
        winner["kept"]
        and winner["latencies"][said["objective"]]["ms"] <= fp16["latencies"][said["objective"]]["ms"] * 1.02
    )


def test_a_goal_of_a_metric_of_your_own_and_shapes_that_no_engine_serves_are_told(zoo_model, images, tmp_path):
    done = run_tftrt(
        "tune",
        *arguments(zoo_model("digits_cnn"), images, tmp_path / "work", "--accuracy=nowhere:metric:threshold=1"),
        timeout=300,
    )
    assert done.returncode == 2 and "No module named 'nowhere'" in done.stderr
    done = run_tftrt(
        "tune",
        *arguments(
            zoo_model("digits_cnn"), images, tmp_path / "work", "--accuracy=top1:threshold=0.9", "--batch_size=7"
        ),
        timeout=300,
    )
    assert done.returncode == 2 and "--batch_size=7 is not among --shapes" in done.stderr


@stacks.needs_bindings
def test_plans_are_tried_beside_conversions_and_the_winner_is_written_as_what_it_is(zoo_model, images, tmp_path):
    model, target = zoo_model("digits_cnn"), tmp_path / "winner"
    flags = ("--accuracy=top1:max-degradation=0.01", "--backend=tftrt,tensorrt", "--max_trials=6", f"--output={target}")
    said, done = tune(model, images, tmp_path / "work", *flags)
    note("digits_cnn, plans", said)
    trials = said["trials"]
    assert [(one["backend"], one["settings"]["precision_mode"]) for one in trials] == [
        (backend, precision) for backend in ("tftrt", "tensorrt") for precision in ("FP32", "FP16", "INT8")
    ]
    for one in trials:
        assert not one["failure"], one["failure"]
        assert (
            one["accuracy"] >= 0.9
            and one["engine_bytes"]
            and all(latency["calls"] >= 30 for latency in one["latencies"].values())
        )
    winner = trials[said["winner"] - 1]
    assert {"0", str(said["winner"])} <= set(said["final"]["latencies"]), said["notes"]
    assert (
        (target / "plan.json").is_file() == (winner["backend"] == "tensorrt") != (target / "saved_model.pb").is_file()
    )
    code, checked, error = verify(
        model, target, f"--data={images / 'held_back.npz'}", f"--labels={images / 'labels.npy'}"
    )
    assert checked and checked["accuracy"]["converted"] >= said["original"] - 0.01 - 1e-9, error
    assert len(said["recipe"]) == (2 if winner["backend"] == "tensorrt" else 1)
    again, _ = tune(model, images, tmp_path / "work", *flags[:3])
    assert [one["latencies"] for one in again["trials"]] == [one["latencies"] for one in trials]


@stacks.needs_bindings
def test_plans_alone_are_tuned_and_their_recipe_makes_the_winner_again(zoo_model, images, tmp_path):
    model = zoo_model("digits_cnn")
    said, done = tune(
        model,
        images,
        tmp_path / "work",
        "--accuracy=top1:max-degradation=0.01",
        "--backend=tensorrt",
        "--precision=FP16",
        f"--output_flagfile={tmp_path / 'winner.flags'}",
    )
    assert (
        said["winner"] == 1
        and said["trials"][0]["backend"] == "tensorrt"
        and set(said["final"]["latencies"]) == {"0", "1"}
    ), said["notes"]
    export, convert = (shlex.split(one)[1:] for one in said["recipe"])
    onnx = next(pathlib.Path(one.removeprefix("--output=")) for one in export if one.startswith("--output="))
    onnx.unlink()
    for words in (export, [*(one for one in convert if "output_saved" not in one), f"--output={tmp_path / 'again'}"]):
        done = run_tftrt(*words, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (
        passport.read(tmp_path / "again", passport.MANIFEST)["settings"]["precision_mode"] == "FP16" and onnx.is_file()
    )


@stacks.needs_bindings
def test_a_plan_that_misses_the_goal_keeps_nodes_in_fp32(zoo_model, images, tmp_path):
    said, _ = tune(
        zoo_model("digits_cnn"),
        images,
        tmp_path / "work",
        "--accuracy=snr_db:threshold=300",
        "--backend=tensorrt",
        "--precision=INT8",
        "--calibration_method=max",
        "--max_trials=3",
        code=3,
    )
    note("digits_cnn, plans with nodes in FP32", said)
    plain, chosen, high = said["trials"]
    assert chosen["settings"]["int8_as"] == "auto"  # the digits may have no node for which TensorRT chooses INT8
    assert not plain["failure"] and not high["failure"] and not plain["high_precision"] and high["high_precision"], (
        said["notes"]
    )
    assert high["settings"]["fp32_nodes"] and high["accuracy"] != plain["accuracy"]
    assert any("--fp32_nodes=" in one for one in said["recipe"]) == (said["best"] == 3)


@stacks.needs_bindings
def test_what_the_server_does_not_run_is_compared_in_one_table_with_and_without_graphs(zoo_model, images, tmp_path):
    said, done = tune(
        zoo_model("digits_cnn"),
        images,
        tmp_path / "work",
        "--accuracy=top1:max-degradation=0.01",
        "--server=tensorflow",
        "--precision=FP32,FP16",
        "--max_trials=9",
        f"--output={tmp_path / 'winner'}",
        f"--html={tmp_path / 'tuning.html'}",
    )
    note("digits_cnn, plans compared", said)
    plan = said["trials"][-1]
    assert (plan["backend"], plan["compared"], plan["settings"]["precision_mode"]) == ("tensorrt", True, "FP16")
    assert not plan["failure"] and plan["kept"] and said["winner"] != plan["number"]
    assert (tmp_path / "winner/saved_model.pb").is_file()
    assert set(plan["graphs"]) == set(said["calls"]) and all(one["calls"] >= 30 for one in plan["graphs"].values())
    assert str(plan["number"]) in said["final"]["latencies"], said["notes"]
    plain, launched, native = [one for one in said["table"] if one["trial"] in (plan["number"], 0)]
    assert launched["graphs"] and not plain["graphs"] and plain["servers"] == ["triton"]
    assert native["servers"] == ["tensorflow", "triton"]
    for one in said["table"]:
        assert one["rows_per_second"] > 0 and one["model_bytes"] > 0
        report(test="tune", table=one)
    assert float(plain["snr_db"]) > 40


@stacks.needs_bindings
def test_int8_where_tensorrt_chooses_it_is_one_more_candidate(zoo_model, images, tmp_path):
    said, _ = tune(
        zoo_model("digits_cnn"),
        images,
        tmp_path / "work",
        "--accuracy=snr_db:threshold=5",
        "--server=triton",
        "--backend=tensorrt",
        "--precision=INT8",
        "--max_trials=2",
    )
    note("int8_as", said)
    plain, chosen = said["trials"]
    assert not plain["failure"] and chosen["settings"]["int8_as"] == "auto", said["trials"]
    # Where TensorRT chooses INT8 for no node, that is said; nothing else may be wrong.
    assert not chosen["failure"] or "TensorRT computes no node of it in INT8" in chosen["failure"]
