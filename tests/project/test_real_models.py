"""What of `benchmarks.real_models` runs without downloads: the cases, packages' files, steps, going on after an interruption, the table."""

import json
import re
import tarfile
import zipfile

import numpy as np
import pytest

from benchmarks import _precision_run
from benchmarks.real_models import __main__ as real_models
from benchmarks.real_models import cases, packages, run, steps, table
from tests.conftest import run_tftrt

pytestmark = pytest.mark.bench


def options(tmp_path, *flags):
    return real_models.parse([*flags, f"--output={tmp_path / 'out'}"])


def test_every_case_says_where_it_comes_from_and_what_it_is_fed():
    assert len(set(cases.NAMES)) == len(cases.CASES)
    for package in cases.PACKAGES.values():
        assert re.fullmatch("[0-9a-f]{64}", package.sha256) and package.version and package.license, package.name
    for case in cases.CASES:
        assert not case.package or case.package in cases.PACKAGES
        assert case.environment in cases.ENVIRONMENTS and case.data and case.about and case.batches[0] < case.batches[1]
        assert case.default or "NC" in case.license
    assert {case.package for case in cases.CASES} | {"scikit-image"} == {*cases.PACKAGES, ""}


def test_shapes_are_filled_in_for_each_input():
    case = next(case for case in cases.CASES if case.name == "deepcut")
    assert case.shape(1, 64) == "input_1:1x21,64x21;input_2:1x21,64x21"
    assert cases.Case("x", None, "text:{};flag:scalar", "").shape(1, 8) == "text:1,8;flag:scalar,scalar"


def test_models_with_a_licence_that_forbids_things_are_run_only_when_they_are_named():
    assert "spliceai" not in [case.name for case in cases.chosen([])]
    assert [case.name for case in cases.chosen(["spliceai"])] == ["spliceai"]


@pytest.mark.parametrize(
    "flag, said", [("--models=resnet51", "resnet51"), ("--precision=INT4", "INT4"), ("--methods=median", "median")]
)
def test_wrong_options_are_refused_with_what_there_is(flag, said, capsys):
    with pytest.raises(SystemExit) as stop:
        real_models.parse([flag])
    assert stop.value.code == 2 and f"there is no '{said}'; there are: " in capsys.readouterr().err


def test_wheels_and_source_archives_are_unpacked_alike(tmp_path):
    (tmp_path / "weights.h5").write_text("w")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.write(tmp_path / "weights.h5", "package/weights.h5")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as source:
        source.add(tmp_path / "weights.h5", "a-1.0/package/weights.h5")
    for name in ("a.whl", "a.tar.gz"):
        packages._unpack(tmp_path / name, tmp_path / f"out-{name}")
        assert (tmp_path / f"out-{name}" / "package" / "weights.h5").read_text() == "w"


def test_what_pip_refuses_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(cases.PACKAGES, "pip", cases.Package("/nowhere/at-all", "1", "0" * 64, "none"))
    with pytest.raises(RuntimeError, match="pip download"):
        packages.unpacked("pip", tmp_path)
    assert not (tmp_path / "pip").exists()


def test_without_a_gpu_nothing_is_built_and_with_one_both_batches_are_timed(tmp_path):
    (case,) = cases.chosen(["fer"])
    plain = [step.name for step in steps.steps(case, tmp_path, tmp_path, options(tmp_path, "--precision=FP16"))]
    assert plain == ["inspect", "convert FP16", "verify FP16", "export ONNX"]
    chosen = options(tmp_path, "--precision=INT8", "--methods=auto", "--gpu", "--convert_flags=--max_engines=3")
    found = list(steps.steps(case, tmp_path, tmp_path, chosen))
    assert [step.name for step in found] == [
        "inspect",
        "convert INT8",
        "verify INT8",
        "regress INT8 batch 1",
        "regress INT8 batch 32",
        "convert INT8 auto",
        "verify INT8 auto",
        "regress INT8 auto batch 1",
        "regress INT8 auto batch 32",
    ]
    assert {"--shapes=input_1:1x64x64x1,32x64x64x1", "--max_engines=3", "--calibration_method=auto"} <= set(
        found[5].command
    )
    assert "compare INT8" in [
        step.name for step in steps.steps(case, tmp_path, tmp_path, options(tmp_path, "--methods=auto"))
    ]


