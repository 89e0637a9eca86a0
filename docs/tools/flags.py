"""Writes docs/flags.md: every command's flags, with their defaults and help, as the commands define them.

Run from the repository's root: python -m docs.tools.flags
"""

from __future__ import annotations

import collections
import importlib
import pathlib
import re
from typing import TYPE_CHECKING, Any

from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _flags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = pathlib.Path(__file__).resolve().parents[1] / "flags.md"
_HEAD = """# Flags

Each flag of each command, in the words of `tftrt COMMAND --help`. `python -m docs.tools.flags` writes this page from the commands.

Every command takes `--help`, `--json=FILE` (the result as JSON; `-` for stdout) and `--flagfile=FILE` (flags from a file, one a line).
A flag that several commands have stands once, in the [last table](#flags-of-several-commands)."""
_OF_ALL = ("help", "json")


def text() -> str:
    """The page."""
    commands: dict[str, list[tuple[str, str, str]]] = {name: list(_rows(name)) for name in cli.COMMANDS}
    users = collections.defaultdict(list)
    for command, rows in commands.items():
        for row in rows:
            users[row].append(command)
    lines = [_HEAD]
    for command, rows in commands.items():
        about = cli.COMMANDS[command]
        lines += ["", f"## {command}", "", f"{about[0].upper()}{about[1:]}."]
        lines += _table(("flag", "what for", "default"), (row for row in rows if len(users[row]) == 1))
        if shared := [row[0] for row in rows if len(users[row]) > 1]:
            lines += ["", f"Of several commands: {', '.join(shared)}"]
    common = sorted((*row, ", ".join(names)) for row, names in users.items() if len(names) > 1)
    lines += ["", "## Flags of several commands", *_table(("flag", "what for", "default", "commands"), common)]
    return "\n".join(lines) + "\n"


def _rows(command: str) -> Iterator[tuple[str, str, str]]:
    """(flag, what for, default) of a command, by name."""
    values = _flags.parse(command, importlib.import_module(f"tftrt_tools.command_line.commands.{command}"), [])[0]
    for name in sorted(values):
        flag = values[name]
        if flag.name == name and name not in _OF_ALL:
            yield f"`--{'[no]' * flag.boolean}{name}`", _cell(flag.help), _default(flag)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return ["", f"| {' | '.join(header)} |", "|" + "---|" * len(header), *lines] if lines else []


def _cell(words: str) -> str:
    """Text as a cell: one line. What Markdown would take as its own is escaped, except in `code`."""
    parts = re.split(r"(`[^`]*`)", " ".join(words.split()))
    parts[::2] = [re.sub(r"([\\*<])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def _default(flag: Any) -> str:
    return "" if flag.default in (None, False, [], "") else f"`{flag.default_as_str.strip(chr(39))}`"


if __name__ == "__main__":
    PAGE.write_text(text())
