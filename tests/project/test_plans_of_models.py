"""The CPU part of `benchmarks.plans_of_models`: exports, what is carried, going on after a cut, the tables, and commands that the toolkit takes."""

import json

import numpy as np
import pytest

from benchmarks import _plan_models, _plan_models_table, _precision_run, plans_of_models
from benchmarks.real_models import cases, run

pytestmark = pytest.mark.bench

DIGITS = _plan_models.Model("digits_cnn", _plan_models.CORPUS, "image:{}x8x8x1", (1, 4), labels=True)


def options(folder, *flags):
    return plans_of_models.parse([*flags, f"--folder={folder}"])


def names(model, folder, *phases):
    return [step.step.name for step in _plan_models.steps(model, options(folder), phases or _plan_models.PHASES)]


def chosen(name):
    return next(model for model in _plan_models.MODELS if model.name == name)


def test_the_corpus_foreign_files_and_five_families_are_there():
    kinds = [model.kind for model in _plan_models.MODELS]
    assert len(set(_plan_models.NAMES)) == len(kinds)
    assert kinds.count(_plan_models.CORPUS) == len(cases.chosen([])) and kinds.count(_plan_models.TORCH) == 5
    assert kinds.count(_plan_models.FILE) == 10
    for name in ("torch_encoder", "torch_unet"):
        assert _plan_models.drawn(name, 3, 1).keys() == {
            one.partition(":")[0] for one in chosen(name).shapes.split(";")
        }
    mask = _plan_models.drawn("torch_encoder", 20, 1)["mask"]
    assert mask.min() == 0 and (np.diff(mask, axis=1) <= 0).all()  # padding is behind


def test_savedmodels_are_timed_beside_both_and_files_beside_their_fp16_plan(tmp_path):
    assert names(chosen("fer"), tmp_path, "make") == [
        "convert plan FP16",
        "verify plan FP16",
        "convert plan INT8",
        "verify plan INT8",
        "convert TF-TRT",
    ]
    assert names(chosen("fer"), tmp_path, "measure") == ["bench batch 1", "bench batch 32"]
    # Neither INT8 nor a batch.
    assert names(chosen("silero_vad"), tmp_path) == [
        *(f"{kind} {precision}" for precision in ("FP32", "FP16") for kind in ("export", "verify")),
        "convert plan FP16",
        "verify plan FP16",
    ]


def timed(name, folder):
    """The models of the timings at the larger batch, and whether they can begin."""
    model = chosen(name)
    step = min(_plan_models.steps(model, options(folder), ("measure",)), key=lambda one: one.rank)
    assert f"--batch_size={model.batches[-1]}" in step.step.command
    places = [word for word in step.step.command[1:] if not word.startswith("--")]
    assert places == [str(place) for place in step.wants]
    return [place.split("/")[-1] for place in places], all(place.exists() for place in step.wants)


def test_what_is_there_of_a_model_is_timed_in_one_process_tftrt_first(tmp_path):
    (tmp_path / "fer").mkdir()
    assert timed("fer", tmp_path) == (["fer-TF-TRT", "fer-FP16", "fer-INT8", "fer"], False)
    for variant, expected in (
        ("TF-TRT", (["fer-TF-TRT", "fer-FP16", "fer-INT8", "fer"], False)),  # no plan yet
        ("FP16", (["fer-TF-TRT", "fer-FP16", "fer"], True)),
        ("INT8", (["fer-TF-TRT", "fer-FP16", "fer-INT8", "fer"], True)),
    ):
        (tmp_path / "plans" / f"fer-{variant}").mkdir(parents=True)
        assert timed("fer", tmp_path) == expected
    assert timed("320n", tmp_path) == (["320n-FP16", "320n-INT8"], False)


def test_unknown_models_are_refused_with_what_there_is(capsys):
    with pytest.raises(SystemExit):
        plans_of_models.parse(["resnet51"])
    assert "no model 'resnet51'; there are: basic_pitch" in capsys.readouterr().err


@pytest.fixture
def here(tmp_path, zoo_model, monkeypatch):
    """(folder, flags) of a run over the digits CNN."""
    given = tmp_path / "given"
    given.mkdir()
    (given / "digits_cnn").symlink_to(zoo_model("digits_cnn"))
    rng = np.random.default_rng(0)
    for part in ("rows", "calibration"):
        np.savez(given / f"digits_cnn.{part}.npz", image=rng.random((64, 8, 8, 1), np.float32))
    np.save(given / "digits_cnn.labels.npy", rng.integers(0, 10, 64))
    monkeypatch.setattr(_plan_models, "MODELS", (DIGITS,))
    monkeypatch.setattr(_plan_models, "NAMES", ("digits_cnn",))
    return tmp_path / "there", [f"--folder={tmp_path / 'there'}", f"--models_dir={given}"]


