"""Back ends: those that are known, and one in a file of its own, which convert, verify, tune and regress take as their own."""

import dataclasses
import importlib.metadata
import json
import pathlib
import types

import pytest

import tftrt_tools
from tests.command_line import assert_clear
from tests.third_backend import OnnxRuntime
from tftrt_tools.accuracy import goal, verify
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _backend_flags, _flags, _source_flags, convert
from tftrt_tools.models.backends import protocol, recipe
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.sources.source import Source
from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import journal, makers, measuring, search, trial, tune
from tftrt_tools.tensorrt.plans.settings import Settings as PlanSettings
from tftrt_tools.tftrt.conversion.settings import Settings


@pytest.fixture
def third():
    with backends.register(OnnxRuntime()):
        yield


def test_the_default_comes_first_and_an_unknown_name_is_told_with_those_that_are_known():
    assert backends.names() == ("tftrt", "tensorrt") and backends.default().name == "tftrt"
    with pytest.raises(errors.UsageError, match="'trt' is no backend") as raised:
        backends.named("trt")
    assert raised.value.mend == "known: tftrt, tensorrt"


def test_the_default_takes_no_model_that_it_does_not_convert():
    with pytest.raises(errors.UsageError, match="TF-TRT converts TensorFlow models"):
        backends.default().takes(Source(path="model.onnx"))


def test_the_manifest_of_a_model_names_its_back_end():
    assert backends.of_manifest(None) == backends.of_manifest({"signatures": []}) == "tftrt"
    assert backends.of_manifest({"backend": "tensorrt"}) == "tensorrt"


def test_a_name_is_registered_once_and_for_a_block(third):
    assert backends.names()[-1] == "onnxruntime"
    with pytest.raises(ValueError, match="onnxruntime"), backends.register(OnnxRuntime()):
        pass
    assert backends.names().count("onnxruntime") == 1


@pytest.fixture
def installed(monkeypatch):
    """Lets entry points be what a test says."""

    def say(*points):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
        backends._installed.cache_clear()

    yield say
    monkeypatch.undo()
    backends._installed.cache_clear()


def point(load):
    return types.SimpleNamespace(name="third", value="package:third", load=load)


def test_another_package_adds_one_by_an_entry_point(installed):
    installed(point(OnnxRuntime))
    assert backends.names() == ("tftrt", "tensorrt", "onnxruntime")


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (lambda: 1 / 0, "cannot be loaded: division by zero"),
        (lambda: object(), "cannot be loaded: "),
        (lambda: types.SimpleNamespace(name="tftrt"), "a second back end of the name 'tftrt'"),
    ],
)
def test_one_that_cannot_be_used_is_named(installed, load, says):
    installed(point(load))
    with pytest.raises(errors.TftrtError) as raised:
        backends.names()
    assert says in str(raised.value) and "package:third" in str(raised.value)


def test_a_recipe_is_recast_without_the_defaults_of_the_other_and_without_its_options():
    given = Settings(precision_mode="INT8", shapes="x:1", calibration_method="mse", minimum_segment_size=7)
    made = recipe.recast(given, PlanSettings)
    assert made == PlanSettings(precision_mode="INT8", shapes="x:1", calibration_method="mse")
    assert made.max_workspace_size_bytes == 0 != given.max_workspace_size_bytes
    back = recipe.recast(made, Settings)
    assert back == Settings(precision_mode="INT8", shapes="x:1", calibration_method="mse")
    assert recipe.recast(given, Settings) is given


def test_the_settings_of_a_plan_are_read_from_files_that_name_the_signature_alone():
    old = {"precision_mode": "FP16", "shapes": "x:1", "signature": "score", "tf32": False}
    settings = PlanSettings.from_dict(old)
    assert settings.signature_keys == ("score",) and settings.signature == "score" and not settings.tf32
    written = settings.to_dict()
    assert written["signature"] == "score" and list(written)[:3] == ["precision_mode", "shapes", "signature"]
    assert PlanSettings.from_dict(written) == settings and PlanSettings.from_dict({"signature": ""}) == PlanSettings()