def test_the_tools_own_words_are_kept():
    said = "noise\ntftrt: error: no signature fits\n  check that it does\n"
    assert steps.message(3, said, {}) == "no signature fits check that it does"
    assert steps.message(0, said, {}) == ""
    assert steps.message(3, "table\nFAILED\n", {"problems": ["a misses snr_db", "b too"]}) == "a misses snr_db; b too"
    crashed = "Traceback (most recent call last):\n  File x\nKeyError: 'training'\n"
    assert steps.message(1, crashed, {}) == "Traceback: KeyError: 'training'" and steps.traceback(crashed)


def line(model, column, exit_code=0, **facts):
    return {
        "kind": "step",
        "model": model,
        "column": column,
        "exit": exit_code,
        "message": "",
        "traceback": False,
        **facts,
    }


LINES = [
    {"kind": "run"},
    line("a", "inspect", share=0.05, outside=["63 StridedSlice: too few dimensions"]),
    line("a", "convert FP16", share=0.05, engines=1, build_seconds=2.5),
    line("a", "verify FP16", snr_db=60.5, score=[0.9, 0.85], metric="top1"),
    line("a", "regress FP16 batch 1", times_as_fast=0.98),
    line("a", "regress FP16 batch 16", times_as_fast=1.01),
    line("b", "inspect", share=1.0),
    line("b", "convert INT8", 1, message="it broke", traceback=True),
    line("b", "convert INT8", share=1.0, engines=2),
    line("b", "verify INT8", 3, snr_db="inf", message="the answers are all zero"),
    line("b", "regress INT8 batch 8", times_as_fast=2.0),
]


def test_the_table_has_a_row_for_each_precision_and_says_what_gains_nothing():
    first, second = table.rows(LINES)
    assert (first["model"], first["precision"], first["share"], first["engines"], first["build"], first["snr"]) == (
        "a",
        "FP16",
        5,
        1,
        2.5,
        60.5,
    )
    assert (first["small"], first["large"], first["score"], first["result"]) == (
        0.98,
        1.01,
        "top1 0.900 to 0.850",
        "ok",
    )
    assert (second["snr"], second["small"], second["large"], second["result"]) == (float("inf"), 2.0, None, "verify 3")
    said = table.text(LINES)
    assert (
        "- b, verify INT8: exit 3: the answers are all zero" in said
        and "it broke" not in said
        and "a traceback" not in said
    )
    assert "- a: 5 % of the ops in TensorRT; 63 StridedSlice: too few dimensions" in said and "- b: 100 %" not in said
    methods = [*LINES, line("b", "compare INT8", method="mse", methods={"entropy": 7.0, "mse": 27.2})]
    assert table.methods(methods) == [
        {"model": "b", "taken": "mse", "entropy": 7.0, "mse": 27.2}
    ] and "| model | taken |" in table.markdown(methods)
    made = table.markdown(LINES)
    assert made.startswith("| model | precision | ops % |") and "FLOPs" not in made and "| b | INT8 |" in made


def test_exports_have_a_table_of_their_own_and_a_refusal_is_no_bug():
    found = [
        line("a", "export ONNX", nodes=12, snr_db=126.5, rewritten={"simplify": 3}, passed=True),
        line("b", "export ONNX", 1, message="tf2onnx does not know its ops DecodeJpeg"),
    ]
    assert table.exports(found) == [
        {"model": "a", "onnx": "yes", "nodes": 12, "snr": 126.5, "rewritten": "3 simplify"},
        {"model": "b", "onnx": "no", "nodes": None, "snr": None, "rewritten": ""},
    ]
    assert "| a | yes | 12 | 126.5 | 3 simplify |" in table.markdown(found) and "DecodeJpeg" in table.text(found)
    assert real_models.bugs(found) == [] and real_models.bugs([line("b", "export ONNX", 1, traceback=True)]) == [
        "b: export ONNX"
    ]


