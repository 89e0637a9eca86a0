"""Runs tasks in a fleet. Each gets exactly one Outcome.

Ray's own retries are off: it would repeat a task without saying so. Here a task whose worker died is tried once more, on another machine
where there is one; a machine that refuses a task for its stack gets no more.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.fleet import content, place, placing, session, stack, store, worker
from tftrt_tools.fleet.session import Fleet
from tftrt_tools.fleet.task import Outcome, Row, Status, Task, Where

TRIES = 2
_LOOK_SECONDS = 0.5
_ELSEWHERE = "run the command again; where it dies each time, look at the memory of that machine"


@dataclasses.dataclass
class _Try:
    task: Task
    number: int = 1
    # When Ray was asked for it.
    asked: float = 0.0
    # Machines where a try of this task died.
    died_on: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.number}:{self.task.name}"


def run(
    fleet: Fleet,
    tasks: Sequence[Task],
    wanted: stack.Stack,
    changed: Callable[[Sequence[Row]], None] = lambda rows: None,
    place_seconds: float = place.SECONDS,
    goes_on: Callable[[Sequence[Row]], bool] = lambda rows: True,
    folder: str | os.PathLike[str] | None = None,
    chunk_bytes: int = content.CHUNK_BYTES,
) -> Generator[Outcome, None, None]:
    """Run tasks, of different names. Args: wanted: the stack that a worker has to have. changed: is told the lines of a live table, twice
    a second. place_seconds: how long a task may wait for a kind of machine that the fleet does not have. goes_on: is asked as often, with
    the same lines; once it says no, what has not begun is left out. folder: on whose file system outputs wait, as of content.kept.
    chunk_bytes: of what travels, in one object of Ray's.

    Yields: an Outcome for each task, as they end. If the block that reads them ends before, what runs is ended.
    Raises: TftrtError where the fleet has gone, or what travels changes; OSError where it cannot be read.
    """
    if len({task.name for task in tasks}) != len(tasks):
        raise ValueError("two tasks of one name")
    work = _Run(fleet, wanted, changed, place_seconds if fleet.grows else 0.0, goes_on, folder, chunk_bytes)
    try:
        yield from work.all(tasks)
    except (ConnectionError, fleet.ray.exceptions.RaySystemError) as error:
        raise session.gone(fleet.place) from error
    finally:
        work.end()


class _Run:
    def __init__(
        self,
        fleet: Fleet,
        wanted: stack.Stack,
        changed: Callable[[Sequence[Row]], None],
        place_seconds: float,
        goes_on: Callable[[Sequence[Row]], bool],
        folder: str | os.PathLike[str] | None,
        chunk_bytes: int,
    ) -> None:
        self._fleet, self._ray, self._wanted = fleet, fleet.ray, wanted.to_dict()
        self._changed, self._place_seconds, self._goes_on = changed, place_seconds, goes_on
        self._folder, self._chunk_bytes = folder, chunk_bytes
        # A worker is used again: the GPU is the child's, which has ended then.
        self._remote = self._ray.remote(max_calls=0)(worker.run)
        # Its machine may die, too. It then starts anew elsewhere and knows nothing; `_said` keeps what it has told.
        board = self._ray.remote(worker.Board).options(num_cpus=0, max_restarts=-1, max_task_retries=-1)
        self._board = board.remote()
        self._pending: dict[Any, _Try] = {}
        self._rows: dict[str, Row] = {}
        self._said: dict[str, dict[str, Any]] = {}
        # {try: when it was first heard of}.
        self._began: dict[str, float] = {}
        self._sent: dict[str, store.Sent] = {}
        # {machine: why it refuses}.
        self._refusals: dict[str, str] = {}
        self._nodes = fleet.nodes()
        # Tasks for which a machine may still come; each is told once.
        self._waits: set[str] = set()

    def all(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        for task in tasks:
            self._rows[task.name] = Row(name=task.name, state="waiting")
            self._submit(_Try(task))
        while self._pending:
            ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=_LOOK_SECONDS)
            self._nodes = self._fleet.nodes()
            self._listen()
            for ref in ready:
                yield from self._ended(ref, self._pending.pop(ref))
            yield from self._without_machine()
            self._show()
            if self._pending and not self._goes_on(tuple(self._rows.values())):
                yield from self._left_out()

    def _listen(self) -> None:
        try:
            said = self._ray.get(self._board.read.remote())
        except self._ray.exceptions.ActorDiedError as error:
            raise _no_tools(error) from error
        for key, facts in said.items():
            self._began.setdefault(key, time.monotonic())
            self._said.setdefault(key, {}).update(facts)

    def _submit(self, one: _Try) -> None:
        avoided = {*self._refusals, *self._elsewhere(one)}
        task = one.task
        facts = {
            "key": one.key,
            "target": task.job.target,
            "request": dict(task.request),
            "gpus": task.gpus,
            "seconds": task.seconds,
            # Ray sets it to 1 for a task that takes no processor of its count.
            "env": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
            "chunk_bytes": self._chunk_bytes,
        }
        options = placing.options(task, self._nodes, avoided) | {"max_retries": 0}
        ref = self._remote.options(**options).remote(facts, self._wanted, self._content(task.content), self._board)
        self._pending[ref] = dataclasses.replace(one, asked=time.monotonic())

    def _elsewhere(self, one: _Try) -> tuple[str, ...]:
        """The machines where it died, if another one could take it."""
        avoided = (*self._refusals, *one.died_on)
        return one.died_on if placing.fitting(one.task, self._nodes, avoided) else ()

    def _content(self, packed: content.Packed | None) -> store.Sent | None:
        """What travels, which is sent once."""
        if packed is None:
            return None
        if packed.digest not in self._sent:
            try:
                self._sent[packed.digest] = store.put(self._ray, packed, self._chunk_bytes)
            except self._ray.exceptions.RaySystemError:
                raise
            except self._ray.exceptions.RayError as error:
                why = f"{self._fleet.place.text()} does not take {packed.name}: {errors.first_line(str(error))}"
                raise errors.TftrtError(why, "free memory or disk there") from error
        return self._sent[packed.digest]

    def _forget(self, packed: content.Packed | None) -> None:
        """Let Ray free what travels when no task needs it any more."""
        needed = {one.task.content.digest for one in self._pending.values() if one.task.content}
        if packed and packed.digest not in needed:
            self._sent.pop(packed.digest, None)

    def _ended(self, ref: Any, one: _Try) -> Iterator[Outcome]:
        raised = self._ray.exceptions
        try:
            told: dict[str, Any] = self._ray.get(ref)
        except raised.RayTaskError as error:
            yield self._outcome(one, "refused", error=_no_tools(error))
            return
        except raised.RaySystemError:
            raise
        except raised.RayError as error:
            yield from self._died(one, self._where(one), errors.first_line(str(error)))
            return
        where = Where.from_dict(told["where"])
        if "refused" in told:
            self._refusals[where.node] = f"{where.host} has {told['refused']}"
            yield from self._refused(one, where)
        elif "died" in told or "trouble" in told:
            yield from self._died(one, where, (told.get("died") or told["trouble"])["cause"])
        elif "answer" in told:
            yield from self._answered(one, where, told)
        elif "error" in told:
            yield self._outcome(one, "failed", where, error=errors.from_dict(told["error"]))
        else:
            raise_text = told["bug"].strip().splitlines()[-1]
            yield self._outcome(one, "failed", where, error=errors.TftrtError(f"a bug: {raise_text}", told["bug"]))

    def _answered(self, one: _Try, where: Where, told: dict[str, Any]) -> Iterator[Outcome]:
        """Fetch what it made, while its worker is there."""
        raised = self._ray.exceptions
        output = None
        try:
            if told["output"]:
                output = content.kept(store.taken(self._ray, told["output"]), self._folder)
        except (ConnectionError, raised.RaySystemError):
            raise
        except (content.Broken, raised.RayError) as error:
            yield from self._died(one, where, f"what it made got lost: {errors.first_line(str(error))}")
            return
        except OSError as error:
            yield self._outcome(one, "failed", where, error=errors.from_os_error(error))
            return
        yield self._outcome(one, "done", where, answer=one.task.job.read_answer(told["answer"]), output=output)

    def _refused(self, one: _Try, where: Where) -> Iterator[Outcome]:
        if placing.fitting(one.task, self._nodes, self._refusals):
            self._submit(one)
            return
        lines = "; ".join(
            self._refusals[node] for node in placing.fitting(one.task, self._nodes) if node in self._refusals
        )
        mend = "install the same there, or run the command where the stack is that one"
        yield self._outcome(one, "refused", where, error=errors.TftrtError(lines, mend))

    def _died(self, one: _Try, where: Where | None, why: str) -> Iterator[Outcome]:
        if one.number < TRIES:
            died_on = (*one.died_on, where.node) if where else one.died_on
            self._rows[one.task.name] = Row(name=one.task.name, state="waiting again", tries=one.number + 1)
            self._submit(dataclasses.replace(one, number=one.number + 1, died_on=died_on))
            return
        on = f", the last time on {where.text()}" if where else ""
        error = errors.TftrtError(f"no worker brought it to an end in {one.number} tries{on}: {why}", _ELSEWHERE)
        yield self._outcome(one, "died", where, error=error)

    def _without_machine(self) -> Iterator[Outcome]:
        """End what waits for a machine that the fleet does not have."""
        for ref, one in list(self._pending.items()):
            if one.key in self._said or placing.fitting(one.task, self._nodes, self._refusals):
                continue
            self._tell_wait(one.task)
            if time.monotonic() - one.asked >= self._place_seconds:
                del self._pending[ref]
                self._ray.cancel(ref, force=True)
                if fitting := placing.fitting(one.task, self._nodes):
                    yield self._outcome(
                        one, "refused", error=errors.TftrtError("; ".join(self._refusals[node] for node in fitting))
                    )
                    continue
                error = placing.not_placeable(one.task, self._nodes, self._fleet.place.text())
                yield self._outcome(one, "not placeable", error=error)

    def _tell_wait(self, task: Task) -> None:
        """Say once that a task waits for a machine that may still join."""
        if task.name not in self._waits and self._place_seconds and not placing.fitting(task, self._nodes):
            self._waits.add(task.name)
            why = placing.not_placeable(task, self._nodes, self._fleet.place.text())
            progress.note(f"{task.name} waits up to {self._place_seconds:.0f} s: {why.cause}; {why.mend}")

    def _left_out(self) -> Iterator[Outcome]:
        """End what has not begun."""
        for ref, one in list(self._pending.items()):
            if one.number == 1 and one.key not in self._said:
                del self._pending[ref]
                self._ray.cancel(ref, force=True)
                yield self._outcome(one, "left out", error=errors.TftrtError("it was not begun"))

    def _outcome(self, one: _Try, status: Status, where: Where | None = None, **facts: Any) -> Outcome:
        where = where or self._where(one)
        self._forget(one.task.content)
        found = Outcome(
            task=one.task, status=status, tries=one.number, where=where, seconds=self._seconds(one) or 0.0, **facts
        )
        self._rows[one.task.name] = Row(
            name=one.task.name, state=status, where=where, tries=one.number, seconds=self._seconds(one)
        )
        return found

    def _where(self, one: _Try) -> Where | None:
        where = self._said.get(one.key, {}).get("where")
        return Where.from_dict(where) if where else None

    def _seconds(self, one: _Try) -> float | None:
        """Since it was first heard of, by this machine's clock."""
        began = self._began.get(one.key)
        return None if began is None else time.monotonic() - began

    def _show(self) -> None:
        for one in self._pending.values():
            if where := self._where(one):
                self._rows[one.task.name] = Row(
                    name=one.task.name,
                    state=self._said[one.key].get("step", "running"),
                    where=where,
                    tries=one.number,
                    seconds=self._seconds(one),
                )
        self._changed(tuple(self._rows.values()))

    def end(self) -> None:
        """End what still runs."""
        if not self._ray.is_initialized():
            return
        for ref in self._pending:
            with _left():
                self._ray.cancel(ref, force=True)
        with _left():
            self._ray.kill(self._board)


def _left() -> Any:
    """A fleet that is gone cannot be told to end."""
    import contextlib

    return contextlib.suppress(Exception)


def _no_tools(error: Exception) -> errors.TftrtError:
    """Of a worker where the task could not even begin."""
    return errors.TftrtError(
        f"a worker cannot run tasks of this package: {errors.first_line(str(error).strip().splitlines()[-1])}",
        "install the same tftrt-tools on each machine of the fleet",
    )
