"""Where things stand in a text-form protobuf: the line of each field, and the place of a message's body, so that one message can be
replaced and everything around it stays as it was, comments included. Syntax errors are protobuf's to find; this reads sound text."""

import dataclasses
import re

_TOKEN = re.compile(r"""(?P<skip>\s+|\#[^\n]*) | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*') | (?P<mark>[{}<>\[\]:,;])
                        | (?P<word>[^\s{}<>\[\]:,;\#"']+) | (?P<other>.)""", re.VERBOSE | re.DOTALL)
_CLOSING = {"{": "}", "<": ">"}


@dataclasses.dataclass(frozen=True)
class Field:
    """A field, or one element of a repeated one. line: 1 for the first; value: its text, None of a message; fields: of a message;
    span, body: (start, end) of the field with its name, and of a message's inside, in characters of the text."""

    name: str
    line: int
    value: str | None = None
    fields: tuple = ()
    span: tuple | None = None
    body: tuple | None = None

    def all(self, name):
        """The fields `name`, in the text's order."""
        return [field for field in self.fields if field.name == name]

    def first(self, *names):
        """The field behind a path of names, or None."""
        found = self
        for name in names:
            found = next(iter(found.all(name)), None) if found else None
        return found

    def line_of(self, *names):
        """The line of the field behind a path of names; this field's own where there is none."""
        found = self.first(*names)
        return found.line if found else self.line


def scan(text):
    """The text as a Field without a name that holds the outermost fields."""
    tokens = [(match.lastgroup, match[0], match.start()) for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    reader = _Reader(text, tokens)
    return Field("", 1, fields=tuple(reader.fields("")), body=(0, len(text)))


class _Reader:
    def __init__(self, text, tokens):
        self._text, self._tokens, self._at = text, tokens, 0

    def _peek(self):
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self):
        token = self._tokens[self._at] if self._at < len(self._tokens) else ("", "", len(self._text))
        self._at += 1
        return token

    def fields(self, closing):
        found = []
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
            found += [dataclasses.replace(one, span=(start, end)) for one in values]
        return found

    def _end(self):
        """Where the token before this ends."""
        _, token, start = self._tokens[min(self._at, len(self._tokens)) - 1]
        return start + len(token)

    def _until(self, closing):
        while self._at < len(self._tokens):
            token = self._take()[1]
            yield token
            if token == closing:
                return

    def _line(self, start):
        return self._text.count("\n", 0, start) + 1

    def _values(self, name, line):
        if self._peek() != "[":
            return [self._value(name, line)]
        self._take()
        found = []
        while self._at < len(self._tokens) and self._peek() != "]":
            if self._peek() == ",":
                self._take()
                continue
            found.append(self._value(name, self._line(self._tokens[self._at][2])))
        self._take()
        return found

    def _value(self, name, line):
        kind, token, start = self._take()
        if token in _CLOSING:
            fields = tuple(self.fields(_CLOSING[token]))
            return Field(name, line, fields=fields, body=(start + 1, self._take()[2]))
        if kind == "string":
            token = token[1:-1]
            while self._at < len(self._tokens) and self._tokens[self._at][0] == "string":  # neighbours are one string
                token += self._take()[1][1:-1]
        return Field(name, line, token)
