"""What of `benchmarks.precision` runs without a GPU: options, order, going on after an interruption, tables of recorded results."""

import concurrent.futures
import contextlib
import json
import pathlib

import pytest

from benchmarks import _precision_cases as cases
from benchmarks import _precision_run as run
from benchmarks import _precision_table as table
from benchmarks import precision
from tests.conftest import ROOT
from tftrt_tools.base.process import child
from tftrt_tools.tftrt.calibration.job import data

pytestmark = pytest.mark.bench

RECORDED = (
    ROOT / "tests/data/precision_results.jsonl"
)  # of a run with --dry_cpu that was ended by --budget and continued twice


def names(columns):
    return [column.name for column in columns]


def test_a_model_is_built_once(tmp_path):
    case = cases.case("dynamic_segmenter", 224, 16, {})
    built = cases.model(case, tmp_path)
    written = (built / "saved_model.pb").stat().st_mtime_ns
    assert cases.model(case, tmp_path) == built and (built / "saved_model.pb").stat().st_mtime_ns == written


def test_columns_come_in_the_order_of_their_builds():
    assert names(cases.columns(["INT8", "FP16", "FP32"], ["entropy"])) == [
        "FP32",
        "FP16",
        "INT8-tensorrt",
        "INT8-entropy",
    ]
    assert names(cases.columns(["INT8"], cases.METHODS, "--high_precision_nodes=x")) == [
        "INT8-tensorrt",
        "INT8-entropy",
        "INT8-percentile",
        "INT8-mse",
        "INT8-max",
        "INT8-auto",
        "tuned",
    ]
    assert names(cases.columns(["FP16", "INT8-max"], ["entropy"], "--high_precision_nodes=x")) == ["FP16", "INT8-max"]
    assert [column.timed for column in cases.columns(["INT8"], ["entropy", "mse"])] == [True, True, False]


def test_a_tuned_column_follows_its_flags():
    (column,) = cases.columns(["tuned"], ["entropy"], "--high_precision_nodes='a b|c' --calibration_method=mse")
    settings = cases.settings(column, "x:1x8")
    assert (column.precision, column.table, settings.high_precision_nodes, settings.calibration_method) == (
        "INT8",
        "mse",
        "a b|c",
        "mse",
    )
    assert settings.shapes == "x:1x8" and settings.dynamic and not settings.allow_build_at_runtime
    (column,) = cases.columns(["tuned"], ["entropy"], "--precision=FP16 --fp32_nodes=d")
    assert (column.precision, column.table, cases.settings(column, "").fp32_nodes) == ("FP16", "", "d")


@pytest.mark.parametrize(
    "flag, said",
    [
        ("--models=resnet51", "resnet51"),
        ("--precision=INT4", "INT4"),
        ("--methods=median", "median"),
        ("--batches=0", "1 or more"),
        ("--tuned=spread_cnn", "MODEL:"),
        ("--tuned=spread_cnn:--precision=INT4", "INT4"),
        ("--split=vgg", "vgg"),
        ("--model_options=resnet50:depth=3", "depth"),
        ("--gpus=0", "GPU"),
    ],
)
def test_wrong_options_are_refused_with_the_reason(flag, said, capsys):
    with pytest.raises(SystemExit) as stop:
        precision.parse([flag])
    assert stop.value.code == 2 and said in capsys.readouterr().err


def work_of(*argv, lines=(), tmp_path):
    journal = run.Journal(tmp_path / run.FILE)
    journal.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = precision.parse([*argv, f"--output={tmp_path}"])
    return precision._work(options, journal), options


def test_all_models_are_measured_by_default_and_only_spread_cnn_is_tuned(tmp_path):
    work, _ = work_of(tmp_path=tmp_path)
    assert [one.case.name for one in work] == cases.longest_first(cases.NAMES) and sorted(cases.NAMES) == sorted(
        one.case.name for one in work
    )
    assert {one.case.name for one in work if "tuned" in names(one.columns)} == {"spread_cnn"}
    work, _ = work_of("--tuned=spread_cnn:", "--tuned=digits_cnn:--high_precision_nodes=x", tmp_path=tmp_path)
    assert {one.case.name for one in work if "tuned" in names(one.columns)} == {"digits_cnn"}


def test_model_options_reach_the_builder_and_the_samples(tmp_path):
    work, _ = work_of(
        "--image_size=64", "--length=16", "--model_options=bert_encoder:layers=2,hidden=64", tmp_path=tmp_path
    )
    found = {one.case.name: one.case for one in work}
    assert found["resnet50"].build == found["resnet50"].sample == {"size": 64}
    assert found["bert_encoder"].build == {"layers": 2, "hidden": 64} and found["bert_encoder"].sample == {"length": 16}
    assert (
        found["spread_cnn"].label == "spread_cnn-blocks6-size32-width256" and found["digits_cnn"].label == "digits_cnn"
    )


