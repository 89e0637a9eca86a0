"""What is printed and shown in pages: names and texts of models, logs and servers are written by others.

A control character among them could set a terminal's title or clipboard, delete lines, or show a name backwards. `shown` writes it as an
escape. All that a command prints goes through `guarded` streams, or through a `console`, whose own colours stay.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

# C0 without tab and line feed, DEL, C1; the ends of lines and paragraphs that only Unicode knows; what turns the direction of text;
# halves of characters, which no file can hold.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    r"""The text with each control character as Python writes it: \x1b."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def counted(number: int, noun: str) -> str:
    """Such as "1 engine op" or "2 engine ops"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Guarded:
    """A text stream to which control characters are written as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        self.unguarded.write(shown(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def unguarded(stream: TextIO) -> TextIO:
    """The stream itself, for data that a program reads, and for a console, which guards its own texts."""
    return stream.unguarded if isinstance(stream, _Guarded) else stream


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """In this block sys.stdout and sys.stderr are guarded. After an exception they stay so: Python prints its traceback there."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Guarded(unguarded(stream)) for stream in kept)
    yield
    sys.stdout, sys.stderr = kept


def console(stream: TextIO, width: int | None = None) -> Console:
    """A rich console that prints texts as they are: no markup in brackets, no :emoji:, and no control characters but its own."""
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def print(self, *objects: object, **options: Any) -> None:
            super().print(*(shown(one) if isinstance(one, str) else one for one in objects), **options)

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control or not _CONTROL.search(part.text) else Segment(shown(part.text), part.style)

    return Plain(
        file=unguarded(stream),
        width=width,
        highlight=False,
        soft_wrap=False,
        markup=False,
        emoji=False,
        # In a notebook rich would display what is meant for `stream`, and FORCE_COLOR is about terminals.
        force_jupyter=False,
        force_terminal=False if isinstance(stream, io.StringIO) else None,
    )
