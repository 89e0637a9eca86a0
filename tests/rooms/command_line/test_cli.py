"""The command line as a whole: help, mistypes, light start, interrupts of the parent."""

import importlib
import json
import os
import subprocess
import sys

import pytest

from tests import command_here, onnx_files
from tests.command_line import assert_clear, loaded_modules
from tests.conftest import ROOT, run_tftrt
from tftrt_tools.base import errors
from tftrt_tools.command_line import cli


@pytest.fixture(scope="session")
def tftrt():
    """A process for each command: how it starts is what is tested here."""
    return run_tftrt


def test_help_lists_every_command_and_loads_next_to_nothing(tftrt):
    done = tftrt("--help")
    assert done.returncode == 0 and all(f"\n  {name} " in done.stdout for name in cli.COMMANDS)
    assert not {"tensorflow", "numpy", "rich", "absl"} & loaded_modules("--help")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_each_command_helps_without_tensorflow(command, tftrt):
    done = tftrt(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"usage: tftrt {command}") and "--json" in done.stdout
    assert not {"tensorflow", "numpy"} & loaded_modules(command, "--help")


def test_the_working_commands_keep_tensorflow_out_of_their_own_process(zoo_model, converted, tmp_path):
    source, target = zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16")
    for arguments in (
        ("convert", f"--model={source}", "--dry_run"),
        ("inspect", source),
        ("verify", source, target, "--nowrite"),
    ):
        assert "tensorflow" not in loaded_modules(*arguments)


def test_the_client_loads_what_it_needs_alone():
    code = "import sys, tftrt_tools.servers.client; tftrt_tools.servers.client.Client('127.0.0.1:1').close(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    assert {"numpy", "grpc"} <= set(loaded)
    assert not {
        "tensorflow",
        "tensorflow_serving",
        "absl",
        "scipy",
        "rich",
        "matplotlib",
        "jinja2",
        "aiohttp",
        "cattrs",
    } & set(loaded)


def test_no_command_is_wrong_usage(tftrt):
    done = tftrt()
    assert done.returncode == 2 and done.stdout.startswith("usage:")


def test_mistypes_are_guessed(tftrt):
    assert_clear(tftrt("convrt"), 2, "did you mean `tftrt convert`?")
    assert_clear(tftrt("frobnicate"), 2, "no command 'frobnicate'")
    assert_clear(tftrt("inspect", "--minimum_segmnt_size=3"), 2, "minimum_segment_size")


def test_version(tftrt):
    assert tftrt("--version").stdout.startswith("tftrt-tools ")


def test_json_on_stdout_is_json_alone(zoo_model):
    done = command_here.run_tftrt("convert", f"--model={zoo_model('digits_cnn')}", "--dry_run", "--json=-")
    assert json.loads(done.stdout)["kind"] == "conversion" and "Signatures" in done.stderr


