"""Progress of long steps. The step says where it is; whoever listens (a terminal, a parent process) shows it."""

import contextlib

_listener = None


def say(text, done=None, total=None):
    """Report that the step `text` runs; `done` of `total` parts where they can be counted."""
    if _listener is not None:
        _listener(text, done, total)


def note(text):
    """Tell what stays to be read, a line on stderr."""
    import sys

    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def listening(listener):
    """Send what is said inside the block to `listener(text, done, total)`."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextlib.contextmanager
def on_terminal():
    """Show progress as one line at the bottom of the terminal (stderr); silent where stderr is no terminal."""
    import sys

    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(text, done, total):
            bar.update(task, description=text, completed=done or 0, total=total)

        with listening(show):
            yield