def test_convert_makes_its_model_and_verify_and_regress_take_it(third, zoo_model, tftrt, tmp_path):
    model, made = zoo_model("digits_cnn"), tmp_path / "made.onnx"
    done = tftrt("convert", model, made, "--backend=onnxruntime", "--optimization=extended", f"--json={tmp_path / 'j'}")
    assert done.returncode == 0 and "optimized by ONNX Runtime" in done.stdout, done.stdout + done.stderr
    assert f"written: {made}" in done.stdout and "next: tftrt verify" in done.stdout
    assert json.loads((tmp_path / "j").read_text())["settings"]["optimization"] == "extended"
    done = tftrt("verify", model, made)
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
    few = ("--rounds=12", "--max_rounds=12", "--requests=2", "--metrics=p50", "--shapes=image:1x8x8x1")
    done = tftrt("regress", f"--native={model}", f"--candidate={made}", *few, f"--json={tmp_path / 'r'}")
    assert done.returncode in (0, 3, 4), done.stderr
    said = json.loads((tmp_path / "r").read_text())
    assert not said["answers"]["problems"] and said["candidate"]["path"] == str(made)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--backend=onnxruntime", "--tf32"), "--tf32 has no effect with --backend=onnxruntime: it is for plans"),
        (("--backend=onnxruntime", "--max_engines=3"), "--max_engines has no effect with --backend=onnxruntime"),
        (("--optimization=all",), "--optimization is for ONNX Runtime"),
        (("--backend=tensorrt", "--optimization=all"), "--optimization has no effect with --backend=tensorrt"),
        (("--backend=onnxruntime", "--precision=FP16"), "--precision=FP16: it keeps FP32"),
        (("--backend=onnxruntime", "--optimization=most"), "--optimization=most is unknown"),
    ],
)
def test_flags_of_another_back_end_are_refused_before_any_work(third, zoo_model, tftrt, tmp_path, flags, says):
    assert_clear(tftrt("convert", zoo_model("digits_cnn"), tmp_path / "made.onnx", *flags), 2, says)
    assert not list(tmp_path.iterdir())


def test_without_it_its_flags_are_unknown(tftrt, tmp_path):
    done = tftrt("convert", "model", tmp_path / "made.onnx", "--backend=onnxruntime")
    assert_clear(done, 2, "onnxruntime")


