"""Runs a command in this process, from the words that a user would type."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from tftrt_tools.base import errors, op_libraries
from tftrt_tools.base.process import environment
from tftrt_tools.command_line.commands import _flags

# Commands that run: one may call others as its steps.
_running: list[str] = []


def is_step() -> bool:
    """Whether the command that runs is a step of another one."""
    return len(_running) > 1


def call(name: str, argv: Sequence[str]) -> int:
    """Parse the words and run the command. Args: name: of the command. argv: the words behind it. Returns: the exit code.

    Raises: TftrtError, and what the command raises.
    """
    command = importlib.import_module(f"tftrt_tools.command_line.commands.{name}")
    values, positional = _flags.parse(name, command, argv)
    if values is None:
        return errors.EXIT_DONE
    with environment.variables(op_libraries.variables(values.op_library if "op_library" in values else [])):
        _running.append(name)
        try:
            code: int = command.run(values, positional)
            return code
        finally:
            _running.pop()
