"""How the result of a command shows itself: as JSON, in a line, as the command's table, as its page.

The room that computes a result does not know the tables and pages of the commands. They are put here by whoever knows both (`showing`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from tftrt_tools.base import errors, terminal

# Pixels of a page in a notebook.
_HEIGHT = 640


class Document(Protocol):
    """A result that can be written as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        ...


@dataclasses.dataclass(frozen=True)
class Ways:
    """table: what its command prints of a result. page: its HTML page, None where the command has none."""

    table: Callable[[Any], str]
    page: Callable[[Any], str] | None = None


_WAYS: dict[str, Ways] = {}


def showing(ways: Mapping[str, Ways]) -> None:
    """Let results of these classes, "module.class", show themselves so."""
    _WAYS.update(ways)


def _ways(kind: type) -> Ways | None:
    return _WAYS.get(f"{kind.__module__}.{kind.__qualname__}")


def json_text(document: Document) -> str:
    """`to_dict` as JSON, with a line's end behind it. Raises: TftrtError where that is no JSON: a document may be another package's."""
    try:
        text = json.dumps(document.to_dict(), indent=2, sort_keys=False)
    except (TypeError, ValueError) as error:
        kind = type(document)
        raise errors.TftrtError(
            f"the result {kind.__module__}.{kind.__qualname__} is no JSON: {error}",
            "its to_dict() has to give plain values",
        ) from error
    # JSON escapes control characters by itself, all but one.
    return text.replace("\x7f", "\\u007f") + "\n"


class Result:
    """Base of the results of commands. They are dataclasses with `repr=False`: theirs would fill pages."""

    # What document this is.
    document: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON takes."""
        raise NotImplementedError

    def to_json(self) -> str:
        """What the command writes with --json."""
        return json_text(self)

    def summary(self) -> str:
        """The result in a line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {terminal.shown(self.summary())}>"

    def __str__(self) -> str:
        """What the command prints."""
        ways = _ways(type(self))
        return ways.table(self) if ways else repr(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython: the table."""
        printer.text(repr(self) if cycle else str(self))

    def _repr_html_(self) -> str | None:
        """For notebooks: the command's page, in a frame of its own, so that its style stays there and nothing in it runs. None where there
        is no page; the table is shown then."""
        ways = _ways(type(self))
        if ways is None or ways.page is None:
            return None
        # The page may ask the models, which may be gone by now.
        with contextlib.suppress(errors.TftrtError, OSError):
            page = html.escape(ways.page(self), quote=True)
            return f'<iframe sandbox="" style="width: 100%; height: {_HEIGHT}px; border: 0" srcdoc="{page}"></iframe>'
        return None
