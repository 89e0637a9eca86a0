"""Runs a load: plans the work of the processes, warms up, measures, and returns the records.

    records = generator.run(Target(address="localhost:8500"), payload, Plan(concurrency=4, seconds=10))

A closed loop warms up and is measured without a pause: the measurement begins at the instant at which the warm-up rule is met. An open loop
and an offline run are warmed up by a closed loop, whose requests end before the measurement begins.

Several generators can send one load (`several/`). Each then has a share of it, and Together says when all begin and end.
"""

import math
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.servers.load import assignment, latency_statistics, limits, recording, run_record, schedule, workers
from tftrt_tools.servers.load.load_plan import Phase, Plan, Progress, Share, Target, WarmUpRule, shared
from tftrt_tools.servers.load.payload import Payload
from tftrt_tools.servers.load.request_entries import Entries, clock

_LISTEN_SECONDS = 0.05
_START_AHEAD_NS = 50_000_000
_GIVE_UP_SECONDS = 2.0
# How long a worker may take to report a request that has ended.
_REPORT_LAG_NS = 500_000_000
_WHOLE = Share()
# Why a run ended early, after Ctrl-C.
INTERRUPTED = "interrupted"
# Called with the Progress of a run; a true value ends the run.
Listener = Callable[[Progress], object]


class Together(typing.Protocol):
    """Begins and ends the runs of several generators at the same instants."""

    def ready(self) -> None:
        """This generator is connected, and warm where it warms up. A closed loop goes on sending."""

    def start(self) -> int | None:
        """The instant of the start, ns on request_entries.clock; None while nobody knows it."""

    def enough(self) -> bool:
        """Whether a run that its length ends has lasted long enough."""

    def interrupted(self) -> bool:
        """Whether the run ends here and now, as by Ctrl-C."""

    def unequal(self, answers: Sequence[workers.UnequalAnswer]) -> None:
        """Take the answers that are not byte for byte the expected ones: they are judged elsewhere."""


def run(
    target: Target,
    payload: Payload,
    plan: Plan,
    on_progress: Listener | None = None,
    share: Share = _WHOLE,
    together: Together | None = None,
) -> run_record.Records:
    """Drive `target` with `payload` as `plan` says.

    Args: on_progress: called about twenty times a second. If it returns a true value in the warm-up or the measurement, the run ends.
      share: which part of the load `plan` is, so that this generator sends the requests of that part. together: begins and ends the
      run, and gets the answers to judge; None where this generator is alone.

    Returns: what was measured. A stop, Ctrl-C, SIGTERM and a worker that dies end the run early, and `Records.partial` says so. A server
      that fails, goes away or comes back does not end it: the requests are counted by their status.

    Raises: TftrtError where there is no connection at first; UsageError.
    """
    return driven(
        assignments(target, payload, plan, share),
        name=target.address,
        connect_s=target.connect_s,
        timeout_s=target.timeout_s,
        payload=None if together else payload,
        plan=plan,
        on_progress=on_progress,
        together=together,
    )


def driven(
    work: Iterable[assignment.Assignment],
    *,
    name: str,
    connect_s: float,
    timeout_s: float,
    payload: Payload | None,
    plan: Plan,
    on_progress: Listener | None,
    env: Mapping[str, str] | None = None,
    in_process: bool = False,
    on_ready: Callable[[], object] | None = None,
    first_s: float | None = None,
    together: Together | None = None,
) -> run_record.Records:
    """Run `plan` with a worker for each Assignment.

    Args: name: of the target, for messages. connect_s: seconds that a worker may take until it is ready. timeout_s: deadline of a request.
      payload: judges the answers; None where none is compared. env: variables of the workers. in_process: the workers themselves do the
      inferences. on_ready: called before the first request; what it raises ends the run. first_s: seconds for each call that a worker
      makes before it is ready, None where it makes none. together: as of `run`.
    """
    with workers.started(work, env) as team:
        # The worker's message about a function that it cannot make names the function.
        team.connected("" if in_process else name, connect_s, first_s)
        if on_ready:
            on_ready()
        return _Run(
            name=name,
            timeout_s=timeout_s,
            payload=payload,
            plan=plan,
            team=team,
            on_progress=on_progress,
            in_process=in_process,
            together=together,
        ).whole()


