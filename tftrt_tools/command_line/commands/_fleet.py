"""--on and its like: a fleet that does a command's independent work. Nothing of Ray is imported before a fleet is opened."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import environment, progress
from tftrt_tools.base.stack import local_gpus
from tftrt_tools.command_line.commands import _elsewhere_flags, _output
from tftrt_tools.fleet import place, session

if TYPE_CHECKING:
    from rich.table import Table

    from tftrt_tools.fleet import beside
    from tftrt_tools.fleet.task import Row

_LOCAL = "local"


def define_local(values: flags.FlagValues) -> None:
    """Define --on on `values`, for this machine's GPUs alone."""
    flags.DEFINE_string(
        "on",
        "",
        "local: do what can be done side by side on each GPU of this machine; by default one after the other, on one GPU",
        flag_values=values,
    )


def read_local(values: flags.FlagValues, command: str, through_ray: bool = True) -> place.Place | None:
    """What --on says; None without it. Args: through_ray: whether Ray is needed. Raises: UsageError; NeedsExtra."""
    if values.on not in ("", _LOCAL):
        raise errors.UsageError(f"--on={values.on} is no place", f"give {place.FORMS}")
    found = place.parse(values.on)
    if found and through_ray:
        session.check()
    return found


def side_by_side() -> tuple[str, ...]:
    """The GPUs of this machine that can work side by side; () and a note where there are not two."""
    found = local_gpus.alike()
    if len(found) > 1:
        return found
    progress.note(f"--on={_LOCAL} changes nothing: there is {'one GPU of its kind' if found else 'no GPU'} here")
    return ()


@contextlib.contextmanager
def beside_each_other(found: place.Place | None) -> Iterator[beside.Where | None]:
    """A block in which the GPUs that can work side by side are those that CUDA sees, in their order. Args: found: of `read_local`. Yields:
    the fleet of these GPUs; None, and nothing changes, where there are not two."""
    from tftrt_tools.fleet import beside

    gpus = side_by_side() if found else ()
    with environment.variables(local_gpus.variables(gpus) if gpus else {}):
        yield beside.Where(place=found, live=live) if found and gpus else None


def define(values: flags.FlagValues) -> None:
    """Define --on, --gpu_types and --wait_seconds on `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "on",
        "",
        "where to work: local (each GPU of this machine, through Ray), or ray://HEAD:10001 of a Ray cluster. By default "
        "in this process, without Ray",
        **text,
    )
    flags.DEFINE_list(
        "gpu_types",
        [],
        "with --on: kinds of GPU to build for, by Ray's names (T4, L4, A100, H100) or those of custom resources; by default "
        "all that the fleet has",
        **text,
    )
    _elsewhere_flags.define_wait(values)


def define_load(values: flags.FlagValues) -> None:
    """Define --on and --generators on `values`, for a load that other machines send."""
    text = dict(flag_values=values)
    flags.DEFINE_string(
        "on",
        "",
        "with ADDRESS: what sends the load: ray://HEAD:10001 (machines of a Ray cluster), or local (further processes of this "
        "machine, through Ray). By default this machine, without Ray",
        **text,
    )
    flags.DEFINE_integer(
        "generators",
        1,
        "with --on: load generators that share the load, each on a machine of its own if there are enough",
        lower_bound=1,
        **text,
    )


def read_load(values: flags.FlagValues) -> place.Place | None:
    """What --on says of a load; None without it. Raises: UsageError; NeedsExtra."""
    found = place.parse(values.on)
    if found is None and values["generators"].present:
        raise errors.UsageError("--generators are processes of a fleet", f"add --on: {place.FORMS}")
    if found:
        session.check()
    return found


def read(values: flags.FlagValues) -> place.Place | None:
    """What --on says; None without it. Raises: UsageError."""
    found = place.parse(values.on)
    if found is None and values.gpu_types:
        raise errors.UsageError("--gpu_types names machines of a fleet", f"add --on: {place.FORMS}")
    return found


@contextlib.contextmanager
def live() -> Iterator[Callable[[Sequence[Row]], None]]:
    """A table at the bottom of the terminal that says what runs where, and for how long; nothing where stderr is no terminal. Yields: what
    is told the rows."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.live import Live

    with progress.hidden(), Live(console=terminal.console(sys.stderr), transient=True, refresh_per_second=4) as shown:
        yield lambda rows: shown.update(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    cells = [
        (
            one.name,
            one.state,
            one.where.text() if one.where else "",
            "" if one.tries == 1 else f"try {one.tries}",
            _seconds(one.seconds),
        )
        for one in rows
    ]
    return _output.table(None, ["what", "", "where", "", ">for"], cells)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.0f} s"
