"""`tftrt bench MODEL …`: models of any kind beside each other, and what is a model and what an address."""

import dataclasses
import json
import re

import numpy as np
import pytest
from onnx import helper

from tests import onnx_files, pages
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _flags, _side_by_side
from tftrt_tools.command_line.commands import bench as command
from tftrt_tools.models.inputs import calls
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies.regression import rounds, verdict
from tftrt_tools.studies.side_by_side import measure, measured

# The fewest rounds that can show something with two models and one look.
QUICK = ("--rounds=12", "--max_rounds=12", "--distinct=2")


def run(*arguments):
    values, positional = _flags.parse("bench", command, [str(one) for one in arguments])
    return command.run(values, positional)


def result(*arguments):
    values, positional = _flags.parse("bench", command, [str(one) for one in arguments])
    return command.result(values, positional)


def rows(path, *nodes, inputs=("x",), constants=None, width=4):
    """An ONNX file that takes float32[batch, width] and gives y."""
    takes = onnx_files.values(*((name, "float32", ("batch", width)) for name in inputs))
    gives = onnx_files.values(("y", "float32", ("batch", width)))
    return onnx_files.write(
        path, [helper.make_node(op, list(taken), list(given)) for op, taken, given in nodes], takes, gives, constants
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name: path} of ONNX files: `once` doubles, `twin` does the same otherwise, `triple` answers otherwise, `slow` doubles behind many
    products, `other` triples behind them, `renamed` takes another name, `wide` another shape, `strict` fails."""
    folder = tmp_path_factory.mktemp("files")
    size = 512
    many = [("MatMul", (f"h{number}" if number else "wide", "w"), (f"h{number + 1}",)) for number in range(8)]
    slow = [
        ("MatMul", ("x", "up"), ("wide",)),
        *many,
        ("MatMul", ("h8", "down"), ("none",)),
        ("Add", ("x", "x"), ("two",)),
        ("Add", ("none", "two"), ("y",)),
    ]
    other = [*slow[:-1], ("Add", ("two", "x"), ("three",)), ("Add", ("none", "three"), ("y",))]
    weights = {
        "up": np.zeros((4, size), np.float32),
        "w": np.eye(size, dtype=np.float32),
        "down": np.zeros((size, 4), np.float32),
    }
    return {
        "once": rows(folder / "once.onnx", ("Add", ("x", "x"), ("y",))),
        "twin": rows(folder / "twin.onnx", ("Mul", ("x", "two"), ("y",)), constants={"two": np.float32([2])}),
        "triple": rows(folder / "triple.onnx", ("Mul", ("x", "three"), ("y",)), constants={"three": np.float32([3])}),
        "slow": rows(folder / "slow.onnx", *slow, constants=weights),
        "other": rows(folder / "other.onnx", *other, constants=weights),
        "renamed": rows(folder / "renamed.onnx", ("Add", ("in", "in"), ("y",)), inputs=("in",)),
        "two": rows(folder / "two.onnx", ("Add", ("a", "b"), ("y",)), inputs=("a", "b")),
        "wide": rows(folder / "wide.onnx", ("Add", ("x", "x"), ("y",)), width=5),
        "strict": rows(
            folder / "strict.onnx",
            ("Reshape", ("x", "shape"), ("r",)),
            ("Add", ("x", "r"), ("y",)),
            constants={"shape": np.int64([7, 4])},
        ),
    }


def test_a_slower_model_is_worse_for_sure_and_each_is_held_against_the_first(files, tmp_path, capsys):
    code = run(files["once"], files["slow"], files["twin"], *QUICK, f"--json={tmp_path / 'bench.json'}")
    told = capsys.readouterr().out
    assert code == 0, told
    found = json.loads((tmp_path / "bench.json").read_text())
    first, slow, _ = found["rows"]
    assert found["kind"] == "side by side" and found["complete"] and first["against_first"] == []
    (judged,) = (one for one in slow["against_first"] if one["metric"] == "p50")
    assert judged["verdict"] == "worse" and judged["low"] > 1 and judged["ratio"] > 1.5, told
    # The level of a test is shared among metrics and models.
    assert judged["alpha"] == pytest.approx(verdict.ALPHA / 4 / 2)
    p50 = {row["name"]: row["figures"][0] for row in found["rows"]}
    assert (
        p50["slow.onnx"]["value"] == pytest.approx(judged["candidate"])
        and p50["slow.onnx"]["low"] < p50["slow.onnx"]["value"]
    )
    assert "slow.onnx takes" in told and "sure, with at most 0.5% of false alarms" in told
    assert "answers of slow.onnx: like the first model's" in told


def test_answers_that_differ_are_told_however_fast_they_come(files, capsys):
    assert run(files["once"], files["triple"], "--rounds=2", "--max_rounds=2") == 0
    assert "answers of triple.onnx: not like the first model's: " in capsys.readouterr().out


def test_a_sure_verdict_says_that_the_answers_are_others(files, tmp_path, capsys):
    """A model that answers something else is never just faster, or slower."""
    assert run(files["once"], files["slow"], files["other"], *QUICK, f"--json={tmp_path / 'bench.json'}") == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [row["alike"] for row in found["rows"]] == [None, True, False]
    alike, unlike = found["sentences"]
    assert "sure, with" in alike and alike.endswith("of false alarms")
    assert "sure, with" in unlike and unlike.endswith(", but its answers are not like the first model's")
    assert unlike in capsys.readouterr().out
    done = measured.SideBySide.from_dict(found)
    unknown = dataclasses.replace(done, rows=(done.rows[0], dataclasses.replace(done.rows[1], alike=None)))
    assert unknown.sentences == [f"{alike}, but the answers were not compared"]


def test_few_rounds_are_figures_and_no_verdict(files, capsys):
    assert run(files["once"], files["once"], "--rounds=2", "--max_rounds=2") == 0
    told = capsys.readouterr().out
    assert "NOT SURE: 2 rounds are too few" in told and "once.onnx (2)" in told
    assert "better" not in told and "worse" not in told


def test_one_model_has_figures_alone(files):
    done = result(files["once"], "--rounds=8")
    (row,) = done.rows
    p50, p90, _, rate = row.figures
    assert 0 < p50.low <= p50.value <= p50.high and p50.value <= p90.value and rate.value > 1
    assert done.sentences == [] and done.rounds == 8 and row.answered == 8 * done.requests and row.failed == 0
    assert repr(done).startswith("<SideBySide: once.onnx p50 ")


def test_percentiles_need_enough_requests(files):
    seconds, rates = [np.full(4, 0.01)] * 8, np.full(8, 100.0)
    texts = {metric: measure._figure(metric, seconds, rates, 0).text() for metric in measure.METRICS}
    assert texts == {"p50": "10.000", "p90": "needs 64", "p99": "needs 662", "throughput": "100.0"}


def test_inputs_with_other_names_are_matched_or_named(files):
    done = result(files["once"], files["renamed"], "--rounds=1", "--max_rounds=1")
    assert done.rows[1].answers.startswith("like the first") and any("'in'" in note for note in done.notes)
    done = result(files["once"], files["renamed"], "--rename=x=in", "--rounds=1", "--max_rounds=1")
    assert done.rows[1].answers.startswith("like the first")


@pytest.mark.parametrize(
    ("names", "flags", "said"),
    [
        (("once", "two"), (), "takes a float32, b float32|input"),
        (("once", "wide"), (), r"input 'x' of 'serving_default' is float32\[\?,5\] in wide.onnx"),
        (("once", "once", "renamed"), ("--rename=x=in",), "--rename is about two models"),
        (("once", "strict"), (), "strict.onnx|serving_default"),
        (("once",), ("--max_rounds=2", "--rounds=3"), "--max_rounds=2 is below --rounds=3"),
        (("once",), ("--shapes=x:1x5",), "x"),
        (("once",), ("--signature_keys=score",), "no signature 'score'"),
        (("once",), ("--batch_size=1,2",), "--batch_size takes one number"),
        (("once",), ("--slo=p99<20ms",), "--slo has no effect with MODEL"),
        (("once",), ("--rest=localhost:8501",), "--rest has no effect with MODEL"),
        (("once",), ("--in_process=x",), "--in_process has no effect with MODEL"),
        (("once",), ("--html=x.html",), "--html has no effect with MODEL"),
        (("once",) * 17, (), "17 models are more than the 16"),
    ],
)
def test_what_cannot_be_measured_is_told(files, names, flags, said):
    with pytest.raises(errors.TftrtError, match=said) as error:
        result(*(files[name] for name in names), *flags)
    assert "\n" not in error.value.cause


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("there",), ["there"]),
        (("there", "there"), ["there", "there"]),
        (("file:///FOLDER/there",), ["/FOLDER/there"]),
        (("localhost:8500",), []),
        (("gpu7:8500",), []),
        (("[::1]:8500",), []),
        (("triton://localhost:8001",), []),
        (("unix:/tmp/socket",), []),
        (("there", "--model_name=x"), []),
        (("localhost", "--model_name=x"), []),
        # Such a file is a model, unless a server's model is named.
        (("host:8500",), ["host:8500"]),
        (("host:8500", "--model_name=x"), []),
        (("missing.onnx",), ["missing.onnx"]),
        (("module:function",), ["module:function"]),
        ((), []),
    ],
    ids=str,
)
def test_what_is_a_model_and_what_an_address(arguments, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("there", "host:8500"):
        (tmp_path / name).mkdir()
    arguments = [one.replace("/FOLDER", str(tmp_path)) for one in arguments]
    values, positional = _flags.parse("bench", command, arguments)
    assert _side_by_side.models(values, positional) == [one.replace("/FOLDER", str(tmp_path)) for one in wanted]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no such model: nowhere"),
        (("there", "nowhere"), "no such model: nowhere"),
        (("there", "localhost:8500"), "localhost:8500 is the address of a server, and the others are models"),
        (("a/b:c",), "no such model: a/b:c"),
        (("s3://bucket/model",), "s3://bucket/model is no path on this machine"),
        (("localhost:8500", "--rounds=3", "--model_name=x"), "--rounds has no effect without MODEL"),
        (("localhost:8500",), "--model_name is missing"),
    ],
    ids=str,
)
def test_what_is_neither_is_told(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(errors.UsageError, match=re.escape(said)):
        result(*arguments)


def test_an_interrupt_shows_the_rounds_so_far_and_is_no_success(files, monkeypatch, capsys):
    real = rounds.Turns.turn

    def turn(self, number, count):
        if number == 3:
            raise KeyboardInterrupt
        return real(self, number, count)

    monkeypatch.setattr(rounds.Turns, "turn", turn)
    with pytest.raises(errors.Interrupted, match="interrupted"):
        run(files["once"], files["twin"], *QUICK)
    told = capsys.readouterr().out
    assert "3 rounds of" in told and "NOT COMPLETE: interrupted" in told
    monkeypatch.setattr(rounds.Turns, "turn", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        result(files["once"], *QUICK)


def test_a_longer_run_than_allowed_ends_and_says_so(files):
    done = result(files["once"], files["twin"], *QUICK, "--max_seconds=0")
    assert done.rounds == 1 and any("--max_seconds" in note for note in done.notes) and done.complete


def test_failed_requests_take_the_verdict_away_and_can_be_required_not_to_be(files, monkeypatch):
    real = rounds.Turns.turn

    def turn(self, number, count):
        done = real(self, number, count)
        last = list(done)[-1]
        broken = rounds.Block(done[last].blocks[0].seconds, 2, done[last].blocks[0].active)
        return done | {last: rounds.Round((broken, *done[last].blocks[1:]))}

    monkeypatch.setattr(rounds.Turns, "turn", turn)
    done = result(files["once"], files["slow"], *QUICK)
    assert done.failed == 24 and done.rows[1].of("p50").verdict == "cannot tell"
    assert "24 requests failed; the times are of the others" in done.sentences[0]
    values, _ = _flags.parse("bench", command, ["--require_no_errors"])
    assert isinstance(command.failure(done, values), errors.CheckFailed)
    assert command.failure(done, _flags.defaults(command)) is None


@pytest.mark.slow
def test_a_converted_model_without_a_gpu_has_times_and_no_verdict(zoo_model, converted, capsys):
    path = converted("digits_cnn", "--precision=FP16", "--use_dynamic_shape")
    assert run(zoo_model("digits_cnn"), path, *QUICK, "--shapes=image:2x8x8x1") == 0
    told = capsys.readouterr().out
    assert "no verdict: there is no GPU here, so the engine ops of" in told and "cannot tell" in told
    assert "image 2x8x8x1" in told


@pytest.mark.slow
def test_kinds_are_mixed_and_the_page_says_what_is_printed(zoo_model, tftrt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits_cnn").symlink_to(zoo_model("digits_cnn"))
    assert tftrt("export", "digits_cnn", "--output=digits.onnx", cwd=tmp_path).returncode == 0
    done = tftrt("bench", "digits_cnn", "digits.onnx", "--shapes=image:8x8x8x1", *QUICK[:2], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Which verdict it is depends on the machine.
    differing = [line for line in pages.unprinted(pages.quoted("tftrt bench digits_cnn digits.onnx"), done.stdout)]
    assert all("better" in line or "sure" in line for line in differing), differing


def test_options_that_programs_give_are_checked_as_flags_are(files):
    with pytest.raises(errors.UsageError, match="max_rounds"):
        measure.measure(measure.Options(models=(Source(path=files["once"]),), rounds=5, max_rounds=2))
    with progress.on_terminal():
        done = measure.measure(
            measure.Options(
                models=(Source(path=files["once"]),),
                asked=calls.Asked(shapes="x:3x4"),
                rounds=1,
                max_rounds=1,
                distinct=1,
            )
        )
    assert isinstance(done, measured.SideBySide) and done.shapes == ("x 3x4",)