@pytest.mark.slow
def test_the_cpu_part_runs_goes_on_and_what_it_made_can_be_carried(here, tmp_path, monkeypatch):
    folder, flags = here
    assert plans_of_models.main(["--export", "--budget=0", *flags]) == 0
    assert [line["kind"] for line in _precision_run.read(folder / run.FILE)] == ["run"]
    assert plans_of_models.main(["--export", *flags]) == 0
    done = [line for line in _precision_run.read(folder / run.FILE) if line["kind"] == "step"]
    assert [(line["column"], line["exit"]) for line in done] == [
        (f"{kind} {precision}", 0) for precision in _plan_models.PRECISIONS for kind in ("export", "verify")
    ]
    # Nothing is left; without a file its export is.
    assert plans_of_models.main(["--export", *flags]) == 0
    _plan_models.file(folder, DIGITS, "INT8").unlink()
    assert plans_of_models.main(["--export", *flags]) == 0
    again = [line["column"] for line in _precision_run.read(folder / run.FILE) if line["kind"] == "step"][len(done) :]
    assert again == ["export INT8"]
    (row,) = json.loads((folder / "plans_of_models.json").read_text())["rows"]["files"]
    assert row["file"] == "yes" and float(row["FP32"]) > 100 > float(row["FP16"]) > float(row["INT8"]) > 15
    # On the other machine: parts of a size, and the folder again, with the results that were made there.
    monkeypatch.setattr(plans_of_models, "_PART", 50_000)
    parts = plans_of_models.pack(folder)
    assert len(parts) > 1 and all(path.stat().st_size <= 50_000 for path in parts)
    other = tmp_path / "other"
    plans_of_models.unpack(parts[0].parent, other)
    carried = {path.name for path in folder.iterdir() if _plan_models.carried(path)}
    assert {path.name for path in other.iterdir()} == carried and (other / "digits_cnn/saved_model.pb").is_file()
    assert "digits_cnn.calibration.npz" not in carried and "digits_cnn.int8.onnx" in carried
    assert (other / "digits_cnn.int8.onnx").read_bytes() == (folder / "digits_cnn.int8.onnx").read_bytes()
    (other / run.FILE).write_text("mine\n")
    plans_of_models.unpack(parts[0].parent, other)
    assert (other / run.FILE).read_text() == "mine\n"


@pytest.mark.slow
def test_the_toolkit_takes_the_commands_for_a_gpu(here, monkeypatch):
    """No GPU here: each build ends with that, and not with a flag that is unknown."""
    folder, flags = here
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    plans_of_models.main(["--export", *flags])
    plans_of_models.main(["--make", "--jobs=1", *flags])
    found = {line["column"]: line for line in _precision_run.read(folder / run.FILE) if line["kind"] == "step"}
    for precision in ("FP16", "INT8"):
        line = found[f"convert plan {precision}"]
        assert line["exit"] == 1 and "GPU" in line["message"] and not line["traceback"], line["message"]
        assert f"verify plan {precision}" not in found
    # A plan that is gone with its machine is made anew while timings of it are left.
    (step, *_) = _plan_models.steps(DIGITS, options(folder), ("make",))
    others = _plan_models.steps(DIGITS, options(folder))
    after = tuple(other.step for other in others if step.step.makes in other.wants)
    assert {one.kind for one in after} == {"verify", "bench"}


def line(model, column, exit_code=0, **facts):
    return {"kind": "step", "model": model, "column": column, "exit": exit_code, "message": "", **facts}


LINES = [
    line("fer", "export FP32", nodes=41, snr_db=122.0, doubtful=["Cast: BOOL"]),
    line("fer", "verify FP32", snr_db=124.34),
    line("fer", "export INT8", 3, snr_db=12.0, message="top1 is 0.8"),
    line("guesslang", "export FP32", 1, message="tf2onnx does not know StringNGrams"),
    line("silero_vad", "export FP32", nodes=36, snr_db="inf"),
    line("silero_vad", "verify FP32", snr_db="inf"),
    line("fer", "convert plan FP16", build_seconds=120.5),
    line("fer", "verify plan FP16", snr_db=54.4, score=[0.95, 0.94]),
    line(
        "fer",
        "bench batch 32",
        benched={
            "fer-TF-TRT": {"p50_ms": 1.0, "ratio": None},
            "fer-FP16": {"p50_ms": 0.25, "ratio": 0.25, "low": 0.2, "high": 0.5, "verdict": "better"},
            "fer": {"p50_ms": 2.0, "ratio": 2.0, "low": 1.0, "high": 4.0, "verdict": "worse"},
        },
    ),
    line("fer", "convert plan INT8", 1, message="no tactic"),
]


def test_a_line_for_each_model_as_a_file_and_one_for_each_plan():
    made = _plan_models_table.rows(LINES)
    fer, guesslang, silero = made["files"][1], made["files"][0], made["files"][2]
    assert (fer["model"], fer["file"], fer["nodes"], fer["FP32"], fer["INT8"]) == (
        "fer",
        "yes",
        41,
        "124.3",
        "12.0, exit 3",
    )
    assert fer["said"] == "export INT8: top1 is 0.8; Cast: BOOL"
    assert (guesslang["file"], guesslang["FP32"]) == ("no", "") and "StringNGrams" in guesslang["said"]
    assert silero["FP32"] == "same"
    first, second = made["plans"]
    assert (first["build_s"], first["db"], first["score"], first["tensorflow"]) == (
        120.5,
        "54.4",
        "0.950, 0.940",
        "-, 8.00",
    )
    assert (first["ms"], first["tftrt"], first["verdict"]) == ("-, 0.25", "-, 4.00 (2.00 to 5.00)", "-, better")
    assert "tftrt" not in second and (second["db"], second["said"]) == ("", "convert plan INT8: no tactic")
    text = _plan_models_table.markdown(made)
    assert "| fer | FP16 | 120.5 | 54.4 |" in text and "1 of 2 of kind SavedModel are files that pass in FP32" in text
