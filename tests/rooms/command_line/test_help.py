"""The help of each command: its flags in groups, the needed ones first; and shell completion."""

import fcntl
import importlib
import itertools
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time

import pytest

from tftrt_tools.base import errors
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _calling, _completion, _flags, _help, _topics

# What a command needs besides its flags, by place.
_BY_PLACE = {"configure": [], "convert": [], "regress": [], "data": ["model", "rows"], "promote": ["host:1"]}


def module(command):
    return importlib.import_module(f"tftrt_tools.command_line.commands.{command}")


def defined(command):
    return _flags.defaults(module(command))


def asked(command, flag):
    """How a message asks for a flag: by its place, where it is given by place."""
    return flag.upper() if flag in _help.places(module(command)) else f"--{flag}"


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_each_flag_stands_once_and_under_its_topic(command):
    values = defined(command)
    names = _help.shown(values)
    groups = _topics.grouped(command, names)
    assert sorted(itertools.chain(*groups.values())) == names
    assert len(groups.get(_topics.OFTEN, ())) <= 10
    lines = _help.text(command, importlib.import_module(_help.__name__), values).splitlines()
    for name in names:
        (at,) = (number for number, line in enumerate(lines) if re.match(rf"  --(\[no\])?{name}\b", line))
        heading = next(line for line in reversed(lines[:at]) if line.endswith(":") and not line.startswith(" "))
        assert name in groups[heading[:-1]]


def test_an_unlisted_flag_works_and_no_help_has_it():
    for name in _topics.UNLISTED:
        (command,) = (one for one in cli.COMMANDS if name in _help.own(defined(one)))
        assert name not in _help.shown(defined(command)) and name not in _topics.TOPIC
        values, _ = _flags.parse(command, module(command), [f"--{name}=3"])
        assert values[name].value == 3
        assert f"--{name}" not in _help.text(command, module(command), values)


def test_no_topic_has_a_flag_that_no_command_has():
    names = {name for command in cli.COMMANDS for name in _help.shown(defined(command))}
    assert set(_topics.TOPIC) <= names
    for topic, flags in _topics._TOPICS.items():
        assert all(_topics.TOPIC[flag] == topic for flag in flags.split()), topic
    assert set(_topics._NEEDED) | set(_topics._OFTEN) <= set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("command", "flag"), [(command, flag) for command in cli.COMMANDS for flag in _topics.needed(command)]
)
def test_a_command_ends_without_a_flag_that_it_calls_needed(command, flag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [f"--{name}={'1' if name == 'model_version' else 'x'}" for name in _topics.needed(command) if name != flag]
    with pytest.raises(errors.UsageError) as raised:
        _calling.call(command, [*_BY_PLACE.get(command, ["model"]), *given])
    assert asked(command, flag) in raised.value.cause and "missing" in raised.value.cause, raised.value.cause
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_help_has_nothing_of_absls_own(command):
    values = defined(command)
    text = _help.text(command, importlib.import_module(f"tftrt_tools.command_line.commands.{command}"), values)
    assert not re.search(r"\[''\]|\['|\d{19}|repeat this option|<\w+\|", text)
    for flag in map(values.__getitem__, _help.shown(values)):
        assert _help.words(flag) and not _help.words(flag).startswith("<")


def test_a_default_is_shown_where_the_words_do_not_say_it():
    values = defined("bench")
    assert _help.default(values["duration_seconds"]) == "10.0" and not _help.default(values["max_rounds"])
    assert _help.default(defined("convert")["engine_cache"]) == "on"
    assert _help.choices(defined("convert")["backend"]) == ("tftrt", "tensorrt")


def offered_by_bash(script, line):
    """What bash would offer for a line. Words are parted at "=", as bash does it."""
    words = re.findall(r"=|[^\s=]+", line) + [""] * line.endswith(" ")
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _tftrt; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", code, "-", script, *words], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "tftrt.bash"
    path.write_text(_completion.script("bash", cli.COMMANDS))
    return path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tftrt conv", ["convert"]),
        ("tftrt ", [*cli.COMMANDS, "help", "completion"]),
        ("tftrt help reg", ["regress"]),
        ("tftrt convert --prec", ["--precision="]),
        ("tftrt convert --backend=", ["tftrt", "tensorrt"]),
        ("tftrt convert --backend=te", ["tensorrt"]),
        ("tftrt convert --precision=F", ["FP32", "FP16"]),
        ("tftrt calibrate --calibration_method=m", ["mse", "max"]),
        ("tftrt export --backend=zzz", []),
        ("tftrt verify --noallow_c", ["--noallow_calibration_data", "--noallow_constant_outputs"]),
        ("tftrt nothing --", []),
    ],
)
def test_bash_completes(line, offered, bash):
    assert sorted(offered_by_bash(bash, line)) == sorted(offered)


