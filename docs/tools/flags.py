"""Writes docs/flags.md: every command's flags, with their defaults and help, as the commands define them.

Run from the repository's root: python -m docs.tools.flags
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import pathlib
import re
from typing import TYPE_CHECKING, Any

from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _flags, _help, _older, _topics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

PAGE = pathlib.Path(__file__).resolve().parents[1] / "flags.md"
_HEAD = """# Flags

Each flag of each command, in the words of `tftrt COMMAND --help`. `python -m docs.tools.flags` writes this page from the commands.

`source <(tftrt completion bash)`, or zsh, completes commands, flags and their values.

Every command takes `--help`, `--json=FILE` (the result as JSON; `-` for stdout) and `--flagfile=FILE` (flags from a file, one a line).
A flag that several commands have stands once, [below them](#flags-of-several-commands), under its topic."""
_OF_ALL = ("help", "json")


@dataclasses.dataclass(frozen=True)
class _Row:
    """A flag in a table: three cells. short: in a list."""

    flag: str
    short: str
    what: str
    default: str


def text() -> str:
    """The page."""
    commands = {name: _groups(name) for name in cli.COMMANDS}
    users = collections.defaultdict(list)
    topics = {}
    for command, groups in commands.items():
        for names in groups.values():
            for name, row in names.items():
                users[row].append(command)
                topics[row] = _topics.TOPIC[name]
    lines = [_HEAD]
    for command, groups in commands.items():
        about = cli.COMMANDS[command]
        lines += ["", f"## {command}", "", f"{about[0].upper()}{about[1:]}."]
        for heading in (_topics.NEEDED, _topics.OFTEN):
            if heading in groups:
                lines += ["", f"**{heading}:** {', '.join(row.short for row in groups[heading].values())}"]
        own = [row for names in groups.values() for row in names.values() if len(users[row]) == 1]
        lines += _table(("flag", "what for", "default"), [(row.flag, row.what, row.default) for row in own])
        shared = {
            heading: [row.short for row in names.values() if len(users[row]) > 1] for heading, names in groups.items()
        }
        of_topics = [
            f"- {heading}: {', '.join(flags)}"
            for heading, flags in shared.items()
            if flags and heading not in (_topics.NEEDED, _topics.OFTEN)
        ]
        if of_topics:
            lines += ["", "Of several commands:", "", *of_topics]
    lines += ["", "## Flags of several commands"]
    for topic in dict.fromkeys(_topics.TOPIC.values()):
        rows = [row for row, names in users.items() if len(names) > 1 and topics[row] == topic]
        if rows:
            cells = [(row.flag, row.what, row.default, ", ".join(users[row])) for row in rows]
            lines += ["", f"### {topic}", *_table(("flag", "what for", "default", "commands"), sorted(cells))]
    lines += ["", "## Names of before", "", "They go on working. A note names the new one."]
    lines += _table(("before", "now", "commands"), _before())
    return "\n".join(lines) + "\n"


def _before() -> list[tuple[str, ...]]:
    """The rows of the flags that had another name."""
    users = collections.defaultdict(list)
    for command in cli.COMMANDS:
        values = _flags.defaults(importlib.import_module(f"tftrt_tools.command_line.commands.{command}"))
        for old, new in _older.names(command, values).items():
            users[f"`--{old}`", f"`--{new}`"].append(command)
    return sorted((old, new, ", ".join(commands)) for (old, new), commands in users.items())


def _groups(command: str) -> dict[str, dict[str, _Row]]:
    """{heading: {flag: its row}} of a command."""
    module = importlib.import_module(f"tftrt_tools.command_line.commands.{command}")
    values, by_place = _flags.defaults(module), _help.places(module)
    shown = [name for name in _help.shown(values) if name not in _OF_ALL]
    return {
        heading: {name: _row(values[name], by_place) for name in names}
        for heading, names in _topics.grouped(command, shown).items()
    }


def _row(flag: Any, by_place: Collection[str]) -> _Row:
    form, default = f"`{_help.form(flag, by_place)}`", _help.default(flag)
    return _Row(
        flag=form.replace("|", "\\|"),
        short=form.partition("=")[0].rstrip("`") + "`",
        what=_cell(_help.words(flag)),
        default=f"`{default}`" if default else "",
    )


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return ["", f"| {' | '.join(header)} |", "|" + "---|" * len(header), *lines] if lines else []


def _cell(words: str) -> str:
    """Text as a cell. What Markdown would take as its own is escaped, except in `code`."""
    parts = re.split(r"(`[^`]*`)", words)
    parts[::2] = [re.sub(r"([\\*<])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(text())
