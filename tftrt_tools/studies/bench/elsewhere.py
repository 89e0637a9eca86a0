"""`tftrt bench --on`: the load comes from other machines. What does not go with that is refused before anything is sent."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.fleet import keeper, session
from tftrt_tools.fleet.place import Place
from tftrt_tools.servers.load import schedule
from tftrt_tools.servers.load.several import conducting, splitting
from tftrt_tools.studies.bench import points

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from tftrt_tools.servers.load.several.conducting import Generators

# Generators of one machine: more would only fill its memory.
_OF_A_PROCESSOR = 4


def check(address: str, values: FlagValues, swept: Sequence[points.Point], on: Place) -> None:
    """Refuse what generators on other machines cannot do, and more of them than there is to send. Args: swept: the points; with a
    search those of the default. Raises: UsageError."""
    count = values.generators
    most = _OF_A_PROCESSOR * len(os.sched_getaffinity(0))
    if on.kind == "local" and count > most:
        raise errors.UsageError(
            f"--generators={count}: this machine is given {most} at most, {_OF_A_PROCESSOR} for each of its processors",
            "take fewer, and --processes for more processes of each, or a cluster",
        )
    if not address or values.in_process:
        raise errors.UsageError(
            "--on puts load on a server, and --in_process measures without one", "leave one of them out"
        )
    if values.breakdown:
        raise errors.UsageError(
            "--breakdown takes apart what this machine sends, and with --on others do", "measure it without --on"
        )
    if on.kind == "cluster" and values.tls_key:
        raise errors.UsageError(
            f"--tls_key would travel to {on.address} in the clear", "measure from one machine, without --on"
        )
    if values.schedule_file:
        splitting.check(len(schedule.read(values.schedule_file)), count, "open")
    for point in swept:
        if point.concurrency is not None:
            splitting.check(point.concurrency, count, "closed")
        if point.rate is not None:
            splitting.check(round(max(values.duration_seconds * point.rate, values.min_queries)), count, "open")
        if point.scenario == points.OFFLINE and values.min_queries:
            splitting.check(values.min_queries, count, "exact")


@contextlib.contextmanager
def opened(on: Place | None, count: int, processes: int, address: str) -> Iterator[Generators | None]:
    """Generators that are held on a fleet; None where this machine sends. Args: processes: of each, 0 to choose. address: of the server.
    Raises: TftrtError; UsageError where another machine would ask itself."""
    if on is None:
        yield None
        return
    with session.opened(on) as fleet, conducting.opened(fleet, count, processes) as generators:
        others = [host for boot, (host, _) in generators.machines.items() if boot != keeper.boot()]
        if others and _own(address):
            raise errors.UsageError(
                f"{address} is this machine's own, and {others[0]} would ask itself",
                "give the server's address as all machines know it",
            )
        yield generators


def _own(address: str) -> bool:
    """Whether an address means another server on each machine."""
    host = address.rpartition(":")[0].strip("[]").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return address.startswith("unix:") or host in ("", "localhost") or host.endswith(".localhost")


def beside(generators: Generators | None) -> Iterator[str]:
    """Lines that say which generators share a machine."""
    for host, count in generators.machines.values() if generators else ():
        if count > 1:
            yield f"{count} generators share the processors of {host}: that is no load of {count} machines"