def test_json_to_a_place_that_is_not_there(tftrt, zoo_model, tmp_path):
    done = tftrt("convert", f"--model={zoo_model('digits_cnn')}", "--dry_run", f"--json={tmp_path}/no/such/file.json")
    assert done.returncode == 2 and done.stderr.startswith(
        f"tftrt: error: {tmp_path}/no/such/file.json cannot be written: no directory"
    )


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("history", "--json=FOLDER"), "it is a directory"),
        (("history", "--plot=FOLDER/no/p.svg"), "no directory"),
        (
            ("bench", "localhost:1", "--model_name=m", "--csv=FOLDER/one", "--html=FOLDER/../FOLDER_NAME/one"),
            "two results would be written",
        ),
        (("bench", "localhost:1", "--model_name=m", "--hdr=FOLDER/no/b.hdr"), "no directory"),
        (
            ("regress", "--native=a", "--candidate=b", "--junit=FOLDER/x", "--html=FOLDER/x"),
            "two results would be written",
        ),
        (
            ("regress", "--native=a", "--candidate=b", "--junit=FOLDER/x", "--save_baseline=FOLDER/x"),
            "two results would be written",
        ),
        (("verify", "a", "b", "--html=FOLDER"), "it is a directory"),
        (("sensitivity", "a", "--plot=FOLDER"), "it is a directory"),
        (("export", "a", "--output=FOLDER/a.onnx", "--json=FOLDER/a.onnx.data"), "two results would be written"),
        (
            ("export", "a", "--output=FOLDER/a.onnx", "--output_table=FOLDER/a.onnx.data"),
            "two results would be written",
        ),
        (("calibrate", "a", "--output=FOLDER/no/table"), "no directory"),
    ],
)
def test_a_result_that_could_not_be_written_is_refused_before_the_work(tftrt, tmp_path, arguments, says):
    arguments = [one.replace("FOLDER_NAME", tmp_path.name).replace("FOLDER", str(tmp_path)) for one in arguments]
    done = tftrt(*arguments)
    assert done.returncode == 2 and says in done.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "FILE", "--output=FOLDER/x.onnx", "--output_table=FILE"),
        ("export", "FILE", "--output=FOLDER/x.onnx", "--log_file=FILE"),
        ("verify", "a.onnx", "FOLDER/../FOLDER_NAME/file", "--json=FILE"),
        ("verify", "a.onnx", "b.onnx", "--data=FILE", "--plot=FOLDER/link"),
        ("verify", "FOLDER/m.onnx", "b.onnx", "--json=FOLDER/m.onnx.data"),
        ("regress", "--native=a", "--candidate=FILE", "--html=FILE"),
        ("smoke", "x:1", "--server_log=FILE", "--json=FILE"),
    ],
)
def test_what_a_command_reads_is_not_written_over(tftrt, tmp_path, arguments):
    (tmp_path / "file").write_text("a model, or data")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    onnx_files.product(tmp_path / "m.onnx", outside=True)
    weights = (tmp_path / "m.onnx.data").read_bytes()
    names = {"FOLDER_NAME": tmp_path.name, "FOLDER": str(tmp_path), "FILE": str(tmp_path / "file")}
    for name, value in names.items():
        arguments = [one.replace(name, value) for one in arguments]
    done = tftrt(*arguments)
    assert done.returncode == 2 and "would write over" in done.stderr and "which the command reads" in done.stderr, (
        done.stderr
    )
    assert (tmp_path / "file").read_text() == "a model, or data" and not (tmp_path / "x.onnx").exists()
    assert (tmp_path / "m.onnx.data").read_bytes() == weights


def test_the_log_that_smoke_reads_is_no_result(tftrt, tmp_path):
    (tmp_path / "log").write_text("")
    done = tftrt("smoke", "localhost:1", f"--server_log={tmp_path / 'log'}", f"--data={tmp_path / 'log'}")
    assert "would write over" not in done.stderr


def test_flags_from_a_file(zoo_model, tmp_path):
    (tmp_path / "flags").write_text(f"--model={zoo_model('digits_cnn')}\n--dry_run\n--precision=FP16\n")
    done = command_here.run_tftrt("convert", f"--flagfile={tmp_path / 'flags'}", "--json=-")
    assert json.loads(done.stdout)["settings"]["precision_mode"] == "FP16"


def test_errors_cross_the_process_border_whole():
    for kind in (errors.TftrtError, errors.UsageError, errors.CheckFailed):
        back = errors.from_dict(kind("cause", "mend").to_dict())
        assert (type(back), back.cause, back.mend, back.exit_code) == (kind, "cause", "mend", kind.exit_code)


@pytest.mark.parametrize(
    "argv",
    [("regress", "--min_effect=nan"), ("bench", "x:1", "--duration_seconds=nan"), ("history", "--min_effect=nan")],
)
def test_nan_is_no_number_for_any_flag(argv, capsys):
    assert cli.main(list(argv)) == 2
    assert "=nan is no number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("promote", "x:1", "--model_version=two"), "--model_version=two is no whole number"),
        (("regress", "--min_effect=much"), "--min_effect=much is no number"),
    ],
)
def test_words_are_no_numbers(argv, told, capsys):
    assert cli.main(list(argv)) == 2
    assert f"error: {told}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, told",
    [
        (KeyboardInterrupt(), "tftrt: error: interrupted\n  nothing was written; run the command again\n"),
        (errors.Interrupted("ended by SIGTERM", "go on"), "tftrt: error: ended by SIGTERM\n  go on\n"),
    ],
)
def test_an_interrupt_is_told_in_two_lines(monkeypatch, capsys, error, told):
    def interrupted(*_):
        raise error

    monkeypatch.setattr(cli, "_run", interrupted)
    assert (cli.main(["bench"]), capsys.readouterr().err) == (1, told)


