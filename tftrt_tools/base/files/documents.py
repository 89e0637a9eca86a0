"""Documents that others may have written: JSON and protocol messages as text, of a bounded size and depth. All rooms read them here.

What is wrong with a document is a ValueError in one line, or with `reading` a TftrtError. Python's reader would recurse for each level, and
what reads the values later would recurse again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from google.protobuf import message

    Message = TypeVar("Message", bound=message.Message)

# What `check` takes as a shape.
Shape: TypeAlias = type | list[Any] | Mapping[Any, Any]
# Far above what the tools write: a profile of a large model has some megabytes, and twelve levels.
MOST_BYTES = 256 << 20
MOST_LEVELS = 100
# What code may raise that takes values out of a document: the value is missing, or is of another type.
MISREAD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
_LONGEST_REASON = 200
# Of a protocol message as text: strings and comments, and what opens and closes a level.
_TEXT_PARTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*|[{}<>]')


def parse(
    text: str | bytes, levels: int = MOST_LEVELS, once: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """The values of a JSON text. Args: levels: how deep they may lie. once: json.loads's object_pairs_hook. Raises: ValueError."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        values = json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _deeper(values, levels):
        raise ValueError(f"it is nested deeper than {levels} levels")
    return values


def parse_object(text: str | bytes, levels: int = MOST_LEVELS) -> dict[str, Any]:
    """The object in a JSON text, read as by `parse`. Raises: ValueError."""
    document = parse(text, levels)
    if not isinstance(document, dict):
        raise ValueError("it holds no object")
    return document


def check(values: object, shape: Shape, place: str = "") -> None:
    """Refuse values of other types than those that are read without a look. null stands for a missing value, but for a list.

    Args: shape: a type (float takes whole numbers, too), [shape of each value], {str: shape of each value}, or {key: shape}, where a key
      with a "!" has to be there; keys that it does not name are not looked at. Raises: ValueError, with the place.
    """
    if values is None:
        return
    if isinstance(shape, type):
        numbers = (int, float) if shape is float else (shape,)
        if not isinstance(values, numbers) or isinstance(values, bool) and shape is not bool:
            raise ValueError(f"{place or 'it'} is no {_WORDS[shape]}")
    elif isinstance(shape, list):
        check(values, list, place)
        assert isinstance(values, list)
        for number, item in enumerate(values):
            _check_entry(item, shape[0], f"{place}[{number}]")
    else:
        check(values, dict, place)
        assert isinstance(values, dict)
        every: Shape | None = shape.get(str)
        for key, inner in values.items() if every is not None else ():
            assert every is not None
            _check_entry(inner, every, f"{place}.{key}".lstrip("."))
        for key, expected in shape.items() if every is None else ():
            name = key.removesuffix("!")
            where = f"{place}.{name}".lstrip(".")
            if name != key and values.get(name) is None:
                raise ValueError(f"it has no {name!r}")
            if isinstance(expected, list) and name in values and values[name] is None:
                raise ValueError(f"{where} is null")
            check(values.get(name), expected, where)


def _check_entry(value: object, shape: Shape, place: str) -> None:
    if value is None:
        raise ValueError(f"{place} is null")
    check(value, shape, place)


_WORDS = {str: "text", int: "whole number", float: "number", bool: "truth value", list: "list", dict: "object"}


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file. Raises: OSError; ValueError for one that is too large or no UTF-8."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    return data.decode()


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file. Raises: OSError; ValueError."""
    return parse_object(read_text(path))


class NoMessage(ValueError):
    """A text that is no protocol message. line: where, 0 if it is not known."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


def check_levels(text: str) -> None:
    """Refuse the text of a message that is too large, or nested too deeply for what reads it. Raises: NoMessage."""
    if len(text) > MOST_BYTES:
        raise NoMessage(f"it is larger than {MOST_BYTES >> 20} MiB")
    level = 0
    for part in _TEXT_PARTS.finditer(text):
        level += {"{": 1, "<": 1, "}": -1, ">": -1}.get(part[0], 0)
        if level > MOST_LEVELS:
            raise NoMessage(f"it is nested deeper than {MOST_LEVELS} levels", text.count("\n", 0, part.start()) + 1)


def parse_message(text: str, into: Message, unknown: bool = False) -> Message:
    """A protocol message from its text. Args: unknown: pass over fields that this version does not know. Raises: NoMessage."""
    from google.protobuf import text_format

    check_levels(text)
    try:
        text_format.Parse(text, into, allow_unknown_field=unknown)
    except text_format.ParseError as error:
        raise NoMessage(str(error), error.GetLine() or 0) from None
    except MISREAD as error:  # of text_format itself, for some damaged texts
        raise NoMessage(f"it is no text of a message ({reason(error)})") from None
    return into


@contextlib.contextmanager
def reading(what: str | os.PathLike[str], mend: str) -> Iterator[None]:
    """A context for code that reads a document or takes values out of it. Raises: TftrtError where it cannot be read."""
    try:
        yield
    except MISREAD as error:
        raise errors.TftrtError(f"{os.fspath(what)} is damaged: {reason(error)}", mend) from None


def reason(error: BaseException) -> str:
    """The reason why a document could not be read, in one short line."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError):
        text = f"it has no {text}"
    return (text or type(error).__name__)[:_LONGEST_REASON]


def _deeper(values: object, levels: int) -> bool:
    """Whether values lie deeper than `levels`."""
    here = [values]
    for _ in range(levels + 1):
        here = [
            item
            for value in here
            if isinstance(value, (dict, list))
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not here:
            return False
    return True
