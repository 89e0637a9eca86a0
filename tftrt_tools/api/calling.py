"""Calls a command for its result: arguments become its flags, so that names, defaults and checks are the command's own."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.api import displays, given
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _calling, _flags, _output

if TYPE_CHECKING:
    from absl import flags

_LOG = logging.getLogger("tftrt_tools")
# Their results name commands that do the same again, and they go on from files that they keep.
_NAME_FILES = ("tune", "optimize")
# Commands set environment variables and a listener of progress for a while: one runs at a time.
_turn = threading.RLock()


def result(command: str, models: Sequence[given.Path], arguments: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    """Run a command. Args: models: its arguments by place. arguments: those of the function's own signature, and `named` the others, by
    the names of flags. Returns: its result. Raises: TftrtError, with the result where there is one."""
    displays.register()
    module = _calling.module(command)
    with _turn, _worded(), contextlib.ExitStack() as stack:
        known = _flags.defaults(module)
        given.check(command, known, named)
        given.check_once(command, known, {**arguments, **named})
        asked, written = _with_files(command, known, {**arguments, **named}, stack)
        argv = [*given.words(command, known, asked), "--", *(place(command, one) for one in models)]
        with told(), errors.told_as(written):
            return _calling.result(command, argv)


@contextlib.contextmanager
def with_alarm() -> Iterator[None]:
    """For a command that ends its steps by SIGALRM: the program's own handler is back afterwards. Raises: UsageError in another thread than
    the main one, which gets no signals."""
    if threading.current_thread() is not threading.main_thread():
        raise errors.UsageError(
            "optimize() ends its steps by signals, which only the main thread gets", "call it there"
        )
    before = signal.getsignal(signal.SIGALRM)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)


def place(command: str, model: Any) -> str:
    """The path of a model. Raises: UsageError for what is none."""
    if not isinstance(model, (str, os.PathLike)):
        raise errors.UsageError(
            f"{command}() takes the path of a model, and a {type(model).__name__} came",
            "save it first: model.export('DIR') of Keras, tf.saved_model.save(model, 'DIR')",
        )
    return os.fspath(model)


def _with_files(
    command: str, known: flags.FlagValues, asked: Mapping[str, Any], stack: contextlib.ExitStack
) -> tuple[dict[str, Any], dict[pathlib.Path, pathlib.Path]]:
    """The arguments, with paths in place of arrays. Returns: also {path: what errors call it}."""
    arrays = {
        name: value
        for name, value in asked.items()
        if name in (*given.ROWS, *given.ANSWERS) and not given.is_path(value)
    }
    if not arrays:
        return dict(asked), {}
    if command in _NAME_FILES:
        name = next(iter(arrays))
        raise errors.UsageError(
            f"{command}({name}=…) takes a path: the commands that it runs and prints name it",
            f"np.savez('{name}.npz', image=array) writes arrays to a file",
        )
    folder = stack.enter_context(scratch.folder("given"))
    paths = {
        name: given.write_answers(name, value, folder)
        if name in given.ANSWERS
        else given.write_rows(name, value, folder, _most(command, known, name, asked))
        for name, value in arrays.items()
    }
    _calling.TEMPORARY.update(paths.values())
    stack.callback(_calling.TEMPORARY.difference_update, paths.values())
    return {**asked, **paths}, {pathlib.Path(path): pathlib.Path(f"({name})") for name, path in paths.items()}


def _most(command: str, known: flags.FlagValues, name: str, asked: Mapping[str, Any]) -> int:
    """How many rows the command will use at most, 0 for all."""
    most = 1
    for flag in given.ROWS[name]:
        if flag not in known:
            return 0
        value = asked.get(flag)
        if value is None:
            value = known[flag].value
        if isinstance(value, bool) or not str(value).isdecimal():
            return 0  # the command will say what is wrong with it
        most *= int(value)
    return most if given.ROWS[name] else 0


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Inside the block nothing is printed on stdout. Notes go to the log of this package, and to stderr where that is a terminal. What a
    user can cause is raised as a TftrtError."""
    with _worded(), _output.tables_to(io.StringIO()), progress.notes_to(_noted), errors.translated():
        yield


@contextlib.contextmanager
def _worded() -> Iterator[None]:
    """Errors say their mend, too, where Python prints them."""
    try:
        yield
    except errors.Ending as error:
        error.args = (f"{error.cause}; {error.mend}" if error.mend else error.cause,)
        raise


def _noted(text: str) -> None:
    _LOG.info("%s", text)
    if sys.stderr is not None and sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
