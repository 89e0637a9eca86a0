"""The benchmark of two stacks: its steps, and the table of two folders."""

import json

import pytest

from benchmarks import _report, stacks
from benchmarks.real_models import run

pytestmark = pytest.mark.bench


def folder(path, *lines):
    path.mkdir()
    (path / run.FILE).write_text(
        "".join(json.dumps({"kind": "step", "exit": 0, "message": "", **one}) + "\n" for one in lines)
    )
    return path


def benched(batch, **times):
    return {
        "model": "fer",
        "column": f"bench batch {batch}",
        "benched": {name: {"p50_ms": one} for name, one in times.items()},
    }


def test_the_table_has_the_figures_of_both_and_what_failed(tmp_path, capsys):
    first = folder(
        tmp_path / "a",
        {"model": "fer", "column": "convert FP16", "build_seconds": 100.0},
        {"model": "fer", "column": "verify FP16", "snr_db": "50.25"},
        {"model": "fer", "column": "convert INT8", "exit": 124, "message": "not ended after 560 s"},
        benched(1, **{"fer": 3.0, "fer-FP16": 1.0}),
        benched(32, **{"fer": 9.0, "fer-FP16": 3.0}),
    )
    second = folder(
        tmp_path / "b",
        {"model": "fer", "column": "convert FP16", "build_seconds": 150.0},
        benched(32, **{"fer": 8.0, "fer-FP16": 2.0}),
        {"model": "tcn", "column": "convert INT8", "build_seconds": 7.0},
    )
    assert stacks.main(["--compare", str(first), str(second)]) == 0
    rows = stacks.rows(*(stacks._precision_run.read(one / run.FILE) for one in (first, second)))
    assert capsys.readouterr().out.strip() == _report.table(stacks._COLUMNS, rows).strip()
    small, large, failed, other = rows
    assert small == {
        "model": "fer",
        "precision": "FP16",
        "build": "100.0, 150.0",
        "ratio": "1.50",
        "snr": "50.2, ?",
        "result": "",
        "batch": "1",
        "p50": "1.000, ?",
        "native": "3.000, ?",
        "times": "3.00, ?",
    }
    assert large == {"batch": "32", "p50": "3.000, 2.000", "native": "9.000, 8.000", "times": "3.00, 4.00"}
    assert failed["result"] == "first: not ended after 560 s" and failed["build"] == "?, ?" and failed["ratio"] is None
    assert (other["model"], other["build"], other["ratio"]) == ("tcn", "?, 7.0", None)


def test_what_is_measured_first_is_the_larger_batch_of_every_model(tmp_path):
    for name in ("fer", "tcn"):
        (tmp_path / name).mkdir()
    options = stacks.parse(["--measure", "fer", "tcn", f"--models_dir={tmp_path}", f"--folder={tmp_path / 'out'}"])
    stacks.place(options.folder, options.models[0], "INT8").mkdir(parents=True)
    stacks.place(options.folder, options.models[0], "FP16").mkdir(parents=True)
    lanes = [lane for case in options.models for lane in stacks._lanes(case, options)]
    assert [(case.name, step.batch) for case, (step,) in lanes] == [("fer", 32), ("fer", 1), ("tcn", 16), ("tcn", 1)]
    # The INT8 model has engines for the larger batch alone.
    assert [sum("-INT8" in word for word in step.command) for _, (step,) in lanes] == [1, 0, 0, 0]


def test_the_larger_batch_alone_is_made_and_measured(tmp_path):
    (tmp_path / "fer").mkdir()
    words = ["fer", "--larger", f"--models_dir={tmp_path}", f"--folder={tmp_path / 'out'}"]
    both, larger = (
        [step for _, lane in stacks._lanes(options.models[0], options) for step in lane]
        for options in (stacks.parse(["--make", *words[:1], *words[2:]]), stacks.parse(["--make", *words]))
    )
    assert any("input_1:1x64x64x1,32x64x64x1" in word for word in both[0].command)
    assert all("--shapes=input_1:32x64x64x1" in step.command for step in larger if step.makes)
    options = stacks.parse(["--measure", *words])
    assert [step.batch for _, (step,) in stacks._lanes(options.models[0], options)] == [32]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--make", "nosuch"], "no model 'nosuch'; there are: "),
        (["--make", "fer", "--models_dir=/no/such"], "python -m benchmarks.real_models --make makes it"),
        (["--compare", "/no/such", "/no/other"], "no /no/such/results.jsonl: --make --folder=/no/such writes it"),
        ([], "one of the arguments --make --measure --compare is required"),
    ],
)
def test_wrong_words_are_told(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        stacks.parse(words)
    assert ended.value.code == 2 and said in capsys.readouterr().err
