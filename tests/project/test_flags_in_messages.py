"""Messages and docstrings name flags that exist: those of the command that they name, by their names of today."""

import ast
import functools
import re

import pytest

from tests.conftest import ROOT
from tests.rooms.command_line.test_help import defined
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _help, _older

# `tftrt COMMAND --flag=value …` in a text; it ends with the sentence, the quotation or the line.
_COMMAND = re.compile(rf"\btftrt ({'|'.join(cli.COMMANDS)})\b([^`\n]*)")
_FLAG = re.compile(r"(?<![\w-])--(no)?([a-z][a-z0-9_]+)")
_FILES = sorted((ROOT / "tftrt_tools").rglob("*.py"))


@functools.cache
def known(command):
    values = defined(command)
    return {*_help.shown(values), "flagfile", "flags"}, {name for name in _help.shown(values) if values[name].boolean}


def texts(path):
    """The texts of a file; what an f-string fills in is left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)


def wrong(text):
    """["tftrt COMMAND --flag"] of flags that the command has not."""
    for command, rest in _COMMAND.findall(text):
        names, booleans = known(command)
        for no, name in _FLAG.findall(rest.partition(" && ")[0]):
            if not (name in booleans if no and f"no{name}" not in names else f"{no}{name}" in names):
                yield f"tftrt {command} --{no}{name}"


def test_what_is_wrong_is_seen():
    assert list(wrong("`tftrt bench --server=triton://h:1 --slo=x` asks, or `tftrt convert --noovewrite`")) == [
        "tftrt bench --server",
        "tftrt convert --noovewrite",
    ]
    assert not list(wrong("`tftrt convert MODEL OUT --nooverwrite --precision=FP16`, and --server is another's"))


def test_every_flag_that_a_message_gives_a_command_exists():
    found = [f"{path.relative_to(ROOT)}: {one}" for path in _FILES for text in texts(path) for one in wrong(text)]
    assert not found, "\n".join(found)


@functools.cache
def gone():
    """The names of before that no command has today."""
    today = {name for command in cli.COMMANDS for name in _help.shown(defined(command))}
    return (
        {old for command in cli.COMMANDS for old in _older.names(command, defined(command))} - today - {"name"}
    )  # --name=value stands for any flag


@pytest.mark.parametrize("folder", ["tftrt_tools", "docs", "serving", "benchmarks", "saved_models", ".github"])
def test_no_name_of_before_is_used(folder):
    words = re.compile(rf"(?<![\w-])--(?:no)?({'|'.join(sorted(gone()))})(?![\w-])")
    # Other programs have flags of these names.
    others = re.compile(r"kubectl|docker|pip|argument\(|type=|HEALTHCHECK|sys\.executable|--rows ")
    found = []
    for path in sorted((ROOT / folder).rglob("*")):
        if (
            path.name != "flags.md"
            and path.suffix in (".py", ".md", ".yaml", ".yml", ".sh", ".ipynb", "")
            and path.is_file()
        ):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if words.search(line) and not others.search(line):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)
