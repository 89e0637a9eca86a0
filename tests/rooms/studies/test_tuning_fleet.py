"""`tftrt tune --on=local`: trials that need no other run side by side, and the search is the same. Its trials need no GPU here: those of a back
end that another package brings, and TF-TRT's on GPUs that are counted and are none."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import fleets
from tests.command_line import assert_clear, processes_marked
from tests.conftest import ROOT
from tests.rooms.studies.test_tuning import BASE, CALL, SCORING, TOP1, Synthetic, models
from tftrt_tools.accuracy import verify
from tftrt_tools.base.process import environment, progress
from tftrt_tools.command_line.commands import _fleet
from tftrt_tools.command_line.report import trials_plot
from tftrt_tools.fleet import beside, place, session
from tftrt_tools.fleet.task import Where
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies.tuning import fleet_trials, journal, makers, making, search, space
from tftrt_tools.studies.tuning.budget import Budget
from tftrt_tools.studies.tuning.trial import Task, Trials
from tftrt_tools.studies.tuning.tried import Measured

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"
)
# A back end that takes every precision as FP32. Where the file `kill` is, a worker of a fleet is killed while FP16 is made; where `fail` is, it
# fails there.
THIRD = """
import dataclasses, os, pathlib, signal, time
from tests.third_backend import OnnxRuntime

class Third(OnnxRuntime):
    needs_gpu = True

    def check(self, settings, given):
        return super().check(dataclasses.replace(settings, precision_mode="FP32"), given)

    def make(self, work):
        folder = pathlib.Path(os.environ["THIRD"])
        (folder / str(time.monotonic_ns())).write_text(str(os.getpid()))
        if (folder / "wait").exists():
            time.sleep(600)
        above = pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
        if (folder / "kill").exists() and "fp16" in work.output and above.startswith(b"ray::"):
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        if (folder / "fail").exists() and above.startswith(b"ray::"):
            raise OSError(28, "No space left on device")
        return super().make(work)

