"""Shared by the commands that build engines: the bound on building time, and the messages about engines that were not ready."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from absl import flags
from rich.console import Console

from tftrt_tools.base import errors

if TYPE_CHECKING:
    from tftrt_tools.tftrt.conversion.build import Build
    from tftrt_tools.tftrt.conversion.pipeline import Conversion


def define(values: flags.FlagValues) -> None:
    """Define --max_build_minutes on `values`."""
    flags.DEFINE_float(
        "max_build_minutes",
        None,
        "minutes for building all engines, from the first on. Engines that are not ready then "
        "stay in TensorFlow, and are named; the rest is saved. By default no bound",
        flag_values=values,
    )


def minutes(values: flags.FlagValues, always: bool = False) -> float | None:
    """The bound, or None. Args: always: whether something is built without --shapes, too. Raises: UsageError for a bound that makes no
    sense."""
    given = values.max_build_minutes
    if given is None:
        return None
    if not 0 < given < float("inf"):
        raise errors.UsageError(
            f"--max_build_minutes={given:g} is no time", "give minutes above 0, or leave the flag out for no bound"
        )
    if not values.shapes and not always:
        raise errors.UsageError(
            "--max_build_minutes bounds the building of engines, and none is built without --shapes", "give --shapes"
        )
    result: float | None = given
    return result


@contextlib.contextmanager
def resumable(values: flags.FlagValues, cache: dict[str, Any] | None) -> Iterator[None]:
    """On Ctrl-C and SIGTERM inside the block, say where the next run goes on. Args: cache: as convert.read_cache gives it."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not (values.shapes and cache and cache["folder"] and cache["max_bytes"]):
            raise
        cause = error.cause if isinstance(error, errors.Interrupted) else "interrupted"
        raise errors.Interrupted(
            cause,
            "nothing was written; the engines that were ready are in the engine cache, and the same command "
            "goes on from there",
        ) from None


def print_unbuilt(console: Console, done: Conversion | Build, cache: Mapping[str, Any] | None) -> None:
    """Name the ops of a Conversion or Build that have no engine, and what to do. Prints nothing if every op has one."""
    for one in done.unbuilt:
        console.print(f"  warning: {one.name} has no engine and runs in TensorFlow: {one.reason}", soft_wrap=True)
        if one.mend:
            console.print(f"    {one.mend}", soft_wrap=True)
    if any(one.is_late for one in done.unbuilt):
        ready = "; what is ready comes from the engine cache then" if cache else ""
        console.print(f"    the same command with more --max_build_minutes builds the rest{ready}", soft_wrap=True)
