"""Interleaved rounds: models get requests in turn, in short blocks, so that any change of the machine affects all.

A round has four blocks of each model, in the order of base.statistics.interleaving. All models get the same requests in the same order: a
block has the place where it begins. Connections and load processes are made once, and only one model gets requests at a time.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.servers.load import generator, limits, load_plan, workers
from tftrt_tools.servers.load.assignment import Assignment
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import DEADLINE_EXCEEDED, UNAVAILABLE, Entries

Side = Literal["native", "candidate"]
NATIVE: Side = "native"
CANDIDATE: Side = "candidate"
# What the models are called, also in its messages.
Name = TypeVar("Name", bound=str)
Floats = npt.NDArray[np.float64]
# Says why a server ended, or None while it runs.
Problem = Callable[[], errors.TftrtError | None]
# Of each model in a round.
BLOCKS = 4
_LEAST, _MOST = 4, 256
_IN_PROCESS = "the models in process"
_WARM_UP_SECONDS, _WARM_UP_LEAST = 1.0, 20


@dataclasses.dataclass(frozen=True)
class Block:
    """One stretch of requests to one model. seconds: float (answered,), in the order of sending; failed: requests that were not answered,
    those at its begin, which are not timed, among them; active: seconds from the first send to the last answer."""

    seconds: Floats
    failed: int
    active: float


@dataclasses.dataclass(frozen=True)
class Round:
    """blocks: (Block, …) of one model in one round."""

    blocks: tuple[Block, ...]

    @property
    def seconds(self) -> Floats:
        """float (answered,)."""
        return np.concatenate([one.seconds for one in self.blocks])

    @property
    def failed(self) -> int:
        return sum(one.failed for one in self.blocks)

    @property
    def rate(self) -> float:
        """Requests answered a second, in the time of the model's blocks."""
        return sum(len(one.seconds) for one in self.blocks) / sum(one.active for one in self.blocks)


@dataclasses.dataclass
class Measured:
    """The measurements so far. native, candidate: [Round], as many of both. errors: {model: [texts of the first failures]}. limits:
    lines that say if the load generator was the limit."""

    native: list[Round] = dataclasses.field(default_factory=list)
    candidate: list[Round] = dataclasses.field(default_factory=list)
    errors: dict[Side, list[str]] = dataclasses.field(default_factory=lambda: {NATIVE: [], CANDIDATE: []})
    limits: list[str] = dataclasses.field(default_factory=list)

    def of(self, name: Side) -> list[Round]:
        """[Round] of a model."""
        return self.native if name == NATIVE else self.candidate

    def failed(self, name: Side) -> int:
        """Requests of a model that were not answered."""
        return sum(one.failed for one in self.of(name))

    @property
    def usable(self) -> int:
        """How many rounds, counted from the first, have answers of both models."""
        return usable(self.native, self.candidate)


def usable(*models: Sequence[Round]) -> int:
    """How many rounds, counted from the first, have answers of all models."""
    whole = [all(len(one.seconds) for one in each) for each in zip(*models, strict=False)]
    return whole.index(False) if False in whole else len(whole)


def ended_early(seconds: float) -> str:
    """The note of a run that the time ended."""
    return f"no further rounds after {seconds:g} s (--max_seconds)"


def requests_of_block(latency_seconds: float, concurrency: int) -> int:
    """How many requests a block has."""
    return interleaving.calls_of_block(latency_seconds, _LEAST, _MOST) * concurrency


