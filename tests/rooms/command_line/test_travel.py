"""Commands that run as a whole on a machine of a cluster: the class of each of their flags, and what is refused before anything is sent. No
fleet is opened here."""

import os

import pytest

import tftrt_tools
from tests.command_line import assert_clear
from tests.rooms.command_line.test_help import defined, module
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calling, _elsewhere, _elsewhere_flags, _flags, _help, _travel
from tftrt_tools.studies.elsewhere import sending

ON = "--on=ray://127.0.0.1:1"
EVERY = [(command, flag) for command in _travel.COMMANDS for flag in _help.own(defined(command))]


@pytest.mark.parametrize("command", _travel.COMMANDS)
def test_each_flag_of_a_command_that_travels_has_a_class(command):
    without = [flag for flag in _help.own(defined(command)) if _class_of(command, flag) is None]
    assert not without, f"say in _travel.py whether these name files: {without}"


def _class_of(command, flag):
    try:
        return _travel.class_of(command, flag)
    except KeyError:
        return None


def test_a_flag_that_is_new_has_no_class():
    assert _class_of("tune", "a_new_flag") is None


def test_no_class_has_a_flag_twice_or_one_that_no_command_has():
    names = _travel.names()
    assert len(set(names)) == len(names)
    known = {flag for _, flag in EVERY}
    assert set(names) <= known and set(_travel.WORDS) <= known
    assert {flag for flag, _ in _travel.OF_HISTORY} <= known and set(_travel.OF_ONE) <= set(EVERY)
    assert set(_travel.STAYS) == {name for name in names if _travel.class_of("tune", name) == "stays"}


@pytest.mark.parametrize("command", _travel.COMMANDS)
def test_what_a_command_checks_as_an_output_is_written(command):
    values = defined(command)
    for flag in ("json", "log_file", *getattr(module(command), "OUTPUTS", ())):
        assert flag not in values or _travel.class_of(command, flag) in _travel.WRITTEN, flag
    for flag in getattr(module(command), "ARGUMENTS", ()):
        assert _travel.class_of(command, flag) in ("model", *_travel.WRITTEN), flag


@pytest.mark.parametrize(("command", "flag"), EVERY)
def test_numbers_and_switches_name_no_file(command, flag):
    if defined(command)[flag].flag_type() in ("bool", "int", "float"):
        assert _travel.class_of(command, flag) in ("plain", "fleet", "stays")


