"""absl flags for one command at a time, each with a FlagValues of its own, so that `--help` lists that command's flags only."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import os
import re
from typing import TYPE_CHECKING, Any, Protocol

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _elsewhere_flags, _help, _older, _places, _topics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _Defining(Protocol):
    """The module of a command."""

    __name__: str

    def define(self, values: flags.FlagValues) -> None:
        """Define its flags."""


# Commands have different names for these: {a name of another command: (the name here, what it is)}.
_MEANT = {"data": ("calibration_data", "names inputs"), "calibration_data": ("data", "names inputs")}


def parse(name: str, command: ModuleType, argv: Sequence[str]) -> tuple[flags.FlagValues | None, list[str] | None]:
    """Parse `argv` with the flags of module `command`; file:// becomes a path, and its ARGUMENTS are names of flags that may be given by
    place. Checks, before the work, that no path is of another machine (_places), that the files named by --json and by the command's
    OUTPUTS (names of flags) can be made, and that none of them, nor --log_file, is one that the command reads.

    Returns: (FlagValues, positional arguments), or (None, None) after printing the help.

    Raises: UsageError for unknown flags, values that a flag refuses, and paths where no file can be made.
    """
    values = _defined(name, command)
    argv = _places.with_local_flagfile(argv)
    try:
        # Once: a file of flags may be a pipe.
        argv = values.read_flags_from_files(getattr(command, "older_flags", list)(argv))
        if older := _older.note(name, values, argv):
            progress.note(f"note: {older}")
        _older.check(name, values, argv)
        positional = values([name, *argv])[1:]
    except flags.UnrecognizedFlagError as error:
        meant, what = _MEANT.get(error.flagname, ("", ""))
        hint = f"--{meant} {what} here; " if meant in values else ""
        said = _older.renamed(" ".join(str(error).split()), values)
        raise errors.UsageError(said, f"{hint}`tftrt {name} --help` lists the flags") from None
    except flags.Error as error:
        raise errors.UsageError(
            _refused(" ".join(str(error).split())), f"`tftrt {name} --help` lists the flags"
        ) from None
    for flag in _help.own(values):
        if isinstance(values[flag].value, float) and math.isnan(values[flag].value):
            raise errors.UsageError(f"--{flag}=nan is no number", f"`tftrt {name} --help` says what it takes")
    if values.help:
        print(_help.text(name, command, values))
        return None, None
    positional = _named_by_place(name, values, _help.places(command), positional)
    _places.make_local(values, positional, (*getattr(command, "URLS", ()), *_elsewhere_flags.urls(name)))
    if not getattr(command, "CHECKS_ITS_PLACES", False):
        check_places(values, getattr(command, "OUTPUTS", ()))
    written = {"json", "log_file", *getattr(command, "OUTPUTS", ())}
    _check_unread(values, positional, sorted(written.intersection(_help.own(values))))
    return values, positional


def check_places(values: flags.FlagValues, names: Sequence[str]) -> None:
    """Refuse places where the files of --json and of these flags cannot be made. A command with CHECKS_ITS_PLACES asks for it itself,
    together with its other checks. Raises: UsageError."""
    outputs = (values[flag].value for flag in ("json", *names))
    whole_file.check_places(path for path in outputs if path and path != "-")


def defaults(command: _Defining) -> flags.FlagValues:
    """The flags of a command as they are when the user gives none."""
    values = _defined(command.__name__.rpartition(".")[2], command)
    values.mark_as_parsed()
    return values


def _defined(name: str, command: _Defining) -> flags.FlagValues:
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    flags.DEFINE_boolean("help", False, "print this help", short_name="h", flag_values=values)
    flags.DEFINE_string("json", None, "write the result as JSON to this file; - for stdout", flag_values=values)
    command.define(values)
    _elsewhere_flags.define(name, values)
    for old, new in _older.names(name, values).items():
        values[old] = values[new]  # --help and files of flags skip a name that is not the flag's own
    return values


def _named_by_place(name: str, values: flags.FlagValues, names: Sequence[str], positional: list[str]) -> list[str]:
    """Give the first arguments to the flags `names`, in their order. Returns: the arguments behind them. Raises: UsageError."""
    for flag, word in zip(names, positional, strict=False):
        if values[flag].present:
            raise errors.UsageError(
                f"unexpected argument {word!r}: --{flag}={values[flag].value} is given", "give it once"
            )
        values[flag].parse(word)
        values[flag].using_default_value = False
        values[flag].present += 1
    return positional[len(names) :]


def check_needed(name: str, command: ModuleType, values: flags.FlagValues, positional: Sequence[str]) -> None:
    """Name all that is missing at once; where it is one thing, the command says why it needs it. A command with NAMES_WHAT_IS_MISSING names
    it itself, after it has looked at other things. Raises: UsageError."""
    # Nothing is written then.
    if any(flag in values and values[flag].value for flag in ("check", "dry_run")):
        return
    if not getattr(command, "NAMES_WHAT_IS_MISSING", False) and _topics.needed(name):
        by_place = _help.places(command)
        places = () if by_place else _places_of(name, command)[len(positional) :]
        require(name, values, _topics.needed(name), places, by_place, least=2)


def _places_of(name: str, command: ModuleType) -> list[str]:
    """The arguments by place that the first line of the help asks for, such as ["MODEL"]."""
    words = (command.__doc__ or "").partition("\n")[0].partition(f"tftrt {name} ")[2].split()
    return list(itertools.takewhile(str.isupper, words))


def require(
    name: str,
    values: flags.FlagValues,
    names: Sequence[str],
    places: Sequence[str] = (),
    by_place: Sequence[str] = (),
    least: int = 1,
) -> None:
    """Raise UsageError where `least` or more are missing: of these flags of command `name`, with arguments by place that are. Args:
    by_place: those of the flags that are given by place."""
    absent = [flag for flag in names if values[flag].value in (None, "", [])]
    missing = [*places, *(flag.upper() if flag in by_place else f"--{flag}" for flag in absent)]
    if len(missing) < least:
        return
    what = f"{', '.join(missing[:-1])} and {missing[-1]} are" if missing[1:] else f"{missing[0]} is"
    raise errors.UsageError(f"{what} missing", f"`tftrt {name} --help` begins with what is needed, and shows examples")


def _check_unread(values: flags.FlagValues, positional: Sequence[str], written: Sequence[str]) -> None:
    """Refuse to write a result over a file that is an argument or the value of another flag. Raises: UsageError."""
    given = [*positional]
    for flag in set(_help.own(values)).difference(written):
        value = values[flag].value
        given += value if isinstance(value, list) else [value]
    there = [one for one in given if isinstance(one, str) and os.path.isfile(one)]
    for flag in written:
        path = values[flag].value
        if not path or not os.path.isfile(path) or whole_file.is_stream(path):
            continue
        for one in (*there, *_weights(there)):
            if os.path.samefile(path, one):
                raise errors.UsageError(
                    f"--{flag}={path} would write over {one}, which the command reads", "give the result another name"
                )


def _weights(paths: Sequence[str]) -> list[str]:
    """The files beside ONNX files that hold their weights."""
    from tftrt_tools.models.kinds import table  # next to no command needs it here

    found: list[str] = []
    for path in paths:
        with contextlib.suppress(errors.TftrtError):  # the command will say what is wrong with the file
            found += table.kind(path).weights(path)
    return found


def _refused(said: str) -> str:
    """What absl says of a value, without Python's words for a text that is no number."""
    found = re.match(r"flag (--\w+=.*): (invalid literal for int|could not convert string to float)", said)
    return f"{found[1]} is no {'whole ' if found[2].endswith('int') else ''}number" if found else said


def listed(values: Sequence[str]) -> str:
    """The text that a flag of a list reads as `values`; one with a comma is quoted, as in CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def words(flag: flags.Flag, value: Any = None) -> list[str]:
    """The words of a command line that give a flag its value, or `value` instead."""
    value = flag.value if value is None else value
    if isinstance(flag, flags.MultiFlag):
        return [f"--{flag.name}={one}" for one in value]
    if isinstance(value, bool):
        return [f"--{flag.name}" if value else f"--no{flag.name}"]
    return [f"--{flag.name}={listed(value) if isinstance(value, list) else value}"]


def one_argument(command: str, positional: list[str], what: str) -> str:
    """The single positional argument, or a UsageError."""
    return arguments(command, positional, [what])[0]


def arguments(command: str, positional: list[str], names: Sequence[str]) -> list[str]:
    """The positional arguments, one for each of `names`, or a UsageError."""
    if len(positional) != len(names):
        got = f"{len(positional)} given" + (": " + " ".join(positional) if positional else "")
        raise errors.UsageError(
            f"usage: tftrt {command} {' '.join(names)} [--flags]; {got}", f"`tftrt {command} --help` explains them"
        )
    return positional
