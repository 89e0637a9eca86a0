"""`tftrt regress --batch_size=1,8`: each batch size has a verdict of its own, one after the other or beside each other (--on=local). Beside
each other on GPUs that are counted and are none: the real command, on the processor."""

import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import jsonschema
import pytest

from docs.tools import schemas
from tests import fleets
from tests.command_line import assert_clear, processes_marked
from tests.conftest import ROOT
from tests.regress_results import regression
from tests.rooms.studies.test_regress_result import _judged
from tests.rooms.studies.test_regress_run import QUICK, made, native, run, slower
from tftrt_tools.accuracy.metrics import comparison as metrics
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import regress as command
from tftrt_tools.command_line.report import regress as report
from tftrt_tools.fleet import beside
from tftrt_tools.fleet.task import Outcome, Where
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies.regression import baseline, comparison, junit, regress, sizes
from tftrt_tools.studies.regression.goals import Goals
from tftrt_tools.studies.regression.several import Part, Regressions

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"
)
# Fixtures.
__all__ = ("made", "native", "slower")
OPTIONS = regress.Options(
    native=Source(path="/models/net", unsafe=True), candidate="/models/net_fp16", in_process=True, log_file="log"
)
PLACE = Where(node="n", host="h", gpus="GPU-acc98c76-442b-112d-b90b-dfeffcde2fd2")


def several(*parts, ended=""):
    made = [
        Part(batch_size=number, regression=one)
        if isinstance(one, comparison.Regression)
        else Part(batch_size=number, cause=one, mend="mend it")
        for number, one in enumerate(parts, 1)
    ]
    return Regressions(stamp={"tool": "t", "created": "2026-11-29T00:00:00+00:00"}, parts=tuple(made), ended=ended)


GOOD, WORSE, NOISY = regression(), regression(ratio=1.2), regression(noise=0.4)
CUT = regression(ended="interrupted")


@pytest.mark.parametrize(
    "parts, outcome, code",
    [
        ((GOOD, GOOD), comparison.PASS, 0),
        ((GOOD, WORSE), comparison.FAIL, 3),
        ((NOISY, WORSE, "lost"), comparison.FAIL, 3),
        ((GOOD, "lost"), comparison.ENDED, 1),
        ((NOISY, CUT), comparison.ENDED, 1),
        ((GOOD, NOISY), comparison.UNSURE, 4),
    ],
)
def test_it_passes_only_where_each_batch_size_passes(parts, outcome, code):
    done = several(*parts)
    assert (done.outcome, done.exit_code) == (outcome, code), done.headline
    assert done.headline.startswith(f"{outcome.upper()}: batch size ")
    assert done.complete == all(isinstance(one, comparison.Regression) and one.complete for one in parts)
    wrong = command.failure(done, None)
    assert (wrong.exit_code if wrong else 0) == code
    if code == 1:
        assert wrong.mend.endswith("marked as incomplete") and ("mend it" in wrong.mend) == ("lost" in parts)
    # An interruption between two batch sizes is no pass, either.
    assert several(*parts, ended="interrupted").outcome in (comparison.ENDED, comparison.FAIL)


@pytest.mark.parametrize("parts", [(GOOD, WORSE), (GOOD, "lost"), (NOISY, CUT)])
def test_the_document_has_the_same_record_for_each_batch_size_and_fits_its_schema(parts):
    document = json.loads(several(*parts).to_json())
    jsonschema.validate(document, json.loads(schemas.texts()["regressions.json"]))
    kept = [one["regression"] for one in document["batch_sizes"]]
    assert kept[0] == json.loads(parts[0].to_json())
    assert [one["batch_size"] for one in document["batch_sizes"]] == [1, 2] and (kept[1] is None) == (
        parts[1] == "lost"
    )


def test_junit_and_the_page_have_every_check_of_every_batch_size():
    done = several(GOOD, WORSE, "out of memory")
    suite = ElementTree.fromstring(junit.text(done).partition("\n")[2]).find("testsuite")
    names = [one.get("name") for one in suite.iter("testcase")]
    assert names[0] == "batch_size=1/speed/p50" and "batch_size=2/speed/p50" in names
    assert suite.get("errors") == "1" and suite.find(".//error").get("message") == "out of memory"
    assert int(suite.get("failures")) == sum(one.verdict == comparison.FAIL for one in WORSE.checks)
    page = report.page(done)
    assert page.count("<svg") == 2 and "out of memory" in page and page.index("FAIL") < page.index("Batch size 1")