BACKEND = Third()
"""


@contextlib.contextmanager
def silent():
    yield lambda rows: None


class Recorder:
    """A prefetch that measures as the model does, and keeps what it was told."""

    def __init__(self, model, width):
        self.model, self.width, self.told = model, width, []

    def __call__(self, listed, seconds):
        assert listed and seconds > 0
        self.told.append([settings for _, settings in listed])


@given(models(), st.integers(1, 4), st.integers(1, 30))
def test_the_search_is_the_same_with_trials_that_were_done_ahead(model, width, most):
    alone = model.search(Budget(most, 1e9))
    recorder = Recorder(model, width)
    found = search.search(
        {"tftrt": model.means()}, model.space(), CALL, TOP1, 0.98, Budget(most, 1e9), 0.0, prefetch=recorder
    )
    assert found == alone
    asked = [settings for listed in recorder.told for settings in listed]
    tried = [one.settings for one in found.trials]
    assert set(tried[:3]) <= set(asked), "the precisions need no other"
    for listed in recorder.told:
        assert len(listed) <= most and len(set(listed)) == len(listed)
    # What is done and then not asked for: at most what runs beside a trial after which the search turned away.
    turns = sum(len(listed) > 0 for listed in recorder.told)
    assert len(set(asked) - set(tried)) <= turns * max(width - 1, 0)


def test_all_of_a_kind_begin_together_and_what_may_not_be_needed_only_as_far_as_there_are_gpus():
    model = Synthetic([0.02] * 4, [0.01] * 4, sizes={5: 0.9, 10: 0.8}, strategies={"Range": 0.7})
    recorder = Recorder(model, 2)
    search.search({"tftrt": model.means()}, model.space(), CALL, TOP1, 0.98, Budget(100, 1e9), 0.0, prefetch=recorder)
    told = [[space.text(one) for one in listed] for listed in recorder.told]
    assert told[0] == ["FP32, Optimal", "FP16, Optimal", "INT8, Optimal"]
    nodes = [[one.high_precision_nodes.count("|") + 1 for one in listed] for listed in recorder.told[1:3]]
    assert nodes == [[1, 2], [2, 4]]
    assert [len(listed) for listed in recorder.told[-2:]] == [2, 1], told


@pytest.fixture
def third(tmp_path):
    """The environment in which the back end is installed, and its folder."""
    folder = tmp_path / "third"
    (folder / "third-1.dist-info").mkdir(parents=True)
    (folder / "third_backend_here.py").write_text(THIRD)
    (folder / "third-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1\n")
    (folder / "third-1.dist-info/entry_points.txt").write_text(
        "[tftrt_tools.backends]\nonnxruntime = third_backend_here:BACKEND\n"
    )
    (tmp_path / "made").mkdir()
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        **fleets.COUNTED,
        "PYTHONPATH": path,
        "THIRD": str(tmp_path / "made"),
        "TMPDIR": str(tmp_path),
    }


def arguments(model, images, *flags):
    return [
        *(sys.executable, "-m", "tests.tune_counted", str(model), f"--data={images / 'held_back.npz'}"),
        *("--data_rows=40", "--shapes=image:8x8x8x1", "--accuracy=snr_db:threshold=60", "--backend=onnxruntime"),
        *("--precision=FP32,FP16", "--work_dir=work", *flags),
    ]


def tuned(model, images, env, folder, *flags):
    done = subprocess.run(
        arguments(model, images, "--json=-", *flags), cwd=folder, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def made(env):
    return sorted(name for name in os.listdir(env["THIRD"]) if name.isdigit())


@needs_ray
@pytest.mark.slow
def test_two_trials_run_side_by_side_and_are_taken_up_again(third, zoo_model, images, tmp_path):
    said, printed = tuned(zoo_model("digits_cnn"), images, third, tmp_path, "--on=local")
    assert [(one["settings"]["precision_mode"], one["kept"]) for one in said["trials"]] == [
        ("FP32", True),
        ("FP16", True),
    ]
    assert said["winner"] and said["final"] and "tried alone" not in printed
    files = [json.loads(path.read_text()) for path in sorted((tmp_path / "work").glob("trial-*.json"))]
    assert len(files) == 2 and all(one["measured"]["where"] and one["measured"]["began"] for one in files)
    assert len(list((tmp_path / "work").glob("onnxruntime-*/model.onnx"))) == 2 == len(made(third))
    # Nothing is done again, with a fleet and without.
    for flags in (["--on=local"], []):
        again, _ = tuned(zoo_model("digits_cnn"), images, third, tmp_path, *flags)
        assert [one["latencies"] for one in again["trials"]] == [one["latencies"] for one in said["trials"]]
    assert len(made(third)) == 2
    left = {path.name for path in (tmp_path / "work").iterdir() if path.name.startswith(".")}
    assert not left and not list(tmp_path.glob("tftrt-*"))


@needs_ray
@pytest.mark.slow
def test_a_trial_whose_workers_die_is_told_and_tried_here_and_counts_once(third, zoo_model, images, tmp_path):
    (tmp_path / "made/kill").touch()
    said, printed = tuned(zoo_model("digits_cnn"), images, third, tmp_path, "--on=local")
    assert "optimized file, FP16: no worker brought it to an end in 2 tries" in printed
    assert "it is tried alone when its turn comes" in printed
    first, second = said["trials"]
    assert first["kept"] and second["kept"] and len(made(third)) == 4
    files = [json.loads(path.read_text()) for path in (tmp_path / "work").glob("trial-*.json")]
    assert (
        sorted(one["settings"]["precision_mode"] for one in files if one["measured"]["where"]) == ["FP32"]
        and len(files) == 2
    )


@needs_ray
@pytest.mark.slow
def test_what_fails_beside_others_is_tried_alone(third, zoo_model, images, tmp_path):
    (tmp_path / "made/fail").touch()
    said, printed = tuned(zoo_model("digits_cnn"), images, third, tmp_path, "--on=local", "--log_file=log")
    assert printed.count("No space left on device; it is tried alone") == 2
    # A full disk is tried twice, as for every task, and then here.
    assert all(one["kept"] for one in said["trials"]) and len(made(third)) == 6
    assert not [
        path for path in (tmp_path / "work").glob("trial-*.json") if json.loads(path.read_text())["measured"]["where"]
    ]


@needs_ray
@pytest.mark.slow
def test_what_is_made_already_is_measured_and_not_made_again(third, zoo_model, images, tmp_path):
    tuned(zoo_model("digits_cnn"), images, third, tmp_path)
    for path in (tmp_path / "work").glob("trial-*.json"):
        path.unlink()
    tuned(zoo_model("digits_cnn"), images, third, tmp_path, "--on=local")
    assert len(made(third)) == 2


@needs_ray
@pytest.mark.slow
def test_no_trial_begins_when_the_minutes_are_over(third, zoo_model, images, tmp_path):
    said, printed = tuned(zoo_model("digits_cnn"), images, third, tmp_path, "--on=local", "--max_minutes=0.001")
    assert len(said["trials"]) <= 2 and "--max_minutes=0.001 are over" in said["ended"], printed


@needs_ray
@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_what_is_done_stays(third, zoo_model, images, tmp_path):
    (tmp_path / "made/wait").touch()
    mark = f"tune-{os.getpid()}"
    one = subprocess.Popen(
        arguments(zoo_model("digits_cnn"), images, "--on=local"),
        cwd=tmp_path,
        env={**third, "TFTRT_TEST_MARK": mark},
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(made(third)) < 2:
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    one.send_signal(signal.SIGINT)
    _, error = one.communicate(timeout=120)
    assert one.returncode and "the same command goes on from there" in error and "Traceback" not in error
    for _ in range(100):
        if not (left := processes_marked(mark)):
            break
        time.sleep(0.1)
    assert not left
    names = {path.name.partition("-")[0] for path in (tmp_path / "work").iterdir()}
    assert names == {"calls", "lock", "native", "original"}


@needs_ray
@pytest.mark.slow
def test_a_conversion_is_tried_with_the_data_and_the_folder_of_the_user(zoo_model, images, tmp_path, monkeypatch):
    """On GPUs that are none: INT8 is calibrated and the plan's file exported as ever; no engine is built, and each trial says so."""
    monkeypatch.chdir(images)
    model = str(zoo_model("digits_cnn"))
    kept = journal.Journal(tmp_path / "work")
    told = makers.Asked(
        source=Source(path=model),
        names={"serving_default": ("serving_default", "classify")},
        folder=kept.folder,
        comparison=verify.Options(asked=inputs.Asked(data="held_back.npz", data_rows=16)),
        data=DataOptions(source="calibration.npz", batch_size=32, batches=2),
    )
    task = Task(
        model=model,
        timed=(),
        scoring=SCORING,
        data=told.data,
        facts={"model": "sha256:0"},
        data_facts={"model": "sha256:0"},
        makers=making.of(["tftrt", "tensorrt"], told),
    )
    fp16, int8 = (space.with_precision(BASE, precision) for precision in ("FP16", "INT8"))
    listed = [("tftrt", fp16), ("tftrt", int8), ("tensorrt", fp16)]
    with (
        environment.variables({**fleets.COUNTED, "CUDA_VISIBLE_DEVICES": "0,1"}),
        session.opened(place.parse("local")) as fleet,
        Trials(task, kept) as trials,
    ):
        opened = beside.Opened(fleet=fleet, live=silent)
        prefetch = fleet_trials.Prefetch(opened, told, task, kept, trials)
        assert prefetch.width == 2
        # Failures are left to the search, but for these here.
        monkeypatch.setattr(trials, "ran_out_of_time", lambda failure: True)
        prefetch(listed, 600.0)
        assert [trials.has(settings, backend) for backend, settings in listed] == [True] * 3
        (table,) = kept.folder.glob("calibration-*.json")
        assert table == trials.calibration_path(int8) and json.loads(table.read_text())["engines"]
        assert task.makers["tensorrt"].onnx(fp16).is_file()
        failures = [trials(fp16).failure, trials(int8).failure, trials.made(fp16, "tensorrt").failure]
        assert trials.reused == 3 and all("GPU" in one for one in failures), failures
        # A table that is damaged is the trial's trouble, not the search's.
        table.write_text("{")
        assert not trials.has(int8, "tftrt")
    files = [json.loads(path.read_text()) for path in kept.folder.glob("trial-*.json")]
    assert {one["measured"]["where"][-5:] for one in files} == {"GPU 0", "GPU 1"} and len(files) == 3
    assert not list(kept.folder.glob(".trial-*"))