def test_precisions_that_differ_in_nothing_share_a_row():
    alike = [
        line("a", f"convert {precision}", share=1.0, engines=engines)
        for precision, engines in (("FP32", 1), ("FP16", 1), ("INT8", 2))
    ]
    assert [(row["precision"], row["engines"]) for row in table.rows(alike)] == [("FP32, FP16", 1), ("INT8", 2)]


def test_a_crash_or_a_usage_error_is_a_bug_and_a_reason_is_none():
    assert real_models.bugs(LINES) == []
    assert real_models.bugs([*LINES, line("c", "convert FP32", 2)]) == ["c: convert FP32"]
    assert real_models.bugs([*LINES, line("c", "verify FP32", 3, traceback=True)]) == ["c: verify FP32"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory, zoo_model):
    """A folder of models with one in it, and its case."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "digits").symlink_to(zoo_model("digits_cnn"))
    for part in ("rows", "calibration"):
        np.savez(
            folder / f"digits.{part}.npz", image=np.random.default_rng(len(part)).random((16, 8, 8, 1), np.float32)
        )
    return folder, cases.Case("digits", real_models.main, "image:{}x8x8x1", "noise", batches=(1, 4))


@pytest.mark.slow
def test_a_model_goes_through_and_a_second_run_has_nothing_left(digits, tmp_path):
    folder, case = digits
    chosen = options(tmp_path, "--precision=FP32")
    endless = run.Limits(float("inf"), float("inf"), float("inf"))
    run.run((case,), folder, chosen, run.Limits(0, float("inf"), float("inf")))
    assert _precision_run.read(chosen.output / run.FILE) == []
    run.run((case,), folder, chosen, endless)
    found = _precision_run.read(chosen.output / run.FILE)
    assert [(one["column"], one["exit"]) for one in found] == [
        ("inspect", 0),
        ("convert FP32", 0),
        ("verify FP32", 0),
        ("export ONNX", 0),
    ]
    (row,) = table.rows(found)
    assert (row["share"], row["engines"], row["result"]) == (100, 1, "ok") and row["snr"] > 80
    assert not any((chosen.output / "models").iterdir())
    run.run((case,), folder, chosen, endless)
    assert len(_precision_run.read(chosen.output / run.FILE)) == 4
    assert run_tftrt(*found[0]["command"]).returncode == 0


def test_a_step_that_takes_too_long_is_stopped_and_only_the_end_of_the_run_is_no_result(digits, tmp_path):
    folder, case = digits
    chosen = options(tmp_path, "--precision=FP32")
    run.run((case,), folder, chosen, run.Limits(0.3, float("inf"), float("inf")))
    (cut,) = _precision_run.read(chosen.output / run.FILE)
    assert (cut["kind"], cut["column"], cut["exit"]) == ("cut", "inspect", 124)
    run.run((case,), folder, chosen, run.Limits(float("inf"), float("inf"), 0.3))
    ended = _precision_run.read(chosen.output / run.FILE)[1:]
    assert [(one["kind"], one["column"], one["exit"]) for one in ended] == [
        ("step", name, 124) for name in ("inspect", "convert FP32", "export ONNX")
    ]
    assert ended[0]["message"].startswith("not ended after") and json.dumps(ended)


def test_a_conversion_is_made_anew_while_a_step_behind_it_is_left(digits, tmp_path):
    folder, case = digits
    planned = list(steps.steps(case, folder, tmp_path, options(tmp_path, "--precision=FP32", "--gpu")))
    convert, after = planned[1], tuple(planned[2:])
    done = [line("digits", "convert FP32"), line("digits", "verify FP32"), line("digits", "regress FP32 batch 1")]
    assert not run.finished(case.name, convert, after, done)
    assert run.finished(case.name, convert, after, [*done, line("digits", "regress FP32 batch 4")])
    assert run.finished(case.name, convert, after, [line("digits", "convert FP32", 3)])
    assert not run.finished(case.name, convert, after, [{**line("digits", "convert FP32"), "kind": "cut"}])