def test_where_it_was_measured_and_beside_how_many_stands_in_the_record_and_on_the_page():
    made = beside.Done(outcome=outcome(GOOD), others=3)
    found = sizes.of_done(made)
    document = json.loads(found.to_json())
    assert document["beside"] == {"host": "h", "gpu": PLACE.gpus, "others": 3, "before": ""}
    assert "up to 3 other measurements" in document["notes"][0] and PLACE.gpus in report.page(several(found))
    alone = sizes.of_done(dataclasses.replace(made, others=0, before="out of memory"))
    assert "measured alone" in alone.notes[0] and "out of memory" in alone.notes[0]
    assert json.loads(GOOD.to_json())["beside"] is None


def outcome(done, **changes):
    task = sizes._task(OPTIONS, 8, 1)
    answer = json.loads(json.dumps(sizes.Compared.of(done).to_dict())) if done else None
    facts = {
        "status": "done" if done else "failed",
        "tries": 1,
        "where": PLACE,
        "answer": task.job.read_answer(answer) if answer else None,
    }
    return Outcome(task=task, **(facts | changes))


def test_a_result_comes_whole_from_another_process():
    accumulator = metrics.Accumulator("s", "o")
    accumulator.add(*_arrays())
    full = regression(
        answers=_judged(comparisons=(accumulator.result(),), missed=("s/o",), bounds={"s/o": {"snr_db": 30.0}}),
        kept=(),
        settings={"thresholds": "", "goals": {}},
    )
    for one in (full, WORSE, CUT, dataclasses.replace(GOOD, verdict=None, rounds=comparison.PerRound())):
        again = sizes.Compared.from_dict(json.loads(json.dumps(sizes.Compared.of(one).to_dict()))).whole()
        assert again.to_json() == one.to_json()
        # Rounds are written to a nanosecond, which moves points of the plot by less than can be seen.
        assert [report.page(each).partition("<svg")[0] for each in (again, one)] == [
            report.page(one).partition("<svg")[0]
        ] * 2
        assert not one.answers or again.answers.missed == one.answers.missed


def _arrays():
    import numpy as np

    one = np.random.default_rng(0).random((4, 10), np.float32)
    return one, one + np.float32(1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"goals": Goals(speed_up_at_least=1.5, accuracy="top1:threshold=0.9", no_engine_fallback=True)},
        {"baseline": baseline.Latest(pathlib.Path("/history"), "net")},
        {"baseline": baseline.Baseline("kept.json", {"kind": "regression"})},
        {"native_signature": "a", "output_kind": ("o:values",), "rename": ("a=b",), "timeout": float("inf")},
    ],
)
def test_options_come_whole_to_another_process(changes):
    options = dataclasses.replace(OPTIONS, **changes)
    task = sizes._task(options, 8, 2)
    there = sizes.Asked.from_dict(json.loads(json.dumps(dict(task.request)))).whole()
    wanted = {"batch_size": 8, "others": 2, "candidate": Source(path="/models/net_fp16")}
    assert there == dataclasses.replace(options, **wanted, log_file=os.path.abspath("log.batch-8"))
    assert task.gpus == 1


def test_batch_sizes_that_ran_beside_others_are_a_series_of_their_own():
    alone, two = GOOD.workload, GOOD.workload | {baseline.OTHERS: 1}
    places = {baseline.place(pathlib.Path("h"), GOOD.fingerprint, "net", one) for one in (alone, two)}
    assert len(places) == 2
    kept = baseline.Baseline("kept", regression(workload=two).to_dict())
    models = {"native": GOOD.native}
    assert kept.found(GOOD.fingerprint, models, two) is kept
    for then, now in ((two, alone), (alone, two)):
        other = baseline.Baseline("kept", regression(workload=then).to_dict())
        with pytest.raises(errors.UsageError, match="others meanwhile: (1|None), now (1|None)"):
            other.found(GOOD.fingerprint, models, now)
    assert "1 measured beside it" in baseline.asked_text({"workload": two})


def test_a_series_of_before_keeps_its_place():
    """The digest of a version before, of a workload that no others ran beside."""
    found = baseline.place(pathlib.Path("h"), GOOD.fingerprint, "net", GOOD.workload)
    assert found.name == "net@9d3381ac"


def each(monkeypatch, made, listed=(1, 8, 32)):
    """regress_each with results that are made up: {batch size: a result, or what is raised}."""

    def one(options):
        found = made[options.batch_size]
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(sizes.regress, "regress", one)
    monkeypatch.setattr(sizes.regress, "check_models", lambda options: None)
    return sizes.regress_each(OPTIONS, listed)


