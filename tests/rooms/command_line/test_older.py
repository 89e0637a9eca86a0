"""Names that flags had before: they go on working, no help has them, and a note names the new ones."""

import os
import threading

import pytest

from tests.rooms.command_line.test_help import defined, module
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _flags, _help, _older

OLD = [
    (command, old, new)
    for command in cli.COMMANDS
    for old, new in sorted(_older.names(command, defined(command)).items())
]


def parsed(command, words):
    """Returns: (the values, the notes)."""
    notes = []
    with progress.notes_to(notes.append):
        values, _ = _flags.parse(command, module(command), words)
    return values, notes


def word(command, name):
    """A word that gives a flag a value of its type, and what the flag is then."""
    flag = defined(command)[name]
    if flag.boolean:
        return f"--{name}", True
    choices = _help.choices(flag)
    for text in (choices[-1] if choices else "7", "a"):
        values = defined(command)
        try:
            values[name].parse(text)
        except Exception:
            continue
        return f"--{name}={text}", values[name].value
    raise AssertionError(f"no value for --{name} of {command}")


def test_the_names_of_before_are_there():
    assert len(OLD) > 90 and {command for command, _, _ in OLD} >= {"convert", "publish", "regress", "promote", "serve"}


@pytest.mark.parametrize(("command", "old", "new"), OLD)
def test_an_old_name_gives_the_flag_its_value_and_a_note_names_the_new_one(command, old, new):
    given, value = word(command, old)
    values, notes = parsed(command, [given])
    assert values[new].value == value and values[new].present == 1
    assert notes == [f"note: --{old} is --{new} now"]
    values, notes = parsed(command, [given.replace(old, new, 1)])
    assert values[new].value == value and notes == []


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_no_help_has_an_old_name(command):
    values = defined(command)
    text = _help.text(command, module(command), values)
    for old in _older.names(command, values):
        assert f"--{old}" not in text.replace("=", " ").split() and old not in _help.shown(values)


def test_every_new_name_is_a_flag():
    for command, names in _older._OF_ONE.items():
        assert set(names) <= set(_help.shown(defined(command))), command
    assert set(_older._OF_ALL) <= {name for command in cli.COMMANDS for name in _help.shown(defined(command))}


def test_a_file_of_flags_of_before_is_read(tmp_path):
    (tmp_path / "inner").write_text("--precision_mode=INT8\n")
    (tmp_path / "flags").write_text(
        f"# made by an older version\n--input_saved_model_dir=a b\n--output_saved_model_dir=c\n--flagfile={tmp_path}/inner\n"
    )
    values, notes = parsed("convert", [f"--flagfile={tmp_path}/flags"])
    assert (values.model, values.output, values.precision) == ("a b", "c", "INT8")
    assert notes == [
        "note: --input_saved_model_dir is --model now; --output_saved_model_dir is --output now; --precision_mode is --precision now"
    ]


@pytest.mark.parametrize(
    ("words", "values_are", "notes_are"),
    [
        (["--nolayers"], {"layer_precisions": False}, ["note: --layers is --layer_precisions now"]),
        (["-precision_mode", "FP16"], {"precision": "FP16"}, ["note: --precision_mode is --precision now"]),
        (
            ["--precision=FP16", "--precision_mode=INT8"],
            {"precision": "INT8"},
            ["note: --precision_mode is --precision now"],
        ),
        (["--", "--precision_mode=INT8"], {"precision": "FP32", "model": "--precision_mode=INT8"}, []),
        (["precision_mode", "layers"], {"model": "precision_mode", "output": "layers"}, []),
    ],
)
def test_words_of_each_form(words, values_are, notes_are):
    values, notes = parsed("convert", words)
    assert {name: values[name].value for name in values_are} == values_are and notes == notes_are


def test_the_note_is_on_stderr_and_the_result_is_what_a_program_reads(tftrt, tmp_path):
    done = tftrt("history", f"--history_dir={tmp_path}", "--name=none", "--json=-")
    assert done.stderr.startswith("note: --name is --history_name now\n") and "note" not in done.stdout


def test_the_note_comes_before_what_is_said_of_the_value():
    notes = []
    with progress.notes_to(notes.append), pytest.raises(errors.UsageError, match="--requests=0"):
        _flags.parse("smoke", module("smoke"), ["--repeats=0"])
    assert notes == ["note: --repeats is --requests now"]


def test_a_file_of_flags_may_be_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "flags")
    threading.Thread(target=(tmp_path / "flags").write_text, args=["--precision_mode=INT8\n"], daemon=True).start()
    values, notes = parsed("convert", [f"--flagfile={tmp_path}/flags"])
    assert values.precision == "INT8" and notes == ["note: --precision_mode is --precision now"]


@pytest.mark.parametrize(
    ("command", "typed", "new"),
    [
        ("convert", "--precision_mod=FP16", "precision"),
        ("publish", "--versions=3", "model_version"),
        ("serve", "--imag=x", "server_image"),
        ("regress", "--servers=x", "address, server_image"),
    ],
)
def test_a_flag_that_is_not_known_is_told_the_new_name(command, typed, new):
    with pytest.raises(errors.UsageError) as error:
        parsed(command, [typed])
    assert error.value.cause.endswith(f"Did you mean: {new} ?")


@pytest.mark.parametrize("old", ["calibration_ranges", "calibration_seed"])
def test_two_flags_that_are_one_now_are_not_given_both(old, tmp_path):
    new = old.removeprefix("calibration_")
    (tmp_path / "flags").write_text(f"--{old}=1\n--precision=INT8\n")
    with pytest.raises(errors.UsageError, match=f"--{old} and --{new} are one flag now"):
        parsed("export", [f"--flagfile={tmp_path}/flags", f"--{new}=2"])
    assert parsed("export", [f"--flagfile={tmp_path}/flags"])[0].precision == "INT8"
