"""Independent measurements beside each other on the GPUs of this machine, one a GPU, each in a process of its own.

Several share the memory, the disk and the processors of the machine. So what fails beside others is done once more, alone, and only that
counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from tftrt_tools.base import errors, records, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.fleet import running, session, stack
from tftrt_tools.fleet.place import Place
from tftrt_tools.fleet.session import Fleet
from tftrt_tools.fleet.task import Outcome, Row, Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Where:
    """The fleet that a command may use. live: shows a table while tasks run; what it yields is told the rows."""

    place: Place
    live: Callable[[], AbstractContextManager[Callable[[Sequence[Row]], None]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """An open fleet; the fields as those of Where."""

    fleet: Fleet
    live: Callable[[], AbstractContextManager[Callable[[Sequence[Row]], None]]]

    @property
    def width(self) -> int:
        """How many tasks with a GPU run at once."""
        return max(1, int(sum(one.get("GPU", 0) for one in self.fleet.nodes().values())))


@contextlib.contextmanager
def opened(where: Where | None) -> Iterator[Opened | None]:
    """Yields: Opened; None without `where`. Raises: TftrtError where it does not start."""
    if where is None:
        yield None
        return
    with session.opened(where.place) as fleet:
        yield Opened(fleet=fleet, live=where.live)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran(records.Record):
    """Where a measurement ran that is one of several. host: of the machine. gpu: UUID of the only GPU that its process saw, or the number
    that CUDA_VISIBLE_DEVICES had. others: how many at most ran on other GPUs of the machine meanwhile. before: why it failed beside others,
    and was measured again alone; "" where it did not."""

    host: str
    gpu: str
    others: int
    before: str = ""

    def note(self) -> str:
        """What this means for the figures, in a line."""
        if not self.others:
            again = f"; beside other measurements it had failed: {self.before}" if self.before else ""
            return f"measured alone, in a process that saw GPU {self.gpu}{again}"
        runs = terminal.counted(self.others, "other measurement")
        return (
            f"measured in a process that saw GPU {self.gpu}, while up to {runs} ran on this machine: they share its processors, so times "
            "may be longer than on a quiet machine; a ratio of two models suffers less, because both were called in turns"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """What became of a task. others: how many at most ran beside it. before: why it failed beside others, "" where it did not."""

    outcome: Outcome
    others: int
    before: str = ""

    def ran(self) -> Ran:
        """Where a task ran that is done."""
        where = self.outcome.where
        assert where is not None
        return Ran(host=where.host, gpu=where.gpus, others=self.others, before=self.before)

    def error(self) -> errors.TftrtError:
        """Why a task is not done."""
        found = self.outcome.error or errors.TftrtError(self.outcome.status)
        again = f" (alone, after it had failed beside others: {self.before})" if self.before else ""
        return type(found)(f"{found.cause}{again}", found.mend)


def run(opened: Opened, tasks: Mapping[str, Callable[[int], Task]]) -> Iterator[Done]:
    """Do tasks, those that failed beside others once more.

    Args: tasks: {name: makes the Task of this name; its argument is the number of others that may run beside it}. Yields: Done of each, as
    they end. A UsageError is no failure of the machine, and is not tried again. Raises: TftrtError where the fleet has gone.
    """
    wanted, others = stack.here(), min(opened.width, len(tasks)) - 1
    failed: dict[str, str] = {}
    progress.say(f"{len(tasks)} measurements, {others + 1} at a time")
    with opened.live() as changed:
        for outcome in _closed(opened, [make(others) for make in tasks.values()], wanted, changed):
            if outcome.status == "done" or not others or isinstance(outcome.error, errors.UsageError):
                yield Done(outcome=outcome, others=others)
                continue
            name = outcome.task.name
            failed[name] = outcome.error.cause if outcome.error else outcome.status
            progress.note(f"{name}: {failed[name]}; it is measured once more, alone")
        for name, why in failed.items():
            (outcome,) = _closed(opened, [tasks[name](0)], wanted, changed)
            yield Done(outcome=outcome, others=0, before=why)


def _closed(
    opened: Opened, tasks: Sequence[Task], wanted: stack.Stack, changed: Callable[[Sequence[Row]], None]
) -> Iterator[Outcome]:
    """As running.run. Where the block that reads ends before, what runs is ended."""
    with contextlib.closing(running.run(opened.fleet, tasks, wanted, changed)) as outcomes:
        yield from outcomes