def test_one_after_the_other_what_fails_does_not_take_the_others_with_it(monkeypatch):
    done = each(monkeypatch, {1: GOOD, 8: errors.TftrtError("out of memory", "mend"), 32: WORSE})
    assert [bool(one.regression) for one in done.parts] == [True, False, True] and done.exit_code == 3
    assert (done.parts[1].cause, done.parts[1].mend) == ("out of memory", "mend")


def test_where_nothing_was_measured_the_first_error_is_raised(monkeypatch):
    wrong = {1: errors.UsageError("a", ""), 8: errors.TftrtError("b", ""), 32: errors.TftrtError("c", "")}
    with pytest.raises(errors.UsageError, match="a"):
        each(monkeypatch, wrong)
    with pytest.raises(errors.TftrtError, match="b"):
        each(monkeypatch, wrong, (8, 1))


@pytest.mark.parametrize("second", [KeyboardInterrupt(), CUT])
def test_an_interruption_keeps_what_is_measured_and_is_no_pass(monkeypatch, second):
    done = each(monkeypatch, {1: GOOD, 8: second, 32: AssertionError("it goes on")})
    assert done.ended == "interrupted" and not done.complete and done.outcome == comparison.ENDED
    with pytest.raises(errors.Interrupted) as raised:
        command.failure(done, None)
    assert "1 of 3 batch sizes" in raised.value.mend
    with pytest.raises(KeyboardInterrupt):
        each(monkeypatch, {1: KeyboardInterrupt()})


def test_a_fleet_that_has_gone_leaves_what_is_measured_and_is_no_pass(monkeypatch):
    def in_turn(options, listed):
        yield 1, GOOD
        raise errors.TftrtError("the fleet does not answer any more", "")

    monkeypatch.setattr(sizes, "_in_turn", in_turn)
    done = each(monkeypatch, {})
    assert done.ended == "the fleet does not answer any more" == done.parts[2].cause and done.exit_code == 1
    wrong = command.failure(done, None)
    assert "batch size 8: not measured: the fleet does not answer any more" in wrong.cause


