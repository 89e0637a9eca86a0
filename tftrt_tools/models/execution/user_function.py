"""Calls the user's module:function; used in a child process."""

from __future__ import annotations

import importlib
import pathlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import interpreter


def items(reference: str, flag: str) -> Iterator[Any]:
    """The items that a function without arguments yields, one by one.

    Args: reference: "module:function", importable from the current directory. flag: the one that named it, for messages, or "".
    Raises: UsageError, also for what the function itself raises, with its file and line.
    """
    function = find(reference, flag, "a function without arguments that yields its data")
    try:
        yield from function()
    except (errors.TftrtError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise errors.UsageError(
            f"{_named(reference, flag)}: {text(error)}", "the function takes no arguments and yields its data"
        ) from None


def _named(reference: str, flag: str) -> str:
    return f"{flag}={reference}" if flag else reference


def find(reference: str, flag: str, kind: str) -> Callable[..., Any]:
    """The function that "module:function" names, importable from the current directory. Args: flag: for messages; kind: what it should be.

    Raises: UsageError.
    """
    module_name, _, attribute = reference.partition(":")
    try:
        function = getattr(interpreter.own_module(module_name), attribute)
    except (Exception, SystemExit) as error:
        raise errors.UsageError(
            f"{_named(reference, flag)}: {text(error)}", "the module must be importable from here"
        ) from None
    if not callable(function):
        raise errors.UsageError(f"{_named(reference, flag)} is no function", f"name {kind}")
    result: Callable[..., Any] = function
    return result


def text(error: BaseException) -> str:
    """The error in one line, with the last line of the user's code that it went through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, interpreter.__file__)
        and not frame.filename.startswith(("<", importlib.__file__))
    ]
    where = f" ({pathlib.Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
