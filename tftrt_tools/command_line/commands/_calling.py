"""Runs a command in this process: from the words that a user would type, or for its result."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from tftrt_tools.base import errors, op_libraries
from tftrt_tools.base.process import environment
from tftrt_tools.command_line.commands import _elsewhere_flags, _flags

if TYPE_CHECKING:
    from types import ModuleType

    from absl import flags


class Command(Protocol):
    """The module of a command that programs can call, too."""

    def define(self, values: flags.FlagValues) -> None:
        """Define its flags."""

    def result(self, values: flags.FlagValues, positional: list[str]) -> Any:
        """Do the work. Returns: a results.Result. Prints nothing. Raises: TftrtError where there is no result."""

    def show(self, done: Any, values: flags.FlagValues) -> None:
        """Print a result."""

    def write(self, done: Any, values: flags.FlagValues) -> object:
        """Write the files that the flags name. Raises: TftrtError, OSError."""

    def failure(self, done: Any, values: flags.FlagValues) -> errors.TftrtError | None:
        """What ends the command with another exit code than 0 though there is a result; None where nothing does."""


# Files that hold a program's arrays for one call. What repeats a command cannot name them.
TEMPORARY: set[str] = set()
# Commands that run: one may call others as its steps.
_running: list[str] = []


def is_step() -> bool:
    """Whether the command that runs is a step of another one."""
    return len(_running) > 1


def call(name: str, argv: Sequence[str]) -> int:
    """Parse the words and run the command. Args: name: of the command. argv: the words behind it. Returns: the exit code.

    Raises: TftrtError, and what the command raises.
    """
    command = module(name)
    values, positional = _flags.parse(name, command, argv)
    if values is None or positional is None:
        return errors.EXIT_DONE
    _flags.check_needed(name, command, values, positional)
    if place := _elsewhere_flags.asked(name, values):
        from tftrt_tools.command_line.commands import _elsewhere

        return _elsewhere.run(name, values, positional, place)
    with _runs(name, values):
        code: int = command.run(values, positional)
        return code


def result(name: str, argv: Sequence[str]) -> Any:
    """Parse the words, do the work, and write the files that the flags name. Returns: the result.

    Raises: TftrtError wherever the command ends with another exit code than 0, with the `result` where there is one.
    """
    command = cast("Any", module(name))
    values, positional = _flags.parse(name, command, argv)
    if values is None or positional is None:
        raise errors.UsageError("--help is for the command line", f"help(tftrt_tools.{name}) explains the arguments")
    _flags.check_needed(name, command, values, positional)
    _elsewhere_flags.check_here(name, values)
    with _runs(name, values):
        done = command.result(values, positional)
        try:
            lost = _written(command, done, values)
            # That a check failed matters more than a file.
            if wrong := command.failure(done, values) or lost:
                raise wrong
        except errors.Ending as error:
            error.result = done
            raise
        return done


def _written(command: Any, done: object, values: flags.FlagValues) -> errors.TftrtError | None:
    """Write the files. Returns: why one could not be written."""
    try:
        with errors.translated():
            command.write(done, values)
    except errors.TftrtError as error:
        return error
    return None


def table(name: str, done: object) -> None:
    """Print a result as its command does without flags."""
    command = cast("Any", module(name))
    command.show(done, _flags.defaults(command))


def exit_code(wrong: errors.TftrtError | None) -> int:
    """Of `Command.failure`."""
    return wrong.exit_code if wrong else errors.EXIT_DONE


def module(name: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(f"tftrt_tools.command_line.commands.{name}")


@contextlib.contextmanager
def _runs(name: str, values: flags.FlagValues) -> Iterator[None]:
    with environment.variables(op_libraries.variables(values.op_library if "op_library" in values else [])):
        _running.append(name)
        try:
            yield
        finally:
            _running.pop()
