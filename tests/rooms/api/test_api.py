"""The commands as functions: the same results, files, checks and ends as on the command line, and nothing on stdout."""

import html
import inspect
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import tftrt_tools as tftrt
from tests.conftest import ROOT
from tftrt_tools import api
from tftrt_tools.accuracy.verify import Verification
from tftrt_tools.api import calling, displays
from tftrt_tools.base import errors, results
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _calling, _flags, _output
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.regression import comparison

COMMANDS = sorted(
    set(api.__all__) - {"load", "Model"} - {name for name in api.__all__ if name.endswith(("Error", "Failed"))}
)
COMMANDS = [name for name in COMMANDS if name[0].islower()]
# No model has these right.
WRONG = {
    "data": {"image": np.random.default_rng(0).random((40, 8, 8, 1), np.float32)},
    "labels": np.arange(40) % 10,
    "thresholds": "labels:top1>=0.999",
    "write": False,
}


@pytest.fixture
def nothing_printed(capfd):
    """What stands on stdout and stderr at the end of the test is nothing."""
    yield
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


@pytest.fixture(scope="module")
def model(zoo_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "digits"
    shutil.copytree(zoo_model("digits_cnn"), path)
    return path


def test_importing_it_is_quick_and_loads_nothing():
    code = (
        "import sys, time\nbegun = time.process_time()\nimport tftrt_tools\ntaken = time.process_time() - begun\n"
        "tftrt_tools.verify, tftrt_tools.load, tftrt_tools.TftrtError\n"
        "print(taken, *(one for one in ('tensorflow', 'numpy', 'grpc', 'scipy', 'onnx', 'onnxruntime') if one in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    taken, *loaded = done.stdout.split()
    assert loaded == [] and float(taken) < 0.5


def test_the_package_has_the_names_of_the_api_and_no_others():
    assert set(tftrt.__all__) == set(api.__all__) and set(tftrt.__all__) <= set(dir(tftrt))
    for name in tftrt.__all__:
        assert getattr(tftrt, name) is getattr(api, name)
    with pytest.raises(AttributeError, match="no attribute 'convrt'"):
        tftrt.convrt  # noqa: B018
    stub = (ROOT / "tftrt_tools/__init__.py").read_text()
    assert set(re.findall(r"import (\w+) as \1\n", stub.partition("__all__")[0])) >= set(tftrt.__all__)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_a_flag_of_the_command_and_is_explained(name):
    function = getattr(tftrt, name)
    signature = inspect.signature(function)
    known = _flags.defaults(_calling.module(name))
    named = [one for one in signature.parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert named and any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    for one in named:
        assert one.name in known and one.default is None, one.name
        assert known[one.name].name == one.name, f"{name}({one.name}=) is an older name of {known[one.name].name}"
        assert re.search(rf"\b{one.name}\b", function.__doc__), f"help({name}) does not say what {one.name} is"
    assert f"`tftrt {name} --help`" in function.__doc__ and "Returns:" in function.__doc__


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_parts_of_one(name):
    module = _calling.module(name)
    assert all(callable(getattr(module, part)) for part in ("define", "result", "show", "write", "failure", "run"))


def test_a_verification_is_the_command_s(model, images, tftrt_command, tmp_path, nothing_printed):
    data = dict(np.load(images / "held_back.npz"))
    done = tftrt.verify(model, model, data=data, labels=np.load(images / "labels.npy"), html=tmp_path / "page.html")
    assert isinstance(done, Verification) and done.passed and done.verdict == "PASSED"
    assert done.accuracy["original"] == done.accuracy["converted"] > 0.9
    assert json.loads(done.to_json())["kind"] == "verification" and (tmp_path / "page.html").is_file()
    assert json.loads((passport.folder(model) / passport.VERIFY).read_text())["passed"]
    assert repr(done).startswith("<Verification: PASSED: ") and "\n" not in repr(done) and len(repr(done)) < 500
    shown = tftrt_command(
        "verify", model, model, f"--data={images / 'held_back.npz'}", f"--labels={images / 'labels.npy'}"
    ).stdout
    shown = shown.partition("next: ")[0].replace(str(images / "held_back.npz"), "data")
    assert [line.split() for line in str(done).splitlines()] == [
        line.split() for line in shown.rstrip("\n").splitlines()
    ]
    page = done._repr_html_()
    assert page.startswith('<iframe sandbox=""') and "serving_default/probabilities" in html.unescape(page)


@pytest.fixture
def tftrt_command():
    from tests import command_here

    return command_here.run_tftrt


def test_a_check_that_fails_raises_with_the_result(model, tmp_path, nothing_printed):
    with pytest.raises(errors.CheckFailed) as error:
        tftrt.verify(model, model, **WRONG, json=tmp_path / "result.json")
    done = error.value.result
    assert isinstance(done, Verification) and not done.passed and "top1" in str(error.value)
    assert json.loads((tmp_path / "result.json").read_text())["verdict"] == "FAILED"
    assert str(error.value).startswith("FAILED: ") and repr(done).startswith("<Verification: FAILED")


def test_a_failed_check_matters_more_than_a_file_that_cannot_be_written(model, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_output, "write_json", full)
    with pytest.raises(errors.CheckFailed):
        tftrt.verify(model, model, **WRONG)
    with pytest.raises(errors.TftrtError, match="No space left") as error:
        tftrt.verify(model, model, write=False)
    assert type(error.value) is errors.TftrtError and error.value.result.passed


def test_what_a_model_is_before_and_after_is_told(model, converted, nothing_printed):
    plan = tftrt.inspect(str(model), precision="FP16")
    assert plan.signatures[0].coverage > 0.9 and repr(plan).startswith("<Plan: ")
    assert "not converted yet" in str(plan) and plan._repr_html_() is None
    seen = tftrt.inspect(converted("digits_cnn", "--precision=FP16", "--use_dynamic_shape"))
    assert seen.engines and not seen.findings and "1 engine ops" in repr(seen)
    with pytest.raises(errors.CheckFailed, match="nothing of the model would run in TensorRT") as error:
        tftrt.inspect(model, minimum_segment_size=1000, check=True)
    assert error.value.result.signatures[0].coverage == 0


def test_calibration_takes_what_a_generator_yields_and_no_more(model, images, tmp_path, nothing_printed):
    rows, taken = np.load(images / "calibration.npz")["image"], []

    def batches():
        for number in range(10**9):
            taken.append(number)
            yield {"image": rows[8 * (number % 32) : 8 * (number % 32) + 8]}

    done = tftrt.calibrate(
        model,
        calibration_data=batches(),
        calibration_batch_size=8,
        num_calibration_batches=4,
        calibration_method="max",
        output=tmp_path / "table.json",
    )
    assert len(taken) == 4 and done.calibration.data["samples"] == 32 and (tmp_path / "table.json").is_file()
    assert json.loads(done.to_json())["output"] == str(tmp_path / "table.json") and "with a range" in repr(done)
    with pytest.raises(errors.UsageError, match="the output file exists"):
        tftrt.calibrate(model, calibration_data={"image": rows}, output=tmp_path / "table.json")


def test_errors_name_the_argument_and_no_temporary_file(model):
    with pytest.raises(errors.UsageError) as error:
        tftrt.verify(model, model, data={"image": np.full((1, 8, 8, 1), np.nan, np.float32)})
    assert "NaN" in str(error.value) and "scratch" not in str(error.value)
    with pytest.raises(errors.UsageError) as error:
        tftrt.verify(model, model, data={"imgae": np.zeros((1, 8, 8, 1), np.float32)})
    assert "'imgae'" in str(error.value) and "scratch" not in str(error.value)


def test_what_the_arrays_were_written_to_is_gone_after_the_call(model, monkeypatch):
    seen = []

    def watched(command, argv):
        seen.extend(word.partition("=")[2] for word in argv if word.startswith("--data="))
        assert os.path.isfile(seen[0])
        raise errors.TftrtError("enough")

    monkeypatch.setattr(_calling, "result", watched)
    with pytest.raises(errors.TftrtError, match="enough"):
        tftrt.verify(model, model, data={"image": np.zeros((1, 8, 8, 1))})
    assert seen and not os.path.exists(os.path.dirname(seen[0]))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tftrt.verify("x", "y", thresold=1), "verify() has no argument 'thresold'; did you mean 'thresholds'?"),
        (lambda: tftrt.verify("nowhere", "nowhere"), "nowhere"),
        (lambda: tftrt.verify(np.zeros(3), "y"), "verify() takes the path of a model, and a ndarray came"),
        (lambda: tftrt.inspect("--help"), "--help"),
        (lambda: tftrt.inspect("--flagfile=/etc/passwd"), "flagfile"),
        (lambda: tftrt.inspect(""), ""),
        (lambda: tftrt.bench(), "usage: tftrt bench"),
        (lambda: tftrt.publish("x"), "--model_name and --base_path are missing"),
        (lambda: tftrt.inspect("gs://bucket/model"), "is no path on this machine"),
    ],
)
def test_what_cannot_work_is_a_usage_error_and_never_ends_the_program(call, said, nothing_printed):
    with pytest.raises(errors.TftrtError) as error:
        call()
    assert said in str(error.value) and not isinstance(error.value, SystemExit)


