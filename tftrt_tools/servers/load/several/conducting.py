"""Sends one load from several machines of a fleet: begins and ends the generators together, listens to them, and merges what they measured.

    with conducting.opened(fleet, 4) as generators:
        records = generators.run(Target(address="server:8500"), payload, Plan(concurrency=8, seconds=10))

Each generator warms up by itself, and goes on until all are warm. Then all begin at one instant, each by its own clock. A closed loop ends
when this machine says so: all are under way until then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tftrt_tools.base import errors, version
from tftrt_tools.base.process import jobs, signals
from tftrt_tools.fleet import holding, stack
from tftrt_tools.fleet.holding import Posts
from tftrt_tools.fleet.session import Fleet
from tftrt_tools.fleet.task import Said
from tftrt_tools.servers.load import generator
from tftrt_tools.servers.load.generator import Listener
from tftrt_tools.servers.load.load_plan import Phase, Plan, Progress, Target
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import clock
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.servers.load.several import clocks, merging, splitting, travelling
from tftrt_tools.servers.load.several.clocks import Clock
from tftrt_tools.servers.load.several.merging import Sender
from tftrt_tools.servers.load.several.travelling import Look, Part

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 60.0
# From telling the start to it: many times what a message takes.
_AHEAD_NS = 500_000_000
# That a generator may take to say how it is: it does so at once, and one that hangs must not hold up the others.
_LOOK_ANSWER_SECONDS = 5.0
# That a generator may take to end, over the deadline of its requests; after Ctrl-C; and for its records to come.
_END_SECONDS, _INTERRUPTED_SECONDS, _RECORDS_SECONDS = 30.0, 15.0, 600.0
# Why a generator of a run sends nothing.
IDLE = "the schedule has fewer requests than there are generators: none was left for it"


@jobs.job
def sending() -> Callable[[Said], Said]:
    """A generator, which does what each call says."""
    from tftrt_tools.servers.load.several import generator_job

    return generator_job.Generator()


@contextlib.contextmanager
def opened(fleet: Fleet, count: int, processes: int = 0) -> Iterator[Generators]:
    """Hold generators, on different machines where there are as many. Args: processes: of each; 0 for half of its machine's cores, shared
    with the generators beside it. Yields: Generators. Raises: TftrtError where a machine has another tftrt-tools, or none has room."""
    # What sends requests needs no more of a machine.
    here = stack.here(driver=False)
    wanted = stack.Stack(tools=version.__version__, python=here.python)
    with holding.held(fleet, sending, count, wanted) as posts:
        yield Generators(posts, processes)


class Generators:
    """Generators that are held; made by `opened`."""

    def __init__(self, posts: Posts, processes: int = 0) -> None:
        self._posts, self._processes = posts, processes
        self._loaded = b""

    def __len__(self) -> int:
        return len(self._posts)

    @property
    def machines(self) -> dict[str, tuple[str, int]]:
        """{boot: (host, how many generators)} of each machine."""
        found: dict[str, tuple[str, int]] = {}
        for post in self._posts.posts:
            host, count = found.get(post.boot, (post.where.host, 0))
            found[post.boot] = (host, count + 1)
        return found

    def run(self, target: Target, payload: Payload, plan: Plan, on_progress: Listener | None = None) -> Records:
        """Send a load. Arguments and returns as of generator.run; `Records.generators` tells of each. The processes of the plan count
        only where `opened` was told none.

        Raises: TftrtError where a generator has no connection at first, is gone before the start, or its clock is too little known;
        UsageError where there is less to send than one request for each.
        """
        generator.offsets(plan)
        # Chance may leave a schedule with few requests.
        used = min(len(self), len(plan.scheduled)) if plan.kind == "open" else len(self)
        parts = [
            dataclasses.replace(part, processes=self._processes_of(number))
            for number, part in enumerate(splitting.split(plan, used))
        ]
        with signals.noted() as noted:
            run = _Run(self, self._posts, payload, plan, noted, on_progress or (lambda progress: False))
            run.compare()
            self._load(run, travelling.load(target, payload))
            try:
                run.begin(parts)
                found = run.whole(target.timeout_s)
                # A signal that came when all was measured ends what would come next.
                return dataclasses.replace(found, partial=generator.INTERRUPTED) if noted.came else found
            except BaseException:
                run.tell_all("interrupt")
                raise

    def _load(self, run: _Run, load: bytes) -> None:
        if load != self._loaded:
            kept = self._posts.kept(load)
            run.all([{"do": "load"}] * len(self), [kept] * len(self))
            self._loaded = load

    def _processes_of(self, number: int) -> int:
        post = self._posts.posts[number]
        return self._processes or max(1, post.cores // 2 // self.machines[post.boot][1])


class _Run:
    """One run. lost: {number: why a generator is gone}."""

    def __init__(
        self, generators: Generators, posts: Posts, payload: Payload, plan: Plan, noted: signals.Noted, say: Listener
    ) -> None:
        self._count, self._posts, self._payload, self._plan = len(generators), posts, payload, plan
        self._noted, self._say = noted, say
        self._before: list[Clock] = []
        self._lost: dict[int, str] = {}
        self._looks: dict[int, Look] = {}
        self._partial = ""
        self._start = self._end = 0
        self._measuring = self._told_enough = False

    def compare(self) -> None:
        """Compare the clocks. Raises: TftrtError where a generator is gone, or a clock is too little known for the plan."""
        for number in range(self._count):
            found = self._clock(number, _ANSWER_SECONDS)
            if isinstance(found, errors.TftrtError):
                raise self._named(number, found)
            self._before.append(found)
        worst = max(range(self._count), key=lambda number: self._before[number].uncertainty_ns)
        clocks.check(self._plan, self._before[worst], self._name(worst))

    def all(
        self, each: Sequence[Mapping[str, Any]], contents: Sequence[Any] = (), seconds: float = _ANSWER_SECONDS
    ) -> list[Said]:
        """What those say that are not idle. Raises: TftrtError where one is gone or fails."""
        asked = [None if number in self._lost else facts for number, facts in enumerate(each)]
        found: list[Said] = []
        for number, said in enumerate(self._posts.ask(asked, contents, seconds, self._hurry)):
            if isinstance(said, errors.TftrtError):
                raise self._named(number, said)
            if said is not None:
                found.append(said)
        return found

    def begin(self, parts: Sequence[Plan]) -> None:
        """Begin to connect and to warm up. A generator without a part is idle."""
        asked = [travelling.begin(part, number, len(parts)) for number, part in enumerate(parts)]
        idle = range(len(parts), self._count)
        self._lost.update(dict.fromkeys(idle, IDLE))
        self.all(
            [*({"do": "begin", "begin": begin.to_dict()} for begin, _ in asked), *({} for _ in idle)],
            [*(schedule for _, schedule in asked), *(b"" for _ in idle)],
        )

    def tell_all(self, do: str) -> None:
        """Tell all that are there. None is waited for: one may hang."""
        with contextlib.suppress(errors.TftrtError):
            self._posts.tell([None if number in self._lost else {"do": do} for number in range(self._count)])

    def _hurry(self) -> bool:
        """Asked while generators are waited for: whether a signal has come. The others are told the end when it is there."""
        if self._measuring and not self._told_enough and self._due():
            self._told_enough, self._end = True, clock()
            self.tell_all("enough")
        return self._noted.came

    def whole(self, timeout_s: float) -> Records:
        """From the warm-up to the Records."""
        while not self._partial and not all(look.ready or look.done for look in self._look("warm-up", strict=True)):
            time.sleep(_LOOK_SECONDS)
        self._start = self._end = clock()
        if not self._partial:
            self._begin_together()
            self._measure()
        self._finish(timeout_s)
        return self._merged()

    def _begin_together(self) -> None:
        self._say(Progress(phase="start", seconds=0.0, ended=0, failed=0, latency_ns=np.zeros(0, np.int64)))
        self._start = clock() + _AHEAD_NS
        told = [{"do": "start", "instant": self._start + one.offset_ns} for one in self._before]
        self.all(told, (), _LOOK_ANSWER_SECONDS)

    def _measure(self) -> None:
        self._measuring = self._plan.kind != "open"
        while not self._partial:
            looks = self._look("measure")
            if self._over(looks):
                break
            time.sleep(_LOOK_SECONDS)
        self._measuring = False
        if not self._told_enough:
            self._end = clock()

    def _over(self, looks: Sequence[Look]) -> bool:
        """Whether the measurement is complete, or ends early."""
        plan, seconds = self._plan, (clock() - self._start) / 1e9
        if self._partial or all(look.done for look in looks):
            return True
        for number, look in self._looks.items():
            if look.partial and number not in self._lost:
                self._partial = f"{self._name(number)}: {look.partial}"
                return True
        ended = self._answers()
        if plan.kind == "open":
            if plan.max_seconds is not None and seconds >= plan.max_seconds:
                self._partial = f"{ended} of {len(plan.scheduled)} requests in {plan.max_seconds:g} s"
            return bool(self._partial)
        if not (self._told_enough or self._due()):
            return False
        longest = plan.longest
        if seconds >= longest and ended < plan.min_queries:
            self._partial = f"{ended} of at least {plan.min_queries} requests in {longest:g} s"
        return True

    def _due(self) -> bool:
        """Whether the end of a closed or offline run is there, as far as is known."""
        plan, seconds = self._plan, (clock() - self._start) / 1e9
        exact = plan.kind == "offline" and plan.max_queries
        return seconds >= plan.longest or (
            seconds >= plan.seconds and self._answers() >= plan.min_queries and not exact
        )

    def _answers(self) -> int:
        there = (look for number, look in self._looks.items() if number not in self._lost)
        return sum(look.ended for look in there if look.phase == "measure")

    def _finish(self, timeout_s: float) -> None:
        """Wait for the end of all."""
        interrupted = self._partial == generator.INTERRUPTED
        ended = not self._partial and not any(look.partial for look in self._looks.values())
        if interrupted:
            self.tell_all("interrupt")
        elif not ended:
            self.tell_all("stop")
        elif self._plan.kind != "open" and not self._told_enough:
            self.tell_all("enough")
        until = time.monotonic() + (_INTERRUPTED_SECONDS if interrupted else timeout_s + _END_SECONDS)
        while not all(look.done for look in self._look("measure", quiet=True)):
            if time.monotonic() > until:
                for number, look in self._looks.items():
                    if not look.done and number not in self._lost:
                        self._lose(number, "it did not come to its end")
                return
            if self._noted.came and not interrupted:
                interrupted, self._partial = True, generator.INTERRUPTED
                self.tell_all("interrupt")
                until = time.monotonic() + _INTERRUPTED_SECONDS
            time.sleep(_LOOK_SECONDS)

    def _look(self, phase: Phase, strict: bool = False, quiet: bool = False) -> list[Look]:
        """How the generators are that are there, told on. Args: strict: raise where one is gone or fails. quiet: nobody is told."""
        asked = [None if number in self._lost else {"do": "look"} for number in range(self._count)]
        latencies = [np.zeros(0, np.int64)]
        told = self._posts.ask(asked, (), _LOOK_ANSWER_SECONDS, self._hurry)
        if self._noted.came:
            self._partial = self._partial or generator.INTERRUPTED
        for number, said in enumerate(told):
            if isinstance(said, holding.Lost) and (self._noted.came or not strict):
                self._lose(number, said.cause)
            elif isinstance(said, errors.TftrtError):
                raise self._named(number, said)
            elif said is not None:
                self._looks[number] = look = Look.from_dict(said.facts)
                if look.phase == phase:
                    latencies.append(np.frombuffer(said.content, np.int64))
        looks = [look for number, look in self._looks.items() if number not in self._lost]
        if not quiet and self._say(
            Progress(
                phase=phase,
                seconds=max((look.seconds for look in looks if look.phase == phase), default=0.0),
                ended=sum(look.ended for look in looks if look.phase == phase),
                failed=sum(look.failed for look in looks if look.phase == phase),
                latency_ns=np.concatenate(latencies),
            )
        ):
            self._partial = self._partial or "stopped"
        return looks

    def _lose(self, number: int, why: str) -> None:
        self._lost[number] = why
        self._partial = self._partial or f"{self._name(number)} is gone, and its requests are not in the row: {why}"

    def _merged(self) -> Records:
        there = [None if number in self._lost else {"do": "part"} for number in range(self._count)]
        parts: dict[int, Part] = {}
        told = self._posts.ask(there, (), _RECORDS_SECONDS, self._hurry, _INTERRUPTED_SECONDS)
        for number, said in enumerate(told):
            if isinstance(said, holding.Lost):
                self._lose(number, said.cause)
            elif isinstance(said, errors.TftrtError):
                raise self._named(number, said)
            elif said is not None:
                parts[number] = travelling.read_part(said.facts, said.content)
        senders = [
            Sender(
                number=number + 1,
                post=post,
                part=parts.get(number),
                before=self._before[number],
                after=self._after(number),
                lost=self._lost.get(number, ""),
            )
            for number, post in enumerate(self._posts.posts)
        ]
        return merging.merged(
            senders,
            self._plan,
            self._payload,
            length_ns=max(0, self._end - self._start),
            started=self._start,
            partial=self._partial,
        )

    def _after(self, number: int) -> Clock | None:
        found = None if number in self._lost else self._clock(number, _LOOK_ANSWER_SECONDS)
        return found if isinstance(found, Clock) else None

    def _clock(self, number: int, seconds: float) -> Clock | errors.TftrtError:
        """A generator's clock, or why it is gone."""
        trips: list[tuple[int, int, int]] = []
        begun = clock()
        while len(trips) < clocks.FEWEST or (
            len(trips) < clocks.MOST
            and clock() - begun < clocks.LONG_NS
            and min(heard - asked for asked, _, heard in trips) > clocks.SHORT_NS
        ):
            trip = self._posts.trip(number, clock, seconds, self._hurry)
            if isinstance(trip, errors.TftrtError):
                return trip
            trips.append(trip)
        return clocks.of_trips(trips)

    def _name(self, number: int) -> str:
        return f"generator {number + 1} on {self._posts.posts[number].where.host}"

    def _named(self, number: int, error: errors.TftrtError) -> errors.TftrtError:
        if self._noted.came and isinstance(error, holding.Lost):
            # Nothing is measured yet, and nobody waits for it any more.
            raise KeyboardInterrupt
        return errors.TftrtError(f"{self._name(number)}: {error.cause}", error.mend)
