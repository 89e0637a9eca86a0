"""Finds places in a text-form protobuf: the line of each field, and the place of a message's body, so that one message can be replaced
without a change around it, comments included. protobuf finds syntax errors; this module reads correct text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*) | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*') | (?P<mark>[{}<>\[\]:,;])
                        | (?P<word>[^\s{}<>\[\]:,;\#"']+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# (kind, text, where it starts in characters)
_Token = tuple[str, str, int]
_CLOSING = {"{": "}", "<": ">"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """A field, or one element of a repeated one."""

    name: str
    # 1 for the first of the text.
    line: int
    # Its text; None for a message.
    value: str | None = None
    # Fields of a message, in the text's order.
    fields: tuple[Field, ...] = ()
    # (start, end) of the field with its name, in characters of the text.
    span: tuple[int, int] = (0, 0)
    # (start, end) of a message's inside.
    body: tuple[int, int] = (0, 0)

    def all(self, name: str) -> list[Field]:
        """The fields `name`, in the text's order."""
        return [field for field in self.fields if field.name == name]

    def first(self, *names: str) -> Field | None:
        """The field behind a path of names, or None."""
        field: Field | None = self
        for name in names:
            field = next(iter(field.all(name)), None) if field else None
        return field

    def line_of(self, *names: str) -> int:
        """The line of the field behind a path of names; this field's own line if there is none."""
        found = self.first(*names)
        return found.line if found else self.line


def scan(text: str) -> Field:
    """The text as a Field without a name that holds the outermost fields."""
    tokens = [
        (match.lastgroup or "", match[0], match.start()) for match in _TOKEN.finditer(text) if match.lastgroup != "skip"
    ]
    reader = _Reader(text, tokens)
    return Field(name="", line=1, fields=tuple(reader.fields("")), body=(0, len(text)))


class _Reader:
    def __init__(self, text: str, tokens: Sequence[_Token]) -> None:
        self._text, self._tokens, self._at = text, tokens, 0

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self) -> _Token:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ("", "", len(self._text))
        self._at += 1
        return token

    def fields(self, closing: str) -> list[Field]:
        parsed: list[Field] = []
        while self._at < len(self._tokens) and self._peek() != closing:
            _, name, start = self._take()
            if name == "[":  # the name of an extension, or of the type inside an Any
                name += "".join(self._until("]"))
            if name in ",;":
                continue
            if self._peek() == ":":
                self._take()
            values = self._values(name, self._line(start))
            end = self._end()
            parsed += [dataclasses.replace(value, span=(start, end)) for value in values]
        return parsed

    def _end(self) -> int:
        """Where the previous token ends."""
        _, token, start = self._tokens[min(self._at, len(self._tokens)) - 1]
        return start + len(token)

    def _until(self, closing: str) -> Iterator[str]:
        while self._at < len(self._tokens):
            token = self._take()[1]
            yield token
            if token == closing:
                return

    def _line(self, start: int) -> int:
        return self._text.count("\n", 0, start) + 1

    def _values(self, name: str, line: int) -> list[Field]:
        if self._peek() != "[":
            return [self._value(name, line)]
        self._take()
        tokens = []
        while self._at < len(self._tokens) and self._peek() != "]":
            if self._peek() == ",":
                self._take()
                continue
            tokens.append(self._value(name, self._line(self._tokens[self._at][2])))
        self._take()
        return tokens

    def _value(self, name: str, line: int) -> Field:
        kind, token, start = self._take()
        if token in _CLOSING:
            fields = tuple(self.fields(_CLOSING[token]))
            return Field(name=name, line=line, fields=fields, body=(start + 1, self._take()[2]))
        if kind == "string":
            token = token[1:-1]
            while (
                self._at < len(self._tokens) and self._tokens[self._at][0] == "string"
            ):  # neighbouring strings are one string
                token += self._take()[1][1:-1]
        return Field(name=name, line=line, value=token)