def test_tune_tries_it_beside_the_precisions_that_it_lacks_and_makes_the_winner(
    third, zoo_model, images, tftrt, tmp_path, monkeypatch
):
    def tuned(*flags):
        done = tftrt(
            "tune",
            zoo_model("digits_cnn"),
            f"--data={images / 'held_back.npz'}",
            "--data_rows=40",
            "--shapes=image:8x8x8x1",
            "--accuracy=snr_db:threshold=60",
            "--backend=onnxruntime",
            "--precision=FP32,FP16",
            f"--work_dir={tmp_path / 'work'}",
            f"--json={tmp_path / 'j'}",
            *flags,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, json.loads((tmp_path / "j").read_text())

    printed, said = tuned(f"--output={tmp_path / 'best.onnx'}")
    first, second = said["trials"]
    assert (first["backend"], first["kept"], first["engines"]) == ("onnxruntime", True, 0)
    assert second["failure"] == "--precision=FP16: it keeps FP32" and not second["kept"]
    assert said["winner"] == 1 and said["final"] and (tmp_path / "best.onnx").is_file()
    assert "optimized file, FP32" in printed
    assert tftrt("verify", zoo_model("digits_cnn"), tmp_path / "best.onnx").returncode == 0
    # What was measured is not measured again, but for another version of what makes it.
    for same in (True, False):
        if not same:
            monkeypatch.setattr(OnnxRuntime, "versions", lambda self: {"onnxruntime": "0.1"})
        assert (tuned()[1]["trials"][0]["latencies"] == first["latencies"]) is same


class Recording(OnnxRuntime):
    """Takes every precision, and keeps what it is asked to make."""

    def __init__(self):
        self.asked = []

    def check(self, settings, given):
        return settings

    def make(self, work):
        self.asked.append(work)


def test_the_winner_is_made_of_all_that_its_trial_was_made_of(tmp_path):
    """The source with its flags, and the data of its ranges; `convert` reads the same from the flag file."""
    model = Source(path="graph.pb", inputs=("x",), outputs=("y", "z"), custom_objects="mine:objects", unsafe=True)
    data = DataOptions(
        source="rows.npz", batch_size=4, batches=2, image_scale=1 / 255, image_mean=(0.5, 0.25, 1e-3), image_size="8x9"
    )
    third = Recording()
    maker = makers.Direct(
        third,
        makers.Asked(
            source=model, names={"s": ("s",)}, folder=tmp_path, comparison=verify.Options(), data=data, cache=None
        ),
    )
    settings = Settings(precision_mode="INT8", shapes="x:1x2", calibration_method="mse")
    won = search.Trial(
        number=1, settings=settings, high=(), measured=search.Measured(), kept=True, backend="onnxruntime"
    )
    found = tune.Found(types.SimpleNamespace(winner=won, best=None), "", {"onnxruntime": maker})
    options = types.SimpleNamespace(cache=None, build_minutes=None)
    with backends.register(third):
        maker.made(settings)
        tune.write_winner(model, str(tmp_path / "out.onnx"), found, options, overwrite=False)
        (tmp_path / "flags").write_text(tune.flag_file(model, found))
        values, _ = _flags.parse("convert", convert, [f"--flagfile={tmp_path / 'flags'}"])
        again = convert.read_data(values, _backend_flags.read(values, third))
        read = _source_flags.read(values, values.input_saved_model_dir)
    tried, made = third.asked
    assert made.data == tried.data == data and made.settings == tried.settings
    absolute = dataclasses.replace(model, path=str(pathlib.Path("graph.pb").absolute()))
    assert made.source == absolute == read and tried.source == model and made.output == str(tmp_path / "out.onnx")
    assert dataclasses.replace(again, shapes="") == data and values.backend == "onnxruntime"


class Bare:
    """A model that was made: protocol.Made, and no more."""

    output, complete = "made.onnx", True

    def __init__(self, what="x"):
        self.what = what

    def to_dict(self):
        return {"made": self.what}

    def text(self):
        return ("made by hand",)


class Giving(Recording):
    """Gives a Bare of what it is told."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def make(self, work):
        return Bare(self.what)


def test_what_a_back_end_made_needs_no_more_than_the_protocol(tftrt, tmp_path):
    """No results.Result: the command and the function print it and write its JSON all the same."""
    file, arguments = tmp_path / "made.json", ("model", tmp_path / "made.onnx", "--backend=onnxruntime")
    with backends.register(Giving("x\x7f")):
        done = tftrt("convert", *arguments, f"--json={file}")
        assert done.returncode == 0 and "made by hand" in done.stdout, done.stderr
        assert json.loads(file.read_text()) == {"made": "x\x7f"} and "\x7f" not in file.read_text()
        file.unlink()
        made = tftrt_tools.convert("model", tmp_path / "made.onnx", backend="onnxruntime", json=file)
        assert made.to_dict() == json.loads(file.read_text()) and made.output == "made.onnx"
    with backends.register(Giving({1, 2})):
        done = tftrt("convert", *arguments, f"--json={file}")
        assert done.returncode == 1 and "test_backends.Bare is no JSON: Object of type set" in done.stderr
        with pytest.raises(tftrt_tools.TftrtError, match="is no JSON") as raised:
            tftrt_tools.convert("model", tmp_path / "made.onnx", backend="onnxruntime", json=file)
    assert raised.value.result.what == {1, 2} and "plain values" in raised.value.mend
    assert json.loads(file.read_text()) == {"made": "x\x7f"}, "the file of before"


class Simulating(Recording):
    """Simulates, too, and keeps what it is asked."""

    keeps_high = {"INT8": "fp32_nodes"}

    def rank(self, settings, rows):
        self.asked.append((settings, rows))
        return protocol.Ranked(("b", "a"), 2)

    def promise(self, settings, rows):
        self.asked.append((settings, rows))
        if settings.calibration_method == "max":
            raise errors.UsageError("no range", "give data")
        return float("inf")


def ranks(third, folder):
    asked = makers.Asked(
        source=Source(path="m"), names={"s": ("s",)}, folder=folder, comparison=verify.Options(), facts={"data": "1"}
    )
    rows = measuring.Scored(signature="s", rows=2, inputs="0.npz", reference="1.npz")
    scoring = measuring.Scoring(goal=goal.parse("snr_db:threshold=30"), calls=(rows,))
    task = trial.Task(model="m", timed=(), scoring=scoring, facts={"model": "2"})
    return makers.Direct(third, asked).ranks(task, journal.Journal(folder / "work"))


def test_a_back_end_that_simulates_ranks_nodes_and_promises_for_tune(tmp_path):
    third = Simulating()
    assert isinstance(third, protocol.Simulates)
    with backends.register(third):
        for _ in range(2):
            found = ranks(third, tmp_path)
            settings = Settings(precision_mode="INT8", calibration_method="mse")
            assert found(settings) == protocol.Ranked(("b", "a"), 2) and found.snr_db(settings) == float("inf")
        with pytest.raises(errors.TftrtError, match="no range"):
            found.snr_db(dataclasses.replace(settings, calibration_method="max"))
    (own, rows), *more = third.asked
    assert type(own) is OnnxRuntime.settings and own.calibration_method == "mse" and len(more) == 2
    assert rows.source.path == "m" and rows.calls == {"s": ["0.npz"]}


def test_a_back_end_of_before_that_does_not_simulate_says_so(tmp_path):
    third = OnnxRuntime()
    assert not isinstance(third, protocol.Simulates)
    found = ranks(third, tmp_path)
    for ask in (found, found.snr_db):
        with pytest.raises(errors.TftrtError, match="onnxruntime "):
            ask(Settings())


@pytest.fixture
def made(third, zoo_model, tftrt, tmp_path):
    """A model of the third back end."""
    done = tftrt("convert", zoo_model("digits_cnn"), tmp_path / "made.onnx", "--backend=onnxruntime")
    assert done.returncode == 0, done.stderr
    return tmp_path / "made.onnx"


def test_the_other_commands_meet_its_model(made, zoo_model, images, tftrt, tmp_path):
    """Each works, or says in a line who made the model, and what to do."""
    what, original = "an ONNX file that onnxruntime made", zoo_model("digits_cnn")
    assert backends.of_made(str(made)).name == "onnxruntime" and backends.described(str(made)) == what
    data = f"--data={images / 'held_back.npz'}"
    rest = (data, "--accuracy=snr_db:threshold=30", f"--output={tmp_path / 'best'}")
    for words, says, mend in (
        (("sensitivity", made, data), "made.onnx is a converted model, which onnxruntime made", "give the original"),
        (("profile", made), f"made.onnx is {what}, and this profiles", "tftrt bench MODEL"),
        (("diagnose", original, made), f"made.onnx is {what}", "tftrt bench ORIGINAL CONVERTED"),
        (("optimize", made, *rest), "made.onnx is a converted model itself, which onnxruntime made", "the original"),
    ):
        done = tftrt(*words)
        assert_clear(done, 2, says)
        assert mend in done.stderr.splitlines()[-1]
    done = tftrt("build", made, f"--output={tmp_path / 'again.onnx'}")
    assert done.returncode == 0 and f"written: {tmp_path / 'again.onnx'}" in done.stdout, done.stderr


def test_a_file_that_no_back_end_says_it_made_is_one_of_its_kind(made, tftrt):
    (made.parent / "made.onnx.json").unlink()
    assert backends.described(str(made)) == "an ONNX file"
    assert_clear(tftrt("profile", made), 2, "made.onnx is an ONNX file, and this profiles")
    assert_clear(tftrt("build", made), 2, "build takes what `tftrt convert` made, and")


def test_the_back_end_of_a_model_says_which_flags_of_build_are_another_ones(tmp_path, tftrt):
    (tmp_path / "plan.json").write_text("{}")
    done = tftrt("build", tmp_path, "--repeat=2")
    assert_clear(done, 2, f"--repeat has no effect: {tmp_path} is a plan directory, and it is for TF-TRT")