def at(number, began, seconds, where=""):
    measured = Measured(began=began, seconds=seconds, where=where)
    return search.Trial(number=number, settings=BASE, high=(), measured=measured, kept=True)


def test_the_page_shows_when_each_trial_ran_and_where():
    drawn = trials_plot.timeline(
        [at(1, 1e9, 55.0, "node, GPU 0"), at(2, 1e9, 80.0, "node, GPU 1"), at(3, 1e9 + 80, 40.0)]
    )
    assert all(text in drawn for text in ("55 s, node, GPU 0", "80 s, node, GPU 1", ">40 s<", "1  FP32, Optimal"))
    # Of a version before nothing is known; and a search that went on on the next day is all pause.
    assert trials_plot.timeline([at(1, None, 55.0), at(2, 1e9, 80.0)]) == ""
    assert trials_plot.timeline([at(1, 1e9, 55.0), at(2, 1e9 + 86400, 80.0)]) == ""


def test_a_gpu_is_named_by_its_number_or_the_beginning_of_its_uuid():
    named = [
        Where(node="n", host="h", gpus=one).text() for one in ("", "1", "GPU-acc98c76-442b-112d-b90b-dfeffcde2fd2")
    ]
    assert named == ["h", "h, GPU 1", "h, GPU-acc98c76"]


def test_an_option_of_plans_survives_the_way():
    settings = space.with_int8_as(dataclasses.replace(BASE, precision_mode="INT8"))
    for one in (settings, BASE):
        again = fleet_trials.of_settings(json.loads(json.dumps(one.to_dict())))
        assert again == one and type(again) is type(one)


@needs_ray
def test_one_gpu_or_none_is_told_and_changes_nothing(monkeypatch):
    said = []
    with progress.notes_to(said.append):
        for found in ((), ("GPU-a",), ("GPU-a", "GPU-b")):
            monkeypatch.setattr(_fleet.local_gpus, "alike", lambda found=found: found)
            assert _fleet.side_by_side() == (found if len(found) > 1 else ())
    assert said == [
        "--on=local changes nothing: there is no GPU here",
        "--on=local changes nothing: there is one GPU of its kind here",
    ]


def test_a_wrong_place_is_refused(zoo_model, images, tftrt):
    flags = [f"--data={images / 'held_back.npz'}", "--shapes=image:8x8x8x1", "--accuracy=snr_db:threshold=60"]
    model = zoo_model("digits_cnn")
    assert_clear(tftrt("tune", model, *flags, "--on=here"), 2, "--on=here is no place")
