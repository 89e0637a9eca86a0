"""What a back end has made, for people. A result without a table of its own prints its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.backends.protocol import Made
from tftrt_tools.models.kinds.plan import kind as plan_kind

if TYPE_CHECKING:
    from tftrt_tools.tensorrt.plans.result import Built

# Prints a result. Args: the result, where, and the engine cache, None where none was used.
Table = Callable[[Any, Console, "Mapping[str, Any] | None"], None]
_tables: dict[str, Table] = {}


def table(document: str) -> Callable[[Table], Table]:
    """Decorates what prints the results of a kind of document (records.Record.document)."""

    def add(function: Table) -> Table:
        _tables[document] = function
        return function

    return add


def show(done: Made, console: Console, cache: Mapping[str, Any] | None) -> None:
    """Print a result. Args: cache: of the engines; None where none was used."""
    if own := _tables.get(getattr(done, "document", "")):
        own(done, console, cache)
        return
    for line in done.text():
        console.print(line, soft_wrap=True)


def failure(done: Made) -> errors.TftrtError | None:
    """CheckFailed where an engine was refused, because nobody asked for less than all of them."""
    if done.complete:
        return None
    for one in getattr(done, "unbuilt", ()):
        if one.refused:
            return errors.CheckFailed(f"{one.name} has no engine and runs in TensorFlow: {one.reason}", one.mend)
    return errors.CheckFailed("not all engines that were asked for are there", "the result names those that are not")


@table("plan build")
def _plan(done: Built, console: Console, cache: Mapping[str, Any] | None) -> None:
    rows = [(number, plan_kind.text(one)) for number, one in enumerate(done.profiles)]
    console.print(_output.table("Profiles", [">profile", "shapes"], rows))
    *lines, last = done.text()
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)
    console.print(last, soft_wrap=True)