def test_a_split_model_has_its_int8_columns_apart(tmp_path):
    work, _ = work_of("--models=resnet50,digits_cnn", "--split=resnet50", tmp_path=tmp_path)
    assert [(one.case.name, names(one.columns)) for one in work] == [
        ("resnet50", ["INT8-tensorrt", "INT8-entropy"]),
        ("resnet50", ["FP32", "FP16"]),
        ("digits_cnn", ["FP32", "FP16", "INT8-tensorrt", "INT8-entropy"]),
    ]


def test_each_worker_sees_one_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert precision.devices(precision.parse(["--gpus=3"])) == ["0", "1", "2"]
    assert precision.devices(precision.parse(["--gpus=2", "--dry_cpu"])) == ["-1", "-1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert precision.devices(precision.parse(["--gpus=2"])) == ["4", "6"]


def test_a_gpu_takes_the_longest_model_that_is_ready(tmp_path):
    work, _ = work_of("--models=digits_cnn,resnet50,mobilenet_v2", tmp_path=tmp_path)
    prepared = {(one.case.name, ""): concurrent.futures.Future() for one in work}
    waiting = run.Waiting(work, prepared)
    prepared["digits_cnn", ""].set_result({})
    assert waiting.take().case.name == "digits_cnn"
    prepared["mobilenet_v2", ""].set_exception(OSError("disk full"))
    prepared["resnet50", ""].set_result({})
    assert [waiting.take().case.name for _ in range(2)] == ["resnet50", "mobilenet_v2"] and waiting.take() is None


def test_a_model_is_prepared_once_and_its_other_tables_come_last(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        run, "_prepare", lambda one, tables, before, options: asked.append((one.case.name, tables, before is not None))
    )
    work, options = work_of("--models=resnet50,digits_cnn", "--split=resnet50", "--methods=all", tmp_path=tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = run.prepare(pool, work, options)
    models = ["resnet50", "digits_cnn"]
    assert asked == [
        (name, [method] if method else [], bool(method)) for method in ("", *cases.METHODS) for name in models
    ]
    assert set(found) == {(name, method) for name in models for method in ("", *cases.METHODS)}


def measured(work, column):
    return {"kind": "measured", "model": work.case.name, "key": work.key, "column": column.name, "flags": column.flags}


def test_what_is_measured_is_not_measured_again(tmp_path):
    (one,), _ = work_of("--models=digits_cnn", tmp_path=tmp_path)
    assert names(one.left([])) == ["native", "FP32", "FP16", "INT8-tensorrt", "INT8-entropy"]
    lines = [
        measured(one, run.NATIVE),
        measured(one, one.columns[1]),
        {**measured(one, one.columns[0]), "kind": "built"},
        {**measured(one, one.columns[2]), "kind": "error"},
    ]
    assert names(one.left(lines)) == ["FP32", "INT8-tensorrt", "INT8-entropy"]
    every = [measured(one, column) for column in one.left([])]
    assert work_of("--models=digits_cnn", lines=every, tmp_path=tmp_path)[0] == []
    (other,), _ = work_of("--models=digits_cnn", "--batches=1,2", lines=every, tmp_path=tmp_path)
    assert len(other.left(every)) == 5 and other.key != one.key


def test_a_line_that_was_cut_short_is_left_out(tmp_path):
    (tmp_path / "x").write_text('{"kind": "run"}\n{"kind": "meas')
    assert run.read(tmp_path / "x") == [{"kind": "run"}] and run.read(tmp_path / "missing") == []


class FakeWorker:
    """Dies at one column's build."""

    def __init__(self, deadly):
        self.alive, self.requests, self._deadly = True, [], deadly

    def call(self, request, timeout):
        self.requests.append(request["do"])
        if request.get("column", {}).get("name") == self._deadly:
            self.alive = False
            raise child.ChildDied("native code ended the process (SIGSEGV)", "", "")
        return child.Outcome(
            {"warm": {"warm_seconds": 1.0}, "convert": {"engines": 1}}.get(request["do"], {"latency": {}}), ""
        )


def runner(tmp_path, monkeypatch, deadly, deadline=float("inf"), prepared=None):
    (one,), options = work_of(
        "--models=digits_cnn", "--precision=FP32,FP16", "--dry_cpu", f"--models_dir={tmp_path}", tmp_path=tmp_path
    )
    workers = []

    @contextlib.contextmanager
    def start(target, env, log_file):
        workers.append(FakeWorker(deadly))
        yield workers[-1]

    monkeypatch.setattr(run.child, "worker", start)
    future = concurrent.futures.Future()
    files = dict.fromkeys(("model", "scoring", "labels", "reference", "calibration", "folder"), str(tmp_path))
    future.set_exception(prepared) if prepared else future.set_result({**files, "seconds": {}, "common": 0})
    journal = run.Journal(tmp_path / run.FILE)
    run.Runner(one, {("digits_cnn", ""): future}, "0", options, journal, deadline).run()
    return workers, [(line["kind"], line["column"]) for line in run.read(journal.path)], run.read(journal.path)


def test_after_a_worker_died_the_next_column_goes_on_in_a_new_one(tmp_path, monkeypatch):
    workers, said, lines = runner(tmp_path, monkeypatch, deadly="FP32")
    assert said == [
        ("prepared", ""),
        ("warm", ""),
        ("measured", "native"),
        ("error", "FP32"),
        ("warm", ""),
        ("built", "FP16"),
        ("measured", "FP16"),
    ]
    assert [worker.requests for worker in workers] == [["warm", "measure", "convert"], ["warm", "convert", "measure"]]
    assert "SIGSEGV" in lines[3]["error"] and lines[5]["built_before"] == [] and lines[5]["process"] == 2


def test_after_the_budget_no_column_is_begun(tmp_path, monkeypatch):
    workers, said, _ = runner(tmp_path, monkeypatch, deadly="", deadline=0.0)
    assert said == [("prepared", "")] and workers == []


def test_a_model_that_cannot_be_prepared_is_an_error_of_its_own(tmp_path, monkeypatch):
    _, said, lines = runner(tmp_path, monkeypatch, deadly="", prepared=OSError("disk full"))
    assert said == [("error", "")] and "- digits_cnn: prepare: disk full" in table.markdown(lines)


def test_scoring_inputs_are_no_calibration_inputs():
    case = cases.case("bert_encoder", 224, 16, {})
    rows, (scored, labels) = cases.calibration(case, 70), cases.scoring(case, 30)
    assert rows["input_ids"].shape == (70, 16) and scored["input_mask"].shape == (30, 16) and labels is None
    assert not set(data.row_hashes(rows)) & set(data.row_hashes(scored))
    assert cases.shapes(scored, [1, 8]) == "input_ids:1x16,8x16;input_mask:1x16,8x16"


def test_digits_are_calibrated_on_training_images_and_scored_with_labels():
    case = cases.case("digits_cnn", 224, 128, {})
    rows, (scored, labels) = cases.calibration(case, 500), cases.scoring(case, 7)
    assert len(rows["image"]) == 500 and len(scored["image"]) == len(labels) == 400
    assert not set(data.row_hashes(rows)) & set(data.row_hashes(scored))


def cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_recorded_lines_give_the_tables():
    lines = run.read(RECORDED)
    text = table.markdown(lines)
    found = table.columns([line for line in lines if line["kind"] != "run"])
    assert list(found) == ["native", "FP32", "FP16", "INT8-tensorrt", "INT8-entropy", "INT8-max", "tuned"]
    assert cells(text, "accuracy on 400") == ["99.00"] * 6 + [""]
    assert cells(text, "SNR")[0] == "∞" and cells(text, "built before")[:4] == ["", "nothing", "nothing", "FP32"]
    latency = found["FP32"]["latency"]["1"]
    assert cells(text, "latency, batch 1")[1].endswith(f"x {latency['native_ms'] / latency['ms']:.2f}")
    assert cells(text, "latency, batch 1")[5:] == ["", ""]
    assert (
        "matches no node" in cells(text, "failed")[-1]
        and "\n- digits_cnn tuned: build: --high_precision_nodes=nothing" in text
    )
    assert cells(text, "digits_cnn")[:3] == ["24 (8)", "0 / 0", "0.9901"]


def test_a_later_success_takes_an_error_back_and_other_options_get_their_own_table():
    lines = run.read(RECORDED)
    error = next(line for line in lines if line["kind"] == "error")
    done = next(line for line in lines if line["kind"] == "measured")
    again = {**done, "column": "tuned", "flags": error["flags"]}
    assert "Failed" not in table.markdown([*lines, again])
    assert table.markdown([*lines, {**again, "key": "other"}]).count("#### digits_cnn") == 2
    assert r"\*" in table.markdown([{**line, "disturbed": True} for line in lines])


def test_the_table_is_printed_from_a_folder(tmp_path, capsys):
    (tmp_path / run.FILE).write_text(RECORDED.read_text())
    assert precision.main(["--table", str(tmp_path)]) == 0
    assert "#### digits_cnn" in capsys.readouterr().out


@pytest.mark.slow
def test_a_dry_run_measures_every_column_that_needs_no_gpu(zoo_model, tmp_path, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/digits_cnn").symlink_to(zoo_model("digits_cnn"))
    argv = [
        "--dry_cpu",
        "--models=digits_cnn",
        f"--output={tmp_path / 'out'}",
        f"--models_dir={tmp_path / 'models'}",
        "--batches=1,3",
        "--calibration=20",
        "--repeats=2",
        "--tuned=digits_cnn:--high_precision_nodes=.*hidden.*",
    ]
    assert precision.main(argv) == 1
    assert "not measured: digits_cnn INT8-tensorrt" in capsys.readouterr().out
    found = table.columns([line for line in run.read(tmp_path / "out" / run.FILE) if line["kind"] != "run"])
    assert {name for name, one in found.items() if "error" not in one} == {
        "native",
        "FP32",
        "FP16",
        "INT8-entropy",
        "tuned",
    }
    assert "calibrates on a GPU" in found["INT8-tensorrt"]["error"]
    assert all(
        one["rows"] == 400 and one["top1"] == 1 and one["accuracy"] > 0.97
        for one in found.values()
        if "error" not in one
    )
    assert not list(pathlib.Path(tmp_path / "models").glob("tftrt-precision-*"))