@pytest.mark.parametrize("command", [one for one in _travel.COMMANDS if _travel.COMMANDS[one].work_dir])
def test_the_default_of_work_dir_is_that_of_the_command(command):
    begins = _travel.COMMANDS[command].work_dir
    assert f"by default {begins}MODEL in the current one" in defined(command)["work_dir"].help


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The current folder, with a file for each word that a refusal below needs."""
    monkeypatch.chdir(tmp_path)
    for name in ("m.onnx", "n.onnx", "rows.npy"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/one").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/saved_model.pb").write_bytes(b"x")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/saved_model.pb").symlink_to("/etc/hostname")
    return tmp_path


REFUSED = [
    (["regress", "a", "b", "--address=h:8500"], "--address cannot go to a cluster: it is a server that this machine"),
    (["regress", "a", "b", "--launch=local"], "--launch cannot go to a cluster"),
    (["regress", "m.onnx", "n.onnx", "--baseline=latest"], "the history is on this machine"),
    (["regress", "m.onnx", "n.onnx", "--save_baseline=auto"], "the history is on this machine"),
    (["regress", "m.onnx", "n.onnx", "--candidate_python=python3"], "a Python of this machine"),
    (["regress", "m.onnx", "n.onnx", "--accuracy=mine:f1:threshold=0.5"], "it names code of this machine"),
    (["verify", "m.onnx", "n.onnx", "--thresholds=mine:f1>=0.5"], "it names code of this machine"),
    (["verify", "m.onnx", "n.onnx", "--data=mine:rows"], "--data=mine:rows cannot go to a cluster"),
    (["verify", "m.onnx", "n.onnx", "--custom_objects=mine:all"], "it names code of this machine"),
    (["export", "mine:build", "--output=o.onnx"], "mine:build cannot go to a cluster: it names code"),
    (["verify", "m.onnx", "nothing"], "no such file or directory: nothing"),
    (["verify", "m.onnx", "linked"], "is a link that leads out of the model"),
    (["verify", "m.onnx", "n.onnx", "--data=nothing.npz"], "--data=nothing.npz: no such file or folder"),
    (["verify", "m.onnx", "n.onnx", "--data=rows.npy", "--labels=none.npy"], "--labels=none.npy: no such file"),
    (["verify", "m.onnx", "n.onnx", "--data=rows.npy", "--labels=pipe"], "pipe is a pipe or a device"),
    (["verify", "m.onnx", "n.onnx", "--html=pipe"], "pipe is no file"),
    (["verify", "m.onnx", "n.onnx", "--json=no/such/folder.json"], "no directory"),
    (["verify", "m.onnx", "n.onnx", "--json=-", "--gpu_types=T4,L4"], "--json=- is one place"),
    (["verify", "m.onnx", "model", "--gpu_types=T4,L4"], "keeps its result in model"),
    (["verify", "m.onnx", "n.onnx", "--gpu_types=../T4"], "is no kind of GPU"),
    (
        ["tune", "m.onnx", "--data=rows.npy", "--accuracy=top1:threshold=1", "--shapes=x:1", "--work_dir=full"],
        "is there",
    ),
    (["tune", "m.onnx", "--data=rows.npy", "--accuracy=top1:threshold=1", "--shapes=x:1", "--output=full"], "exists"),
    (["convert", "model", "model"], "lie inside one another"),
    (
        ["optimize", "m.onnx", "--data=rows.npy", "--accuracy=top1:threshold=1", "--output=o", "--publish=b/m"],
        "--publish",
    ),
]


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=[f"{words[0]}-{says}" for words, says in REFUSED])
def test_what_cannot_travel_is_refused_before_anything_is_sent(words, says, files, tftrt, monkeypatch):
    monkeypatch.setattr(sending.session, "opened", None)
    before = sorted(map(str, files.rglob("*")))
    assert_clear(tftrt(*words, ON, cwd=files), 2, says)
    assert sorted(map(str, files.rglob("*"))) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["verify", "m.onnx", "n.onnx", "--on=local"], "verify has nothing to do side by side"),
        (["verify", "m.onnx", "n.onnx", "--on=ray://head"], "is no place"),
        (["verify", "m.onnx", "n.onnx", "--on=rai://head:1"], "give ray://HEAD:10001"),
        (["verify", "m.onnx", "n.onnx", "--gpu_types=T4"], "names machines of a cluster"),
        (["tune", "m.onnx", "--data=rows.npy", "--accuracy=top1:threshold=1", "--shapes=x:1", "--on=here"], "no place"),
    ],
)
def test_what_is_no_cluster_is_told(words, says, files, tftrt):
    assert_clear(tftrt(*words, cwd=files), 2, says)


def test_several_refusals_are_told_at_once(files, tftrt):
    done = tftrt("regress", "a", "b", "--address=h:1", "--launch=local", ON, cwd=files)
    assert done.returncode == 2 and "--address cannot" in done.stderr and "--launch cannot" in done.stderr


def test_a_program_is_told_that_only_the_command_line_does_it(files):
    with pytest.raises(errors.UsageError, match="from the command line alone"):
        tftrt_tools.verify("m.onnx", "n.onnx", on="ray://127.0.0.1:1")


def parsed(*words):
    values, positional = _flags.parse(words[0], module(words[0]), [*words[1:], ON])
    return _elsewhere._with_work_dir(words[0], values, positional), positional


def request(*words, gpu_type=""):
    return _elsewhere._request(words[0], *parsed(*words), gpu_type)


def test_words_keep_blanks_quotes_and_relative_names_and_say_where_absolute_ones_are(files):
    (files / "a 'b\" c").mkdir()
    found = request(
        "verify", "m.onnx", "a 'b\" c/../n.onnx", "--json=a 'b\" c/o,p.json", f"--data={files}/rows.npy", "--nowrite"
    )
    flags, places = found.words[1:-3], found.words[-3:]
    assert sorted(flags) == [f"--data=\0{files}/rows.npy", "--json=a 'b\" c/o,p.json", "--nowrite"]
    assert found.words[0] == "verify" and places == ("--", "m.onnx", f"\0{files}/n.onnx")
    assert found.current == str(files) and found.files == (f"{files}/a 'b\" c/o,p.json",)


def test_two_slashes_in_front_are_one(files):
    found = request("verify", f"/{files}/m.onnx", "n.onnx", f"--json=/{files}/o.json")
    assert found.files == (f"{files}/o.json",) and f"\0{files}/m.onnx" in found.words


def test_the_words_are_read_as_they_were_typed(files):
    """What another machine parses has the values that this one has."""
    words = [
        "regress",
        "m.onnx",
        "-n.onnx",
        "--metrics=p50,p99",
        "--nocompare",
        "--output_kind=a:ids",
        "--output_kind=b:ids",
    ]
    words = ["regress", "--native=m.onnx", "--candidate=-n.onnx", *words[3:], "--goals=rows.npy", "--shapes=x:1,2"]
    values, _ = _flags.parse("regress", module("regress"), words[1:])
    again, positional = _flags.parse("regress", module("regress"), request(*words).words[1:])
    assert positional == [] and {one: again[one].value for one in again} == {one: values[one].value for one in values}


def test_each_of_several_kinds_writes_at_places_of_its_own(files):
    words = ["profile", "m.onnx", "--json=p.json", "--trace=t.json.gz", "--html=h"]
    found = request(*words, "--nowrite", gpu_type="T4")
    assert sorted(map(os.path.basename, found.files)) == ["h-T4", "p-T4.json", "t-T4.json.gz"]
    assert "--trace=t-T4.json.gz" in found.words
    words = ["tune", "m.onnx", "--data=rows.npy", "--accuracy=top1:threshold=1", "--shapes=x:1", "--output=out"]
    assert request(*words, gpu_type="L4").folders == (f"{files}/tune-m.onnx/L4", f"{files}/out/L4")
    assert request(*words).folders == (f"{files}/tune-m.onnx", f"{files}/out")


def test_what_is_written_is_bounded_by_what_the_flags_name(files):
    found = request("export", "m.onnx", "--output=o.onnx", "--json=j")
    allowed = ("o.onnx", "o.onnx.data", "o.serving_default.onnx", "j")
    assert all(found.may_write(f"{files}/{one}") for one in allowed)
    others = ("o", "other.onnx", "oo.onnx", "j.txt", "deep/o.onnx", "../o.onnx", "m.onnx", "deep/../j")
    assert not any(found.may_write(f"{files}/{one}") for one in others)
    kept = request("verify", "m.onnx", "model")
    assert kept.may_write(f"{files}/model/assets.extra/tftrt/verify.json")
    assert not any(kept.may_write(f"{files}/model/{one}") for one in ("saved_model.pb", "assets.extra/warmup"))
    assert request("verify", "m.onnx", "model", "--nowrite").models == () == request("verify", "model", "m.onnx").models


def test_what_is_read_has_all_parts_of_a_model_and_all_files_of_data(files):
    for name in ("c.index", "c.data-00000-of-00001", "d/one.jpg", "d/deep/two.jpg", "d/.hidden.jpg"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_bytes(b"x")
    found = _elsewhere._reads("verify", *parsed("verify", "c", "model/saved_model.pb", "--data=d", "--labels=folders"))
    assert sorted(os.path.relpath(one, files) for one in found) == [
        "c.data-00000-of-00001", "c.index", "d/deep/two.jpg", "d/one.jpg", "model", "model/saved_model.pb",
    ]  # fmt: skip
    found = _elsewhere._reads("verify", *parsed("verify", "c", "model", "--data=d/*.jpg"))
    assert f"{files}/d/one.jpg" in found and f"{files}/d/deep/two.jpg" not in found


def test_the_worst_exit_code_has_an_order():
    assert sending.worst([0, 0]) == 0 and sending.worst([0, 4]) == 4 and sending.worst([4, 1]) == 1
    assert sending.worst([1, 3]) == 3 and sending.worst([3, 2, 0]) == 2 and sending.worst([0, 137, 4]) == 137


def test_a_command_without_a_cluster_runs_here(files, monkeypatch):
    monkeypatch.setattr(_elsewhere_flags, "asked", lambda name, values: None)
    with pytest.raises(errors.TftrtError) as raised:
        _calling.call("verify", ["m.onnx", "nothing"])
    assert "nothing" in raised.value.cause