def test_notes_go_to_the_log_and_not_to_stderr(caplog, nothing_printed):
    with caplog.at_level(logging.INFO, "tftrt_tools"), calling.told():
        progress.note("random, from a seed")
    assert caplog.messages == ["random, from a seed"]


def test_calls_of_several_threads_come_one_after_the_other(monkeypatch):
    inside, most = [], []

    def slow(command, argv):
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.05)
        inside.pop()

    monkeypatch.setattr(_calling, "result", slow)
    threads = [threading.Thread(target=tftrt.inspect, args=("x",)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == [1, 1, 1, 1]


def test_handlers_of_signals_and_of_threads_stay_the_program_s(model):
    import signal

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), threading.excepthook, sys.stdout
    tftrt.inspect(model, signature_keys=["serving_default"])
    assert before == (
        signal.getsignal(signal.SIGINT),
        signal.getsignal(signal.SIGTERM),
        threading.excepthook,
        sys.stdout,
    )


def test_the_outcomes_of_a_comparison_are_the_classes_of_errors(monkeypatch):
    from tests.regress_results import regression
    from tftrt_tools.command_line.commands import regress as command

    values = _flags.defaults(command)
    done = regression()
    assert done.outcome == comparison.PASS and command.failure(done, values) is None
    for verdict, kind in ((comparison.FAIL, errors.CheckFailed), (comparison.UNSURE, errors.Unsure)):
        check = comparison.Check(name="x", what="x", found="found so", verdict=verdict)
        monkeypatch.setattr(comparison, "_checks", lambda _, check=check: [check])
        wrong = command.failure(done, values)
        assert type(wrong) is kind and "found so" in wrong.cause and wrong.exit_code == done.exit_code
    monkeypatch.undo()
    assert type(command.failure(regression(ended="the server ended"), values)) is errors.TftrtError
    with pytest.raises(errors.Interrupted):
        command.failure(regression(ended="interrupted"), values)


@pytest.mark.parametrize("kind", displays._WAYS)
def test_every_result_is_a_class_that_shows_itself(kind):
    import importlib

    module, _, name = kind.rpartition(".")
    one = getattr(importlib.import_module(module), name)
    assert issubclass(one, results.Result) and one.__repr__ is results.Result.__repr__, "repr=False is missing"
    assert one.summary is not results.Result.summary and one.to_dict is not results.Result.to_dict
    command, page = displays._WAYS[kind]
    assert command in COMMANDS
    if page:
        place, _, function = page.partition(":")
        assert callable(getattr(importlib.import_module(f"tftrt_tools.command_line.report.{place}"), function))


def test_a_table_for_a_program_is_text_whatever_the_terminal_and_the_notebook_are(monkeypatch):
    import io

    from rich import console as rich_console

    monkeypatch.setattr(rich_console, "_is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with _output.tables_to(stream):
        _output.console(None).print("a line", style="bold")
    assert stream.getvalue() == "a line\n"


def test_names_of_others_are_harmless_where_a_result_is_shown():
    class Named(results.Result):
        def summary(self):
            return "\x1b]0;title\x07 model"

    assert "\x1b" not in repr(Named()) and str(Named()) == repr(Named()) and Named()._repr_html_() is None


def test_a_page_that_cannot_be_made_any_more_leaves_the_table(monkeypatch):
    class Gone(results.Result):
        def summary(self):
            return "gone"

    def page(done):
        raise FileNotFoundError(2, "No such file", "model")

    monkeypatch.setitem(
        results._WAYS, f"{Gone.__module__}.{Gone.__qualname__}", results.Ways(lambda done: "table", page)
    )
    assert Gone()._repr_html_() is None and str(Gone()) == "table"


@pytest.mark.slow
def test_a_conversion_on_arrays_says_that_it_cannot_be_repeated_from_its_flags(
    model, images, tmp_path, nothing_printed
):
    rows = np.load(images / "calibration.npz")["image"]
    done = tftrt.convert(
        model,
        tmp_path / "int8",
        precision="INT8",
        calibration_data=({"image": rows[begin : begin + 8]} for begin in range(0, 64, 8)),
        calibration_method="max",
    )
    assert done.engines and done.calibration.data["samples"] == 64
    flags = passport.folder(tmp_path / "int8") / passport.FLAGS
    assert (
        "# --calibration_data: arrays that a program gave\n" in flags.read_text() and "scratch" not in flags.read_text()
    )
    again = {"flagfile": flags, "overwrite": True}
    with pytest.raises(errors.UsageError, match="calibration"):
        calling.result("convert", [], {}, again)
    assert tftrt.convert(model, dry_run=True, precision="FP16", use_dynamic_shape=True).output is None
    bare = tftrt.build(tmp_path / "int8", strip=True, output=tmp_path / "bare")
    assert repr(bare).startswith("<Build: ") and "no engines" in str(bare)


@pytest.mark.parametrize("name", ["data", "labels", "calibration_data"])
@pytest.mark.parametrize("command", [tftrt.tune, tftrt.optimize])
def test_what_prints_commands_takes_paths_alone(command, name):
    with pytest.raises(errors.UsageError, match=rf"\({name}=…\) takes a path: the commands"):
        command("model", **{name: np.zeros(3)})


def test_optimize_is_for_the_main_thread_and_gives_the_alarm_back(monkeypatch):
    import signal

    def mine(number, frame):
        raise AssertionError("not rung")

    found = []
    monkeypatch.setattr(_calling, "result", lambda *_: signal.signal(signal.SIGALRM, signal.SIG_IGN))
    before = signal.signal(signal.SIGALRM, mine)
    try:
        tftrt.optimize("model")
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, before)

    def call():
        try:
            tftrt.optimize("model")
        except errors.UsageError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "only the main thread" in str(found[0])


@pytest.mark.parametrize(
    ("complete", "unbuilt", "said"),
    [(True, (), ""), (False, ("refused",), "TensorRT refused"), (False, (), "not all engines")],
)
def test_an_engine_that_was_refused_is_a_failed_check(complete, unbuilt, said):
    import types

    from tftrt_tools.command_line.commands import _made

    one = types.SimpleNamespace(refused=True, name="TRTEngineOp_0", reason="TensorRT refused it", mend="fix it")
    done = types.SimpleNamespace(complete=complete, unbuilt=[one] if unbuilt else [])
    wrong = _made.failure(done)
    assert (wrong is None) == complete and (complete or said in wrong.cause and wrong.exit_code == errors.EXIT_CHECK)


def test_the_story_of_an_optimization_is_an_error_where_the_goal_is_not_kept():
    from tftrt_tools.command_line.commands import optimize as command

    class Asked:
        def path(self, name):
            return f"work/{name}"

    class Told:
        ended, mend, outcome, verdict, exit_code, asked = "", "", "kept", "as good", 0, Asked()

    done = Told()
    assert command.failure(done, None) is None
    for code, outcome, kind in ((3, "not kept", errors.CheckFailed), (4, "cannot tell", errors.Unsure)):
        done.exit_code, done.outcome = code, outcome
        assert type(command.failure(done, None)) is kind and outcome in command.failure(done, None).cause
    for code, kind in ((3, errors.CheckFailed), (1, errors.TftrtError), (2, errors.TftrtError), (4, errors.TftrtError)):
        done.exit_code, done.ended = code, "a step failed"
        assert type(command.failure(done, None)) is kind and "work/report.html" in command.failure(done, None).mend
