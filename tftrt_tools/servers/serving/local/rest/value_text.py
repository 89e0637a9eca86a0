"""JSON values as the server's error messages print them: RapidJSON's PrettyWriter, four spaces a level."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable

from tftrt_tools.servers.serving.local.rest import decimals, grisu

_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FLOAT_LIMIT = 3.4028234e38  # RapidJSON 1.1.0, Value::IsFloat
_LEAST = sys.float_info.min  # smaller ones are 0 to the server
_NAMES = {type(None): "Null", list: "Array", str: "String", int: "Number", float: "Number"}


def type_name(value: object) -> str:
    """RapidJSON's name of a value's type: Null, False, True, Object, Array, String or Number."""
    if isinstance(value, bool):
        return "True" if value else "False"
    return _NAMES.get(type(value), "Object")


def quoted(text: str) -> str:
    """A str as a JSON string, with quotes; everything but quotes, backslashes and control characters stays as it is."""
    return '"' + _SPECIAL.sub(_escape, text) + '"'


def text(value: object) -> str:
    """One JSON value (see parse.parse) as text.

    A number by itself is printed as results are (decimals); within a list or an object as RapidJSON prints doubles. RapidJSON
    stops at a NaN or an infinity inside a list or an object, and so does this.
    """
    if type(value) is float:
        return decimals.text(value, single=-_FLOAT_LIMIT <= value <= _FLOAT_LIMIT)
    parts: list[str] = []
    try:
        _write(value, "\n", parts.append)
    except _Unprintable:
        pass
    return "".join(parts)


class _Unprintable(Exception):
    pass


def _write(value: object, line: str, put: Callable[[str], object]) -> None:
    """line: a line break with the indentation of the place where `value` stands."""
    inner = line + "    "
    if isinstance(value, dict):
        put("{")
        for i, (key, item) in enumerate(value.items()):
            put(("," if i else "") + inner + quoted(key) + ": ")
            _write(item, inner, put)
        put(line + "}" if value else "}")
    elif isinstance(value, list):
        put("[")
        for i, item in enumerate(value):
            put(("," if i else "") + inner)
            _write(item, inner, put)
        put(line + "]" if value else "]")
    else:
        put(_scalar(value))


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _double(value) if isinstance(value, float) else str(value)


def _double(value: float) -> str:
    """RapidJSON's digits in its notation (its dtoa.h, Prettify)."""
    if not math.isfinite(value):
        raise _Unprintable
    if abs(value) < _LEAST:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    digits, exponent = grisu.digits(abs(value))
    point = len(digits) + exponent  # the value is 0.DIGITS * 10**point
    if exponent >= 0 and point <= 21:
        number = digits + "0" * exponent + ".0"
    elif 0 < point <= 21:
        number = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        number = "0." + "0" * -point + digits
    else:
        number = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + f"e{point - 1}"
    return ("-" if value < 0 else "") + number


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"
