"""Progress of long steps. A step reports its progress; a listener (a terminal, a parent process) shows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tftrt_tools.base import terminal

if TYPE_CHECKING:
    import rich.progress

Listener = Callable[[str, int | None, int | None], None]
_listener: Listener | None = None
# The line on the terminal.
_shown: rich.progress.Progress | None = None
# Blocks of several threads may begin and end in any order, so each takes away its own.
_noted: list[Callable[[str], None]] = []


def say(text: str, done: int | None = None, total: int | None = None) -> None:
    """Report that the step `text` runs, with `done` of `total` parts if they can be counted."""
    if _listener is not None:
        _listener(text, done, total)


def each(text: str, count: int) -> Iterator[int]:
    """The numbers of `count` parts of a step, from 0; it reports each before it gives it."""
    for number in range(count):
        say(text, number, count)
        yield number


def note(text: str) -> None:
    """Print a line on stderr that stays there, unlike the progress line; or give it to `notes_to`."""
    import sys

    with contextlib.suppress(IndexError):  # another thread may just end its block
        _noted[-1](text)
        return
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def notes_to(function: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, notes go to `function(text)` and not to stderr."""
    _noted.append(function)
    try:
        yield
    finally:
        _noted.remove(function)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the progress reported inside the block to `listener(text, done, total)`."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextlib.contextmanager
def on_terminal() -> Iterator[None]:
    """Show progress as one line at the bottom of the terminal (stderr); silent where stderr is no terminal."""
    import sys

    if not sys.stderr.isatty():
        yield
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn()
    with Progress(*columns, console=terminal.console(sys.stderr), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(text: str, done: int | None, total: int | None) -> None:
            bar.update(task, description=terminal.shown(text), completed=done or 0, total=total)

        global _shown
        before, _shown = _shown, bar
        try:
            with listening(show):
                yield
        finally:
            _shown = before


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Without the line of `on_terminal` inside the block, for what shows more than a line."""
    bar = _shown
    if bar is None:
        yield
        return
    bar.stop()
    try:
        yield
    finally:
        bar.start()