def test_bash_completes_paths(bash, tmp_path):
    (tmp_path / "rows.npz").touch()
    for line in (f"tftrt convert {tmp_path}/ro", f"tftrt verify --data={tmp_path}/ro"):
        assert offered_by_bash(bash, line) == [f"{tmp_path}/rows.npz"]


@pytest.mark.parametrize("shell", ["zsh", "bash"])
def test_a_shell_completes_what_is_typed(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(_completion.script(shell, cli.COMMANDS))
    (tmp_path / "rows.npz").touch()
    flag = {"bash": "--norc", "zsh": "-f"}[shell]
    said = typed(
        [shell, flag, "-i"],
        f"source {script}; echo rea''dy\n",
        ["tftrt convert --backend=ten", "tftrt convert --prec", f"tftrt verify --data={tmp_path}/ro"],
    )
    assert "--backend=tensorrt" in said and f"{tmp_path}/rows.npz" in said, said
    assert re.search("--prec\x07?ision=", said), said


def typed(command, first, lines, seconds=30):
    """What an interactive shell shows when a Tab follows each line. `first` makes it say "ready"."""
    process, terminal = pty.fork()
    if not process:
        os.environ.update(TERM="dumb", PS1="% ", ZDOTDIR="/nonexistent")
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 400, 0, 0))
    said = ""

    def until(done):
        nonlocal said
        end, before = time.monotonic() + seconds, len(said)
        while time.monotonic() < end and not done(said[before:]):
            if select.select([terminal], [], [], 0.2)[0]:
                said += os.read(terminal, 65536).decode(errors="replace")

    try:
        os.write(terminal, first.encode())
        until(lambda text: "ready" in text)
        for line in lines:
            os.write(terminal, line.encode() + b"\t")
            until(lambda text, line=line: len(text) > len(line) + 4 and not select.select([terminal], [], [], 0.5)[0])
            os.write(terminal, b"\x15")
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)
    return said


@pytest.mark.parametrize("shell", [[], ["fish"], ["bash", "zsh"]])
def test_a_shell_without_completion_is_refused(shell, tftrt):
    done = tftrt("completion", *shell)
    assert done.returncode == 2 and "tftrt completion bash|zsh" in done.stderr and not done.stdout


def test_completion_is_printed(tftrt):
    done = tftrt("completion", "zsh")
    assert done.returncode == 0 and done.stdout == _completion.script("zsh", cli.COMMANDS)


@pytest.mark.parametrize("command", [one for one in cli.COMMANDS if len(_topics.needed(one)) > 1])
def test_all_that_is_missing_is_named_at_once(command):
    with pytest.raises(errors.UsageError) as raised:
        _calling.call(command, _BY_PLACE.get(command, ["model"]))
    assert all(asked(command, name) in raised.value.cause for name in _topics.needed(command)), raised.value.cause


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("optimize", "MODEL, --data, --accuracy and --output are missing"),
        ("data model", "SOURCE and --output are missing"),
        ("export", "MODEL and --output are missing"),
        ("smoke", "ADDRESS and --model_name are missing"),
    ],
)
def test_arguments_by_place_are_named_with_the_flags(words, missing):
    with pytest.raises(errors.UsageError) as raised:
        _calling.call(words.split()[0], words.split()[1:])
    assert raised.value.cause == missing