@dataclasses.dataclass(frozen=True)
class Share:
    """One model's share of a load process. team: workers.Team. first, count: its requests there."""

    team: workers.Team
    first: int
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds that models in process may take."""

    # To be loaded.
    load_seconds: float
    # Of each first call, which may build engines, and of each later one.
    first_seconds: float
    call_seconds: float


class Turns(Generic[Name]):
    """Puts load on the models in turn; made by `asking`, `asking_one`, `asking_each` and `asking_several`.

    Args: shares: {name: Share}. name: of the server or process, for messages. concurrency: requests under way. problem: function that
      says why the server ended, as a TftrtError, or None while it runs. call_seconds: how long a call may take in a load process that makes
      it itself, None where the load processes only send.

    Attributes: until: the instant, on time.monotonic(), from which a request that nobody answers ends the load; without one it never does.
    """

    def __init__(
        self,
        shares: Mapping[Name, Share],
        name: str,
        concurrency: int,
        problem: Problem = lambda: None,
        call_seconds: float | None = None,
    ) -> None:
        self._shares, self._name, self._concurrency, self._problem = shares, name, concurrency, problem
        self._call_seconds = call_seconds
        self._failures: dict[Name, list[str]] = {name: [] for name in shares}
        self._sent = dict.fromkeys(shares, 0)
        self._windows: dict[Name, list[tuple[int, int]]] = {name: [] for name in shares}
        self.until = math.inf

    def warm_up(self) -> dict[Name, float]:
        """Send requests to the models for a while. Returns: {model: median seconds}. Raises: TftrtError if one answers nothing."""
        found: dict[Name, float] = {}
        for name in (*self._shares, *self._shares):
            progress.say(f"warming up {name}")
            seconds = [
                float(np.median(self.block(name, count * self._concurrency).seconds))
                for count in (_LEAST, _WARM_UP_LEAST)
            ]
            rest = min(_MOST * 8, math.ceil(_WARM_UP_SECONDS / 2 / max(seconds[-1], 1e-6))) * self._concurrency
            if rest > _WARM_UP_LEAST * self._concurrency:
                seconds.append(float(np.median(self.block(name, rest).seconds)))
            found[name] = seconds[-1]
        self._sent = dict.fromkeys(self._shares, 0)
        return found

    def block(self, name: Name, count: int) -> Block:
        """Send requests to one model, and count the last `count` of them. Returns: Block. Raises: KeyboardInterrupt; TftrtError
        where its process or the server ended, nothing was answered, or the model hangs (`_lost`)."""
        share, lead = self._shares[name], interleaving.LEAD * self._concurrency
        team, before = share.team, len(share.team.entries)
        part = {"first": share.first, "count": share.count, "skipped": self._sent[name] % share.count}
        self._sent[name] += count + lead
        team.tell(
            [
                {
                    "do": "closed",
                    "slots": self._concurrency,
                    "limit": count + lead,
                    "start": 0,
                    "due_at_start": False,
                    "part": part,
                }
            ]
        )
        lost, last = "", time.monotonic()
        while not team.idle():
            known = len(team.entries)
            team.listen_until_idle(1.0)
            last = time.monotonic() if len(team.entries) > known else last
            if self._call_seconds is not None and time.monotonic() - last > self._call_seconds and not team.idle():
                raise workers.hung(self._call_seconds, True, f"the {name} model")
            if team.problems:
                raise errors.TftrtError(f"the load on {self._name} ended: {team.problems[0]}", "run the command again")
            if problem := self._problem():
                raise problem
            arrived = Entries.joined(team.entries[before:])
            lost = lost or self._lost(
                arrived
            )  # the first words: later entries are those of requests that were under way
            if lost or self._silent(arrived):
                team.tell_all("stop")
        ended = Entries.joined(team.entries[before:]).by_sent()
        self._note_failures(name, team, ended.code[~ended.ok])
        if not ended.ok.any():
            raise errors.TftrtError(
                f"the {name} model answered none of {len(ended)} requests: {'; '.join(self.failures(name))}",
                "fix the requests (--shapes, --data), the model or the server",
            )
        if lost:
            raise errors.TftrtError(
                f"the {name} model {lost}", "if it hangs, fix it and restart its server; else raise --timeout_seconds"
            )
        counted = ended[min(lead, len(ended) - 1) :]
        window = counted.sent_ns.min(), counted.done_ns.max()
        self._windows[name].append(window)
        return Block(counted[counted.ok].service_ns / 1e9, int((~ended.ok).sum()), (window[1] - window[0]) / 1e9)

    def _silent(self, arrived: Entries) -> bool:
        """Whether no request was answered so far: a dead server refuses each, and a hung one lets each run into its deadline."""
        return len(arrived) >= _LEAST * self._concurrency and not arrived.ok.any()

    def _lost(self, arrived: Entries) -> str:
        """What a model does that answered before, and now lets each request run into its deadline; "" where the block goes on. That shows
        in the last requests; after `until` one that nobody answered is enough."""
        last = arrived.code[-_LEAST * self._concurrency :]
        if len(last) == _LEAST * self._concurrency and (last == DEADLINE_EXCEEDED).all() and arrived.ok.any():
            return f"answers no more: the last {len(last)} requests ran past their deadline (--timeout_seconds)"
        unanswered = int(np.isin(arrived.code, (DEADLINE_EXCEEDED, UNAVAILABLE)).sum())
        if unanswered and self.late():
            return f"did not answer {unanswered} of {len(arrived)} requests, and the time is over (--max_seconds)"
        return ""

    def _note_failures(self, name: Name, team: workers.Team, codes: npt.NDArray[np.int64]) -> None:
        for code in dict.fromkeys(codes.tolist()):
            known, texts = team.messages.get(code, (str(code), ["no message"]))
            self._failures[name] += [one for text in texts if (one := f"{known}: {text}") not in self._failures[name]]

    def limits(self, name: Name, latencies: Floats) -> tuple[limits.Sign, ...]:
        """The limits.Signs that the load generator was the limit for a model. Args: latencies: seconds, 1-D."""
        team, windows = self._shares[name].team, self._windows[name]
        if self._call_seconds is not None or not windows:
            return ()
        begins, ends = np.array(windows).T
        places = [np.searchsorted(begins, beat.now_ns, "right") - 1 for beat in team.beats]
        inside = [
            beat for beat, place in zip(team.beats, places, strict=True) if place >= 0 and beat.now_ns <= ends[place]
        ]
        lags = np.concatenate([beat.lags_ns for beat in inside]) if inside else np.zeros(0)
        seconds = float((ends - begins).sum()) / 1e9
        # A process sleeps between its blocks, so all of its processor time belongs to them.
        used = (team.beats[-1].cpu_ns - team.beats[0].cpu_ns) / 1e9 if team.beats else 0.0
        return limits.found(
            cpu_s=used,
            seconds=seconds,
            workers=team.size,
            cores=team.cores,
            late=0,
            sent=len(latencies),
            lags_ns=lags,
            latency_ns=1e9 * np.asarray(latencies),
        )

    def turn(self, number: int, count: int) -> dict[Name, Round]:
        """Do round `number`, with `count` requests in each block. Returns: the Round of each model."""
        done = interleaving.in_turns(tuple(self._shares), (number,), lambda name: self.block(name, count), BLOCKS)
        return {name: Round(tuple(blocks)) for name, blocks in done.items()}

    def late(self) -> bool:
        """Whether it is later than `until`."""
        return time.monotonic() > self.until

    def failures(self, name: Name) -> list[str]:
        """The first failures of a model, as text."""
        return self._failures[name][:3]


class Asker(Turns[Side]):
    """The Turns of the native model and the candidate."""

    def round(self, number: int, count: int, measured: Measured) -> None:
        """Add round `number`, with `count` requests in each block, to Measured."""
        done = self.turn(number, count)
        measured.native.append(done[NATIVE])
        measured.candidate.append(done[CANDIDATE])
        for name in done:
            measured.errors[name] = self.failures(name)

    def judge_itself(self, measured: Measured) -> None:
        """Record in Measured if the load generator was the limit."""
        said = {limits.RATE: "may have been the limit", limits.TIMES: "may have caused the tail"}
        measured.limits = [
            f"with the {name} model the load generator {said[sign.of]}: {sign.text}"
            for name in self._shares
            for sign in self.limits(name, np.concatenate([one.seconds for one in measured.of(name)]))
        ]


@contextlib.contextmanager
def asking(
    targets: Mapping[Side, load_plan.Target],
    payloads: Mapping[Side, Payload],
    concurrency: int = 1,
    problem: Problem = lambda: None,
) -> Iterator[Asker]:
    """Start a load process for each model of a server, or of two servers.

    Args: targets: {NATIVE: load_plan.Target, CANDIDATE: …}. payloads: {NATIVE: payload.Payload, CANDIDATE: …}. concurrency, problem: as
      for Asker.
    Yields: Asker. Raises: TftrtError where there is no connection.
    """
    plan = load_plan.Plan(concurrency=concurrency, check_every=0)
    with contextlib.ExitStack() as stack:
        shares: dict[Side, Share] = {}
        for name, one in payloads.items():
            team = stack.enter_context(workers.started(generator.assignments(targets[name], one, plan)))
            shares[name] = Share(team, 0, len(one.requests))
        for name, share in shares.items():
            share.team.connected(targets[name].address, targets[name].connect_s)
        where = " and ".join(dict.fromkeys(one.address for one in targets.values()))
        yield Asker(shares, where, concurrency, problem)


@contextlib.contextmanager
def asking_one(
    job: Assignment,
    firsts: Mapping[Side, int],
    count: int,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    concurrency: int = 1,
) -> Iterator[Asker]:
    """Start one process that has both models.

    Args: job: assignment.Assignment. firsts: {NATIVE: index of its first request, CANDIDATE: …}. count: requests of each. limits:
      Limits of the process. env: variables to set in it.
    Yields: Asker. Raises: TftrtError where a model cannot be loaded.
    """
    with _in_one(job, firsts, count, limits, env) as shares:
        yield Asker(shares, _IN_PROCESS, concurrency, call_seconds=limits.call_seconds)


@contextlib.contextmanager
def asking_several(
    job: Assignment, firsts: Mapping[Name, int], count: int, limits: Limits, concurrency: int = 1
) -> Iterator[Turns[Name]]:
    """Start one process that has any number of models. Arguments and errors as for asking_one. Yields: Turns."""
    with _in_one(job, firsts, count, limits) as shares:
        yield Turns(shares, _IN_PROCESS, concurrency, call_seconds=limits.call_seconds)


@contextlib.contextmanager
def _in_one(
    job: Assignment, firsts: Mapping[Name, int], count: int, limits: Limits, env: Mapping[str, str] | None = None
) -> Iterator[dict[Name, Share]]:
    with workers.started([job], env) as team:
        team.connected(_IN_PROCESS, limits.load_seconds, limits.first_seconds)
        yield {name: Share(team, first, count) for name, first in firsts.items()}


@contextlib.contextmanager
def asking_each(
    jobs: Mapping[Side, Assignment],
    count: int,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    concurrency: int = 1,
) -> Iterator[Asker]:
    """Start a process for each model. Args: jobs: {NATIVE: Assignment, CANDIDATE: …}; the others as for asking_one.

    Yields: Asker. Raises: TftrtError where a model cannot be loaded.
    """
    with contextlib.ExitStack() as stack:
        teams = {name: stack.enter_context(workers.started([job], env)) for name, job in jobs.items()}
        for name, team in teams.items():
            team.connected(f"the {name} model", limits.load_seconds, limits.first_seconds)
        yield Asker(
            {name: Share(team, 0, count) for name, team in teams.items()},
            "the models",
            concurrency,
            call_seconds=limits.call_seconds,
        )