def test_each_batch_size_has_a_log_of_its_own(monkeypatch):
    logs = []
    monkeypatch.setattr(sizes.regress, "regress", lambda options: logs.append(options.log_file) or GOOD)
    monkeypatch.setattr(sizes.regress, "check_models", lambda options: None)
    sizes.regress_each(OPTIONS, (1, 8))
    assert logs == [os.path.abspath(f"log.batch-{size}") for size in (1, 8)]


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--batch_size=1,x"], "'x' is no number above 0"),
        (["--batch_size="], "--batch_size is empty"),
        (["--batch_size=1,8", "--save_baseline=kept.json"], "is one file"),
        (["--batch_size=1,8", "--baseline=kept.json"], "is one file"),
        (["--on=here"], "is no place"),
        (["--on=local", "--batch_size=1,8", "--address=localhost:1"], "--on does not go with a server"),
        (["--on=local", "--batch_size=1,8", "--launch=local"], "--on does not go with a server"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(flags, says, monkeypatch):
    monkeypatch.setattr(command._fleet.session, "check", lambda: None)
    monkeypatch.setattr(sizes, "regress_each", lambda *_: pytest.fail("it measures"))
    with pytest.raises(errors.UsageError, match=says):
        run("--native=a", "--candidate=b", *flags)


@pytest.mark.parametrize("flags, listed", [(["--batch_size=8"], []), (["--batch_size=8,8"], []), ([], [])])
def test_one_batch_size_is_compared_here_and_on_says_that_it_changes_nothing(flags, listed, monkeypatch):
    asked, notes = [], []
    monkeypatch.setattr(command._fleet.session, "check", lambda: None)
    monkeypatch.setattr(regress, "regress", lambda options: asked.append(options.batch_size) or GOOD)
    with progress.notes_to(notes.append):
        assert run("--native=a", "--candidate=b", "--on=local", *flags) == 0
    assert asked == [8 if flags else None] and "changes nothing: there is one batch size" in notes[0]


def test_several_batch_sizes_on_one_gpu_run_one_after_the_other(monkeypatch):
    asked, notes = [], []
    monkeypatch.setattr(command._fleet.session, "check", lambda: None)
    monkeypatch.setattr(regress, "check_models", lambda options: None)
    monkeypatch.setattr(command._fleet.local_gpus, "alike", lambda: ("GPU-a",))
    monkeypatch.setattr(regress, "regress", lambda options: asked.append(options.batch_size) or GOOD)
    with progress.notes_to(notes.append):
        assert run("--native=a", "--candidate=b", "--on=local", "--batch_size=8,1") == 0
    assert asked == [8, 1] and notes == ["--on=local changes nothing: there is one GPU of its kind here"]


# --- through Ray


def on_counted_gpus(tmp_path, *words, mark=""):
    """A command in `tmp_path`, as a process."""
    env = {
        **os.environ,
        **fleets.COUNTED,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "FAULTS": str(tmp_path / "faults"),
        "TMPDIR": str(tmp_path / "tmp"),
        "TFTRT_TEST_MARK": mark,
    }
    for one in ("faults", "tmp"):
        (tmp_path / one).mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.counted_gpus", *map(str, words)],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started(model, tmp_path, *flags, mark=""):
    return on_counted_gpus(tmp_path, "regress", model, model, "--batch_size=1,4", *QUICK, *flags, mark=mark)


def compared(model, tmp_path, *flags):
    """(its document, stderr) of the command, which ends with a verdict."""
    one = started(model, tmp_path, "--json=done.json", *flags)
    out, error = one.communicate(timeout=400)
    assert one.returncode in (0, 4), out + error
    return json.loads((tmp_path / "done.json").read_text()), error


def began(tmp_path, size):
    """The GPU that each beginning of a batch size saw."""
    return [path.read_text() for path in sorted((tmp_path / "faults").glob(f"began {size} *"))]


def keys(document):
    """The names in a document, without its values."""
    if isinstance(document, dict):
        return {name: keys(value) for name, value in document.items() if name not in ("notes", "reason")}
    return [keys(one) for one in document[:1]] if isinstance(document, list) else None


@needs_ray
@pytest.mark.slow
def test_two_batch_sizes_run_beside_each_other_and_give_what_they_give_in_turn(zoo_model, tmp_path):
    model = zoo_model("digits_cnn")
    kept = ("--save_baseline=auto", f"--history_dir={tmp_path / 'history'}", "--html=page.html", "--junit=j.xml")
    beside_each_other, _ = compared(model, tmp_path, "--on=local", "--log_file=log", *kept)
    page = (tmp_path / "page.html").read_text()
    assert [began(tmp_path, size) for size in (1, 4)] in ([["0"], ["1"]], [["1"], ["0"]])
    in_turn, _ = compared(model, tmp_path, *kept)
    assert [began(tmp_path, size) for size in (1, 4)] in ([["0"], ["1"]], [["1"], ["0"]]), "no task without --on"
    for one in beside_each_other["batch_sizes"]:
        found = one["regression"]
        assert found["workload"]["shapes"] == [f"image {one['batch_size']}x8x8x1"]
        assert [found["beside"]["gpu"]] == began(tmp_path, one["batch_size"]) and found["beside"]["others"] == 1
        assert found["server"]["reason"].startswith("both models in one process")
        assert len(found["rounds"]["native_p50"]) == 12 and found["answers"]["problems"] == []
        assert found["notes"][0] in page
        del found["beside"], found["workload"][baseline.OTHERS]
    for one in in_turn["batch_sizes"]:
        assert one["regression"].pop("beside") is None
    assert keys(beside_each_other) == keys(in_turn)
    # The same requests, and series of their own.
    digests = [
        [one["regression"]["workload"]["digest"] for one in each["batch_sizes"]]
        for each in (beside_each_other, in_turn)
    ]
    assert digests[0] == digests[1] and len(set(digests[0])) == 2
    assert len(list((tmp_path / "history").glob("*/*"))) == 4
    assert {path.name for path in tmp_path.glob("log*")} == {"log.batch-1", "log.batch-4"}
    assert not list((tmp_path / "tmp").iterdir())


@needs_ray
@pytest.mark.slow
def test_beside_others_a_slower_candidate_fails_at_each_batch_size(native, slower, tmp_path):
    flags = ("--batch_size=1,4", *QUICK, "--on=local", "--json=done.json", "--junit=j.xml")
    one = on_counted_gpus(tmp_path, "regress", native, slower, *flags)
    out, error = one.communicate(timeout=400)
    document = json.loads((tmp_path / "done.json").read_text())
    assert one.returncode == 3 == document["exit_code"], out + error
    for part in document["batch_sizes"]:
        (judged,) = part["regression"]["verdict"]["judgements"]
        assert (judged["verdict"], part["regression"]["beside"]["others"]) == ("worse", 1)
    assert ElementTree.parse(tmp_path / "j.xml").getroot().get("failures") == "2"


@needs_ray
@pytest.mark.slow
def test_what_fails_beside_others_is_measured_once_more_alone_and_named(zoo_model, tmp_path):
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults/fail 4").write_text("1")
    (tmp_path / "faults/kill 1").touch()
    document, printed = compared(zoo_model("digits_cnn"), tmp_path, "--on=local")
    one, four = (each["regression"] for each in document["batch_sizes"])
    assert "batch size 4: out of memory; it is measured once more, alone" in printed
    assert (four["beside"]["others"], four["beside"]["before"]) == (0, "out of memory")
    assert baseline.OTHERS not in four["workload"] and "measured alone" in four["notes"][0]
    # Its worker was killed: another one measured it, beside the other batch size as before.
    assert len(began(tmp_path, 1)) == 2 and (one["beside"]["others"], one["beside"]["before"]) == (1, "")


@needs_ray
@pytest.mark.slow
def test_what_fails_alone_too_is_told_and_is_no_pass(zoo_model, tmp_path):
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults/fail 4").write_text("2")
    one = started(zoo_model("digits_cnn"), tmp_path, "--on=local", "--json=done.json")
    out, error = one.communicate(timeout=400)
    document = json.loads((tmp_path / "done.json").read_text())
    assert one.returncode == 1 == document["exit_code"] and not document["complete"], error
    assert document["batch_sizes"][0]["regression"]["complete"] and document["batch_sizes"][1]["regression"] is None
    assert "tftrt: error: ENDED EARLY: batch size 4: not measured: out of memory (alone, after it had failed" in error
    assert len(began(tmp_path, 4)) == 2 and "Traceback" not in error


@needs_ray
@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_no_file(zoo_model, tmp_path):
    model = zoo_model("digits_cnn")
    interrupted(tmp_path, (1, 4), functools.partial(started, model, tmp_path, "--on=local", "--json=done.json"))


def interrupted(tmp_path, names, start):
    """Ctrl-C when all measurements of these names have begun: it leaves nothing. Args: start: starts the command, with a mark."""
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults/wait").touch()
    mark = f"{tmp_path.name}-{os.getpid()}"
    one = start(mark=mark)
    while not all(began(tmp_path, name) for name in names):
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    one.send_signal(signal.SIGINT)
    out, error = one.communicate(timeout=120)
    assert one.returncode == 1 and "interrupted" in error and "Traceback" not in error and not out, error
    for _ in range(100):
        if not (left := processes_marked(mark)):
            break
        time.sleep(0.1)
    assert not left and not list((tmp_path / "tmp").iterdir()) and not list(tmp_path.glob("*.json"))


@needs_ray
@pytest.mark.slow
def test_ctrl_c_after_the_first_batch_size_keeps_it_and_says_what_is_missing(zoo_model, tmp_path):
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults/wait 4").touch()
    history = tmp_path / "history"
    kept = ("--save_baseline=auto", f"--history_dir={history}")
    one = started(zoo_model("digits_cnn"), tmp_path, "--on=local", "--json=done.json", *kept)
    while not (tmp_path / "faults/ended 1").exists():
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)
    # Until its answer has come.
    time.sleep(10)
    one.send_signal(signal.SIGINT)
    _, error = one.communicate(timeout=120)
    document = json.loads((tmp_path / "done.json").read_text())
    assert one.returncode == 1 and "1 of 2 batch sizes were measured" in error and "Traceback" not in error
    assert (document["ended"], document["outcome"], document["complete"]) == ("interrupted", "ended early", False)
    first, second = document["batch_sizes"]
    assert first["regression"]["complete"] and (second["regression"], second["cause"]) == (None, "interrupted")
    assert len(list(history.glob("*/*/*.json"))) == 1


def test_a_model_that_is_not_there_is_told_before_anything_begins(tftrt, zoo_model):
    done = tftrt("regress", zoo_model("digits_cnn"), "gone", "--batch_size=1,8")
    assert_clear(done, 2, "no such file or directory: gone")


@pytest.mark.slow
def test_from_python_a_list_of_batch_sizes_gives_the_results_of_each(zoo_model):
    import tftrt_tools as tftrt

    model = zoo_model("digits_cnn")
    quick = {"metrics": ["p50"], "rounds": 12, "max_rounds": 12, "requests": 16}
    try:
        done = tftrt.regress(model, model, batch_size=[1, 2], **quick)
    except errors.Unsure as unsure:
        done = unsure.result
    assert [one.batch_size for one in done.parts] == [1, 2] and all(one.regression.complete for one in done.parts)
    assert str(done).count("Speed, candidate / native") == 2 and "Batch size 2" in report.page(done)
