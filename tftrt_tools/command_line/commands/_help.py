"""The help of a command: its own words, then its flags in groups."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import choices as choices_of
from tftrt_tools.command_line.commands import _topics

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType

_INDENT, _WIDTH, _NAME = 30, 110, 26
# absl says so of a flag that may be given several times; here it is said in one word.
_REPEAT = re.compile(r";\s*repeat this option to specify a list of values$")
# {flag: its usual values}. Capitals do not matter, and some commands take a list.
_OFFERED = {
    "precision": choices_of.PRECISIONS,
    "calibration_method": ("auto", *choices_of.CALIBRATION_METHODS),
    "server_image": ("local",),
}
_CHOICES = re.compile(r"^<([^<>]+)>: (?s:(.*))$")


def places(command: object) -> tuple[str, ...]:
    """The names of the flags of a command (its module) that are given by place."""
    found: tuple[str, ...] = getattr(command, "ARGUMENTS", ())
    return found


def own(values: flags.FlagValues) -> list[str]:
    """The names of all flags: an older name of a flag is no flag of its own."""
    return [name for name in sorted(values) if values[name].name == name]


def shown(values: flags.FlagValues) -> list[str]:
    """The names of the flags that a help lists."""
    return [name for name in own(values) if name not in _topics.UNLISTED]


def form(flag: flags.Flag, by_place: Collection[str] = ()) -> str:
    """How it is written: --[no]name, --name=a|b, --name; NAME. Args: by_place: names of the flags that are given by place."""
    if flag.name in by_place:
        return str(flag.name).upper()
    if flag.boolean:
        return f"--[no]{flag.name}"
    few = choices(flag)
    return f"--{flag.name}={'|'.join(few)}" if few else f"--{flag.name}"


def words(flag: flags.Flag) -> str:
    """What it is for, in one line, without its choices and its default."""
    text = " ".join(flag.help.split())
    if few := _CHOICES.match(text):
        text = few[2]
    return _REPEAT.sub("; may be repeated", text)


def default(flag: flags.Flag) -> str:
    """Its default as text; "" where it is none, off or nothing, and where the help says it in words."""
    if flag.boolean:
        return "on" if flag.default else ""
    if flag.default in (None, "", []) or "by default" in flag.help:
        return ""
    return str(flag.default_as_str).strip("'")


def choices(flag: flags.Flag) -> tuple[str, ...]:
    """The values that it takes, where these are a few."""
    if flag.boolean:
        return ()
    if found := _CHOICES.match(flag.help):
        return tuple(found[1].split("|"))
    return ()


def offered(flag: flags.Flag) -> tuple[str, ...]:
    """The values that a shell may offer for it: its choices, or the usual ones where it takes a text."""
    return choices(flag) or _OFFERED.get(flag.name, ())


def text(name: str, command: ModuleType, values: flags.FlagValues) -> str:
    """The help of a command."""
    lines = [(command.__doc__ or "").strip()]
    for heading, names in _topics.grouped(name, shown(values)).items():
        lines += ["", f"{heading}:"]
        for one in names:
            lines += _entry(values[one], places(command))
    lines += ["", "--flagfile=FILE reads flags from a file, one a line."]
    return "\n".join(lines)


def _entry(flag: flags.Flag, by_place: Collection[str]) -> list[str]:
    how, what = form(flag, by_place), words(flag)
    if given := default(flag):
        what += f" [{given}]"
    indent = " " * _INDENT
    lines = textwrap.wrap(what, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    if len(how) <= _NAME:
        return [f"  {how:<{_INDENT - 2}}{lines[0].strip()}", *lines[1:]] if lines else [f"  {how}"]
    return [f"  {how}", *lines]