def offsets(plan: Plan) -> npt.NDArray[np.int64]:
    """The schedule of a plan, int64 [n]; [0] for one without. Raises: UsageError where it is too short."""
    if plan.schedule is None:
        return plan.scheduled
    if plan.min_queries > len(plan.schedule):
        raise errors.UsageError(
            f"the schedule has {len(plan.schedule)} requests, fewer than min_queries {plan.min_queries}",
            "make it longer",
        )
    return schedule.checked(plan.schedule)


def assignments(target: Target, payload: Payload, plan: Plan, share: Share = _WHOLE) -> Iterator[assignment.Assignment]:
    """The Assignment of each worker of a plan, for workers.started. Args: share: which part of a load the plan is."""
    count, instants, tls = processes(plan), offsets(plan), target.tls
    under_way = plan.max_outstanding if plan.kind == "open" else plan.concurrency
    channels = max(1, min(target.channels, under_way // count))
    for number in range(count):
        head = {
            "address": target.address,
            "timeout_s": target.timeout_s,
            "channels": channels,
            "connect_s": target.connect_s,
            "server_name": tls.server_name if tls else "",
            "method": payload.method,
            "check_every": plan.check_every,
            "judge_all": plan.judge_all,
            "unordered": target.unordered,
            # Request k of the part is request number + of * k of the whole load.
            "process": share.number + share.of * number,
            "processes": share.of * count,
        }
        yield assignment.Assignment(
            head=head,
            requests=payload.requests,
            expected=payload.expected,
            offsets=instants[number::count],
            tls=(tls.root_certificates, tls.private_key, tls.certificate_chain) if tls else None,
        )


def processes(plan: Plan) -> int:
    """The number of processes of a plan; one without work is not started."""
    most = len(plan.scheduled) if plan.kind == "open" else plan.concurrency
    return min(plan.processes, most, plan.max_queries or plan.processes)


class _Run:
    """One run. `_start` and `_end` are instants of the measured stretch, None before it."""

    def __init__(
        self,
        *,
        name: str,
        timeout_s: float,
        payload: Payload | None,
        plan: Plan,
        team: workers.Team,
        on_progress: Listener | None,
        in_process: bool,
        together: Together | None,
    ) -> None:
        self._together, self._interrupted = together, False
        self._name, self._in_process = name, in_process
        self._payload, self._plan, self._team = payload, plan, team
        self._drain_s = timeout_s + _GIVE_UP_SECONDS
        self._say: Listener = on_progress or (lambda progress: False)
        self._start: int | None = None
        self._end: int | None = None
        self._warm_up = run_record.WarmUp(0.0, 0, None)
        self._partial = ""
        self._ended = self._failed = 0
        self._given_up_before = self._unsent_before = 0

    def whole(self) -> run_record.Records:
        try:
            if self._plan.warm_up is not None:
                self._warm(self._plan.warm_up)
            if not self._partial:
                self._measure()
                self._drain("stop", self._drain_s)
        except KeyboardInterrupt:
            self._partial = INTERRUPTED
        if self._start is None:
            self._start = self._end = clock()
        if self._end is None:
            self._end = clock()
        if not self._team.idle():
            self._drain("stop", 0.1)
            self._drain("give_up", _GIVE_UP_SECONDS)
        return self._records(self._start, self._end)

    def _warm(self, rule: WarmUpRule) -> None:
        plan, begun = self._plan, clock()
        # A worker without a request to send would never end its part.
        slots = max(plan.warm_up_concurrency, self._team.size) if plan.kind == "open" else plan.concurrency
        command = {"do": "closed", "limit": None, "start": 0, "due_at_start": False}
        self._team.tell([{**command, "slots": part} for part in shared(slots, self._team.size)])
        stable = False
        while not stable and not self._stopped() and clock() - begun < rule.at_most_s * 1e9:
            self._tick("warm-up", begun)
            stable = latency_statistics.stable(self._windows(begun, rule), rule.windows, rule.tolerance)
        if plan.kind != "closed" or plan.max_queries:
            self._drain("stop", self._drain_s)
        ended = Entries.joined(self._team.entries)
        if len(ended) and not ended.ok.any():
            name, messages = self._message(int(ended.code[-1]))
            why = ": ".join([name, *messages[:1]])
            raise errors.TftrtError(
                f"{self._name} answered none of {len(ended)} requests: {why}", "fix the request or the server"
            )
        if plan.kind == "closed" and not plan.max_queries:
            self._start = self._begin(begun)
        self._warm_up = run_record.WarmUp((clock() - begun) / 1e9, sum(map(len, self._team.entries)), stable)
        self._ended = self._failed = 0

    def _message(self, code: int) -> tuple[str, list[str]]:
        """(name, [messages]) of a code. A worker sends its entries before its messages, and may have died in between."""
        return self._team.messages.get(code, (f"code {code}", []))

    def _windows(self, begun: int, rule: WarmUpRule) -> list[latency_statistics.Window]:
        """The last whole windows that ended so long ago that all of their requests have been reported."""
        length = int(rule.window_s * 1e9)
        reported = clock() - _REPORT_LAG_NS // 2
        start = begun + max(0, (reported - begun) // length - rule.windows) * length
        ended = Entries.joined(self._ended_since(start))
        answered = ended[ended.ok]
        return (
            latency_statistics.windows(answered.done_ns, answered.latency_ns, start, reported, length)
            if len(ended)
            else []
        )

    def _measure(self) -> None:
        team = self._team
        self._given_up_before, self._unsent_before = team.given_up, team.unsent
        begin = self._start
        if begin is None:
            begin = self._begin(clock(), _START_AHEAD_NS)
            if begin is None:
                return
            team.tell(self._commands(begin))
        self._start = begin
        while not self._done(begin):
            self._tick("measure", begin)
            if self._stopped():
                break
        self._end = self._length_end(begin)

    def _begin(self, warm_since: int, ahead: int = 0) -> int | None:
        """The instant of the start: `ahead` ns from now, or that of all generators; None where the run ends before."""
        if self._together is None:
            self._say(Progress(phase="start", seconds=0.0, ended=0, failed=0, latency_ns=np.zeros(0, np.int64)))
            return clock() + ahead
        self._together.ready()
        while not self._stopped():
            begin = self._together.start()
            if begin is not None:
                if ahead and begin < clock():
                    raise errors.TftrtError(
                        f"the common start was told {(clock() - begin) / 1e6:.0f} ms late",
                        "look at the network, and run it again",
                    )
                return begin
            self._tick("warm-up", warm_since)
        return None

    def _commands(self, start: int) -> list[dict[str, typing.Any]]:
        plan, size = self._plan, self._team.size
        if plan.kind == "open":
            return [
                {"do": "open", "start": start, "bound": part} for part in shared(max(plan.max_outstanding, size), size)
            ]
        slots = shared(plan.concurrency, size)
        limited: Sequence[int | None] = shared(plan.max_queries, size) if plan.max_queries else [None] * size
        return [
            {"do": "closed", "slots": part, "limit": limit, "start": start, "due_at_start": plan.kind == "offline"}
            for part, limit in zip(slots, limited, strict=True)
        ]

    def _done(self, start: int) -> bool:
        """Whether the measurement is complete."""
        plan, now = self._plan, clock()
        if self._team.idle() and now > start:
            return True
        seconds = (now - start) / 1e9
        if self._together and plan.kind != "open":
            return self._together.enough()
        if plan.kind == "open":
            if plan.max_seconds is not None and seconds >= plan.max_seconds:
                self._partial = f"{self._ended} of {len(plan.scheduled)} requests in {plan.max_seconds:g} s"
            return bool(self._partial)
        if (
            seconds >= plan.seconds
            and self._ended >= plan.min_queries
            and not (plan.kind == "offline" and plan.max_queries)
        ):
            return True
        longest = plan.longest
        if seconds >= longest:
            if self._ended < plan.min_queries:
                self._partial = f"{self._ended} of at least {plan.min_queries} requests in {longest:g} s"
            return True
        return False

    def _length_end(self, start: int) -> int:
        """The end of the measured stretch: for a schedule one mean gap after its last instant, for other loads now."""
        plan, now = self._plan, clock()
        if plan.kind != "open" or not self._team.idle():
            return now
        last, count = int(plan.scheduled[-1]), len(plan.scheduled)
        return start + last + (last // (count - 1) if count > 1 else 0)

    def _measured(self, start: int) -> Entries:
        """Entries of the measurement so far."""
        return Entries.joined(part[part.sent_ns >= start] for part in self._ended_since(start))

    def _ended_since(self, instant: int) -> list[Entries]:
        """The parts with requests that ended from `instant` on. Other requests of such a part ended shortly before."""
        return [part for part in self._team.entries if len(part) and part.done_ns[-1] >= instant]

    def _earlier(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """When the requests that were under way at the start were answered, if that was before the end. int64 [k], ns from the start."""
        entries = Entries.joined(
            part[(part.sent_ns < start) & (part.done_ns >= start) & (part.done_ns < end) & part.ok]
            for part in self._team.entries
        )
        return np.sort(entries.done_ns) - start

    def _tick(self, phase: Phase, begun: int) -> None:
        """Listen for a while, count, and report progress."""
        self._check_interrupted()
        ended = self._team.listen(_LISTEN_SECONDS)
        ended = ended[ended.sent_ns >= begun]
        self._ended += len(ended)
        self._failed += int((~ended.ok).sum())
        latency = ended[ended.ok].latency_ns
        seconds = max(0, clock() - begun) / 1e9
        if self._say(
            Progress(phase=phase, seconds=seconds, ended=self._ended, failed=self._failed, latency_ns=latency)
        ):
            self._partial = self._partial or "stopped"

    def _stopped(self) -> bool:
        if self._team.problems and not self._partial:
            self._partial = self._team.problems[0]
        return bool(self._partial)

    def _check_interrupted(self) -> None:
        """Raise KeyboardInterrupt once where all generators are told to end here and now."""
        if self._together and not self._interrupted and self._together.interrupted():
            self._interrupted = True
            raise KeyboardInterrupt

    def _drain(self, do: str, seconds: float) -> None:
        self._team.tell_all(do)
        until = time.monotonic() + seconds
        while not self._team.idle() and (left := until - time.monotonic()) > 0:
            self._check_interrupted()
            self._team.listen_until_idle(min(left, _LISTEN_SECONDS) if self._together else left)
        if not self._team.idle():
            self._partial = self._partial or (
                workers.hung(self._drain_s - _GIVE_UP_SECONDS, True).cause
                if self._in_process
                else "requests did not end within their deadline"
            )

    def _records(self, start: int, end: int) -> run_record.Records:
        plan = self._plan
        self._stopped()
        ended = self._measured(start)
        if plan.kind == "closed":
            ended = ended[ended.sent_ns < max(end, start)]
        ended = ended.by_sent()
        if plan.max_queries is not None and plan.kind != "open" and len(ended) >= plan.max_queries:
            ended = ended[: plan.max_queries]
            end = min(end, int(ended.done_ns.max()) + 1)
        return self._made(ended, start, end)

    def _made(self, ended: Entries, start: int, end: int) -> run_record.Records:
        plan, team = self._plan, self._team
        last = max(end, start) if plan.kind == "closed" else math.inf
        if self._together:
            self._together.unequal(
                [one._replace(sent_ns=one.sent_ns - start) for one in team.answers if start <= one.sent_ns < last]
            )
        cpu_s, wall_s, lags = _effort(team.beats, start, end)
        if self._in_process:
            cpu_s, lags = 0.0, lags[:0]
        limited = limits.found(
            cpu_s=cpu_s,
            seconds=wall_s,
            workers=team.size,
            cores=team.cores,
            late=recording.late(ended, plan.kind),
            sent=len(ended),
            lags_ns=lags,
            latency_ns=ended[ended.ok].service_ns,
        )
        return recording.records(
            ended,
            start=start,
            end=end,
            kind=plan.kind,
            messages=self._message,
            wrong=recording.wrong_answers(team.answers, self._payload, start, last),
            unfinished=team.given_up - self._given_up_before,
            unsent=team.unsent - self._unsent_before,
            limits=limited,
            warm_up=self._warm_up,
            partial=self._partial,
            started_monotonic_ns=start,
            cpu_share=cpu_s / wall_s if wall_s else 0.0,
            earlier_ns=self._earlier(start, end) if plan.kind == "closed" else np.zeros(0, np.int64),
        )


def _effort(beats: Iterable[workers.Beat], start: int, end: int) -> tuple[float, float, npt.NDArray[np.int64]]:
    """(processor seconds of all workers, wall seconds, int64 lags) inside the measured stretch."""
    by_worker: dict[int, list[workers.Beat]] = {}
    lags = [np.zeros(0, np.int64)]
    for beat in beats:
        if start <= beat.now_ns <= end:
            by_worker.setdefault(beat.worker, []).append(beat)
            lags.append(beat.lags_ns)
    cpu = wall = 0.0
    for own in by_worker.values():
        first, last = own[0], own[-1]
        cpu += (last.cpu_ns - first.cpu_ns) / 1e9
        wall = max(wall, (last.now_ns - first.now_ns) / 1e9)
    return cpu, wall, np.concatenate(lags)