def test_too_little_memory_is_an_error_of_one_line(monkeypatch, capsys):
    def full(*_):
        raise MemoryError("Unable to allocate 47.7 GiB")

    monkeypatch.setattr(cli, "_run", full)
    assert cli.main(["bench"]) == 1
    assert "not enough memory: Unable to allocate 47.7 GiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ("log", "a.log", "--json=a.log"),
        ("log", "a.log", "--json=link"),
        ("profile", "a.log", "b.log", "--html=b.log"),
        ("diagnose", "model", "model", "--profile=a.log", "--json=./a.log"),
    ],
)
def test_a_report_never_replaces_what_is_read(argv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a.log")
    assert cli.main(list(argv)) == 2
    assert "which the command reads\n  give the result another name\n" in capsys.readouterr().err
    assert (tmp_path / "a.log").read_text() == "a.log"


def test_a_terminal_that_lacks_characters_gets_escapes(tmp_path):
    (tmp_path / "a.log").write_text("2026-11-24 07:38:26.513333: E tensorflow/new.cc:1] of Zoë\n")
    done = run_tftrt("log", tmp_path / "a.log", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr) == (0, "") and "of Zo\\xeb" in done.stdout


@pytest.mark.parametrize(
    "closed, code, says",
    [("<&-", 1, "tftrt: error: stdin is empty"), (">&-", 1, "tftrt: error: no line of stdin"), ("2>&-", 1, "")],
)
def test_a_stream_that_is_closed_is_an_empty_one(closed, code, says):
    done = subprocess.run(
        ["bash", "-c", f"echo milk | {{ {sys.executable} -m tftrt_tools log - {closed}; }}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr.partition("\n")[0][: len(says)]) == (
        code,
        says,
    ) and "Traceback" not in done.stderr
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tftrt_tools log tests/data/logs/fallback.log.gz {closed}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("words", ["--help", "--version", "log --help", "log tests/data/logs/fallback.log.gz"])
def test_a_full_disk_below_stdout_is_one_line_with_its_mend(words, buffered):
    """What is buffered fails again when Python ends."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} {'' if buffered else '-u'} -m tftrt_tools {words} > /dev/full"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    assert done.returncode == 1 and done.stderr.splitlines()[0].endswith("No space left on device"), done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


def test_where_stderr_takes_nothing_the_exit_code_is_that_of_the_error():
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m tftrt_tools nosuch 2> /dev/full"], check=False, cwd=ROOT)
    assert done.returncode == errors.EXIT_USAGE


@pytest.mark.parametrize("command", ["convert", "bench", "doctor"])
def test_help_of_a_command_is_asked_for_in_both_ways(command, tftrt):
    assert tftrt("help", command).stdout == tftrt(command, "--help").stdout
    assert_clear(tftrt("help", "frobnicate"), 2, "no command 'frobnicate'")
    assert tftrt("help").stdout == tftrt("--help").stdout


def test_the_version_has_its_usual_names(tftrt):
    said = {tftrt(word).stdout for word in ("-v", "-V", "--version", "version")}
    assert len(said) == 1 and said.pop().startswith("tftrt-tools ")


@pytest.mark.parametrize(("command", "flags"), [("convert", ("model", "output")), ("regress", ("native", "candidate"))])
def test_models_are_given_by_place_or_by_flag(command, flags, tftrt):
    from tftrt_tools.base import errors
    from tftrt_tools.command_line.commands import _flags

    module = importlib.import_module(f"tftrt_tools.command_line.commands.{command}")
    for words in (
        ["a", "b"],
        [f"--{flags[0]}=a", f"--{flags[1]}=b"],
        ["--data=x" if command == "regress" else "--dry_run", "a", "b"],
    ):
        values, rest = _flags.parse(command, module, words)
        assert [values[flag].value for flag in flags] == ["a", "b"] and rest == []
    assert _flags.parse(command, module, ["a", "b", "c"])[1] == ["c"]
    with pytest.raises(errors.UsageError, match="is given"):
        _flags.parse(command, module, ["a", f"--{flags[0]}=b"])
    assert_clear(tftrt(command, "a", "b", "c"), 2, "unexpected argument 'c'")


@pytest.mark.parametrize(
    ("command", "word", "hint"),
    [
        ("convert", "--data=rows.npz", "--calibration_data names inputs here"),
        ("verify", "--calibration_data=rows.npz", "--data names inputs here"),
        ("verify", "--accuracy=top1:threshold=0.9", "`tftrt verify --help`"),
    ],
)
def test_a_flag_that_another_command_calls_otherwise_is_named(command, word, hint):
    from tftrt_tools.command_line.commands import _flags

    module = importlib.import_module(f"tftrt_tools.command_line.commands.{command}")
    with pytest.raises(errors.UsageError, match="Unknown command line flag") as caught:
        _flags.parse(command, module, [word])
    assert caught.value.mend.startswith(hint) and caught.value.mend.endswith("lists the flags")
