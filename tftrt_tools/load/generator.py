"""Runs a load: plans the work of the processes, warms up, measures, and says what was measured.

    records = generator.run(Target("localhost:8500"), payload, Plan("closed", concurrency=4, seconds=10))

Warm-up and measurement of a closed loop are one stretch of load: the measurement begins, at an instant, where the warm-up rule is met.
Before an open loop and before an offline run a closed loop warms up and is drained.
"""

import dataclasses
import math

import numpy as np

from tftrt_tools import errors
from tftrt_tools.load import drive, job, limits, record, schedule, statistics, workers

_LISTEN_SECONDS = 0.05
_START_AHEAD_NS = 50_000_000
_GIVE_UP_SECONDS = 2.0
# How long a worker may take to tell of a request that has ended.
_REPORT_LAG_NS = 500_000_000
_WRONG_SHOWN = 5
KINDS = ("closed", "open", "offline")


@dataclasses.dataclass(frozen=True)
class Tls:
    """PEM bytes, as grpc.ssl_channel_credentials takes them; server_name: the name in the certificate where it is not the address's."""

    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None
    server_name: str = ""

    @classmethod
    def of(cls, tls):
        """With the content of the files that a client.Tls names; None for None. Raises: UsageError."""
        return cls(*tls.content(), tls.server_name) if tls else None


@dataclasses.dataclass(frozen=True)
class Target:
    """address: "host:port" or "unix:/path". tls: Tls, or None for plain text. timeout_s: deadline of each request. channels: connections
    of each process at most; a closed loop has no more than it has requests under way. connect_s: how long to wait for the server at
    first."""

    address: str
    tls: Tls | None = None
    timeout_s: float = 30.0
    channels: int = 4
    connect_s: float = 10.0


@dataclasses.dataclass(frozen=True)
class WarmUpRule:
    """Warm up until the last `windows` windows of `window_s` agree within `tolerance` (statistics.stable), for `at_most_s` at most."""

    window_s: float = 0.5
    windows: int = 3
    tolerance: float = 0.1
    at_most_s: float = 10.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to send, and for how long.

    kind: "closed": `concurrency` requests are always under way; "open": at the instants of `schedule` (int64 ns from the start); "offline":
    all are due at the start, `concurrency` are under way. seconds and min_queries: a closed or offline run lasts for both; requests that
    failed count too, so that a server that is gone does not hold it up (offline: so many are sent, and answers awaited). max_queries: no
    more than that, or None. max_seconds: a closed run ends then even with fewer than min_queries (None: 10 times `seconds`), and an open
    one even with requests to send (None: never). processes: workers. warm_up: WarmUpRule or None. warm_up_concurrency: before an open run.
    max_outstanding: of an open run, over all processes. check_every: every how many-th answer is compared, 0 for none. judge_all: judge
    every compared answer that is not byte for byte the expected one; otherwise the first 256 (64 MiB) of each process, and the rest is
    counted (Records.unjudged).
    """

    kind: str = "closed"
    concurrency: int = 1
    schedule: np.ndarray | None = None
    seconds: float = 10.0
    min_queries: int = 0
    max_queries: int | None = None
    max_seconds: float | None = None
    processes: int = 1
    warm_up: WarmUpRule | None = WarmUpRule()
    warm_up_concurrency: int = 4
    max_outstanding: int = 1000
    check_every: int = 16
    judge_all: bool = False

    def __post_init__(self):
        if self.kind not in KINDS:
            raise errors.UsageError(f"no kind of load {self.kind!r}", f"there are {', '.join(KINDS)}")
        for name in ("concurrency", "processes", "warm_up_concurrency", "max_outstanding"):
            if getattr(self, name) < 1:
                raise errors.UsageError(f"{name} is {getattr(self, name)}", "it has to be 1 or more")
        if (self.kind == "open") != (self.schedule is not None):
            raise errors.UsageError("a schedule belongs to an open load, and to that alone", "make it with load.schedule")
        if self.kind == "open":
            schedule.checked(self.schedule)
        elif not self.seconds > 0 and not self.min_queries > 0 and not self.max_queries:
            raise errors.UsageError("the run has no length", "set seconds, min_queries or max_queries")
        if self.max_queries is not None and self.max_queries < max(1, self.min_queries):
            raise errors.UsageError(f"max_queries {self.max_queries} is below min_queries {self.min_queries}", "raise it")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is. phase: "warm-up", "start" (once, directly before the measurement), or "measure". seconds: in this phase. ended:
    requests that ended in it; failed: of those. latency_ns: int64 [n], latencies of the answers that came since the last call."""

    phase: str
    seconds: float
    ended: int
    failed: int
    latency_ns: np.ndarray


def run(target, payload, plan, on_progress=None):
    """Drive `target` with `payload` as `plan` says.

    Args: target: Target. payload: payload.Payload. plan: Plan. on_progress: function of a Progress, called about twenty times a second;
      where it returns something true in the warm-up or the measurement, the run ends.

    Returns: record.Records. A stop, Ctrl-C, SIGTERM and a worker that dies end the run early; what was measured is returned then, and
    `Records.partial` says so. A server that fails, goes away or comes back does not end it: the requests are counted by their status.

    Raises: TftrtError where there is no connection at first; UsageError.
    """
    return driven(jobs(target, payload, plan), target.address, target.connect_s, target.timeout_s, payload, plan, on_progress)


def driven(jobs, name, connect_s, timeout_s, payload, plan, on_progress, env=None, in_process=False, on_ready=None):
    """Run `plan` with a worker for each of `jobs`. name: of the target, for messages. in_process: the workers do the inferences. on_ready:
    function, called before the first request; what it raises ends the run."""
    with workers.started(jobs, env) as team:
        team.connected(name, connect_s)
        if on_ready:
            on_ready()
        return _Run(name, timeout_s, payload, plan, team, on_progress, in_process).whole()


def offsets(plan):
    """The schedule of a plan, int64 [n]; [0] for one without."""
    if plan.kind != "open":
        return np.zeros(0, np.int64)
    if plan.min_queries > len(plan.schedule):
        raise errors.UsageError(f"the schedule has {len(plan.schedule)} requests, fewer than min_queries {plan.min_queries}",
                                "make it longer")
    return schedule.checked(plan.schedule)


def jobs(target, payload, plan):
    """What each worker of a plan gets: job.Jobs for workers.started."""
    processes, instants, tls = _processes(plan), offsets(plan), target.tls
    under_way = plan.max_outstanding if plan.kind == "open" else plan.concurrency
    channels = max(1, min(target.channels, under_way // processes))
    for number in range(processes):
        head = {"address": target.address, "timeout_s": target.timeout_s, "channels": channels, "connect_s": target.connect_s,
                "server_name": tls.server_name if tls else "", "method": payload.method, "check_every": plan.check_every,
                "judge_all": plan.judge_all, "process": number, "processes": processes}
        yield job.Job(head, payload.requests, payload.expected, instants[number::processes],
                      (tls.root_certificates, tls.private_key, tls.certificate_chain) if tls else None)


def _processes(plan):
    """A process without anything to do is not started."""
    return min(plan.processes, len(plan.schedule) if plan.kind == "open" else plan.concurrency, plan.max_queries or plan.processes)


class _Run:
    def __init__(self, name, timeout_s, payload, plan, team, on_progress, in_process):
        self._name, self._in_process = name, in_process
        self._payload, self._plan, self._team = payload, plan, team
        self._drain_s = timeout_s + _GIVE_UP_SECONDS
        self._say = on_progress or (lambda progress: False)
        self._start = self._end = None
        self._warm_up = record.WarmUp(0.0, 0, None)
        self._partial = ""
        self._ended = self._failed = 0
        self._given_up_before = self._unsent_before = 0

    def whole(self):
        try:
            if self._plan.warm_up is not None:
                self._warm()
            if not self._partial:
                self._measure()
                self._drain("stop", self._drain_s)
        except (KeyboardInterrupt, errors.Interrupted):
            self._partial = "interrupted"
        if self._start is None:
            self._start = self._end = drive.clock()
        if self._end is None:
            self._end = drive.clock()
        if not self._team.idle():
            self._drain("stop", 0.1)
            self._drain("give_up", _GIVE_UP_SECONDS)
        return self._records()

    def _warm(self):
        plan, rule, begun = self._plan, self._plan.warm_up, drive.clock()
        slots = plan.warm_up_concurrency if plan.kind == "open" else plan.concurrency
        command = {"do": "closed", "limit": None, "start": 0, "due_at_start": False}
        self._team.tell([{**command, "slots": part} for part in _shared(slots, self._team.size)])
        stable = False
        while not stable and not self._stopped() and drive.clock() - begun < rule.at_most_s * 1e9:
            self._tick("warm-up", begun)
            stable = statistics.stable(self._windows(begun, rule), rule.windows, rule.tolerance)
        if plan.kind != "closed" or plan.max_queries:
            self._drain("stop", self._drain_s)
        else:
            self._say_start()
            self._start = drive.clock()
        rows = np.concatenate(self._team.rows) if self._team.rows else np.zeros((0, 6), np.int64)
        self._warm_up = record.WarmUp((drive.clock() - begun) / 1e9, len(rows), stable)
        if rows.size and not (rows[:, 3] == 0).any():
            name, messages = self._message(int(rows[-1, 3]))
            why = ": ".join([name, *messages[:1]])
            raise errors.TftrtError(f"{self._name} answered none of {len(rows)} requests: {why}", "mend the request or the server")
        self._ended = self._failed = 0

    def _message(self, code):
        """(name, [messages]) of a code. A worker sends its entries before its messages, and may have died in between."""
        return self._team.messages.get(code, (f"code {code}", []))

    def _windows(self, begun, rule):
        """The last whole windows, ended a report's time ago so that all of their requests are known."""
        length = int(rule.window_s * 1e9)
        known = drive.clock() - _REPORT_LAG_NS // 2
        start = begun + max(0, (known - begun) // length - rule.windows) * length
        rows = [part for part in self._team.rows if len(part) and part[-1, 2] >= start]
        if not rows:
            return []
        rows = np.concatenate(rows)
        rows = rows[rows[:, 3] == 0]
        return statistics.windows(rows[:, 2], rows[:, 2] - rows[:, 0], start, known, length)

    def _measure(self):
        team = self._team
        self._given_up_before, self._unsent_before = team.given_up, team.unsent
        begin = self._start
        if begin is None:
            self._say_start()
            begin = drive.clock() + _START_AHEAD_NS
            team.tell(self._commands(begin))
        self._start = begin
        while not self._done():
            self._tick("measure", begin)
            if self._stopped():
                break
        self._end = self._length_end()

    def _say_start(self):
        self._say(Progress("start", 0.0, 0, 0, np.zeros(0, np.int64)))

    def _commands(self, start):
        plan, size = self._plan, self._team.size
        if plan.kind == "open":
            return [{"do": "open", "start": start, "bound": part} for part in _shared(max(plan.max_outstanding, size), size)]
        slots = _shared(plan.concurrency, size)
        limited = _shared(plan.max_queries, size) if plan.max_queries else [None] * size
        return [{"do": "closed", "slots": part, "limit": limit, "start": start, "due_at_start": plan.kind == "offline"}
                for part, limit in zip(slots, limited, strict=True)]

    def _done(self):
        """Whether the measurement has all it wants."""
        plan, now = self._plan, drive.clock()
        if self._team.idle() and now > self._start:
            return True
        seconds = (now - self._start) / 1e9
        if plan.kind == "open":
            if plan.max_seconds is not None and seconds >= plan.max_seconds:
                self._partial = f"{self._ended} of {len(plan.schedule)} requests in {plan.max_seconds:g} s"
            return bool(self._partial)
        if seconds >= plan.seconds and self._ended >= plan.min_queries and not (plan.kind == "offline" and plan.max_queries):
            return True
        longest = plan.max_seconds if plan.max_seconds is not None else max(10 * plan.seconds, 60.0)
        if seconds >= longest:
            if self._ended < plan.min_queries:
                self._partial = f"{self._ended} of at least {plan.min_queries} requests in {longest:g} s"
            return True
        return False

    def _length_end(self):
        """The end of the measured stretch: of a schedule the last instant and one mean gap, else now."""
        plan, now = self._plan, drive.clock()
        if plan.kind != "open" or not self._team.idle():
            return now
        last = int(plan.schedule[-1])
        return self._start + last + (last // (len(plan.schedule) - 1) if len(plan.schedule) > 1 else 0)

    def _rows(self):
        """Entries of the measurement so far."""
        rows = [part[part[:, 1] >= self._start] for part in self._team.rows if len(part) and part[-1, 2] >= self._start]
        return np.concatenate(rows) if rows else np.zeros((0, 6), np.int64)

    def _earlier(self, start, end):
        """When the requests that were under way at the start were answered, as far as that was inside the measurement."""
        done = [part[(part[:, 1] < start) & (part[:, 2] >= start) & (part[:, 2] < end) & (part[:, 3] == 0), 2] for part in self._team.rows]
        return np.sort(np.concatenate([np.zeros(0, np.int64), *done])) - start

    def _tick(self, phase, begun):
        """Listen for a while, count, tell."""
        rows = self._team.listen(_LISTEN_SECONDS)
        rows = rows[rows[:, 1] >= begun]
        answered = rows[:, 3] == 0
        self._ended += len(rows)
        self._failed += int((~answered).sum())
        latency = (rows[:, 2] - rows[:, 0])[answered]
        if self._say(Progress(phase, max(0, drive.clock() - begun) / 1e9, self._ended, self._failed, latency)):
            self._partial = self._partial or "stopped"

    def _stopped(self):
        if self._team.problems and not self._partial:
            self._partial = self._team.problems[0]
        return bool(self._partial)

    def _drain(self, do, seconds):
        self._team.tell_all(do)
        if not self._team.listen_until_idle(seconds):
            self._partial = self._partial or "requests did not end within their deadline"

    def _records(self):
        plan, start = self._plan, self._start
        self._stopped()
        rows = self._rows()
        if plan.kind == "closed":
            rows = rows[rows[:, 1] < max(self._end, start)]
        rows = rows[np.argsort(rows[:, 1], kind="stable")]
        end = self._end
        if plan.max_queries is not None and plan.kind != "open" and len(rows) >= plan.max_queries:
            rows = rows[:plan.max_queries]
            end = min(end, int(rows[:, 2].max()) + 1)
        return self._made(rows, start, end)

    def _made(self, rows, start, end):
        plan, team = self._plan, self._team
        scheduled, sent, done, code, payload, flags = np.ascontiguousarray(rows.T)
        held = (flags & record.HELD) != 0
        late = int(((sent - scheduled > record.LATE_NS) & ~held).sum()) if plan.kind == "open" else 0
        compared = (flags & record.CHECKED) != 0
        unjudged = ((flags & record.DIFFERS) != 0) & ~compared
        wrong = self._wrong(start, max(end, start) if plan.kind == "closed" else math.inf)
        cpu_s, wall_s, lags = _effort(team.beats, start, end)
        service = (done - sent)[code == 0]
        if self._in_process:
            cpu_s, lags = 0.0, lags[:0]
        found = limits.found(cpu_s, wall_s, team.size, team.cores, late, len(rows), lags, service)
        codes, counts = np.unique(code[code != 0], return_counts=True)
        failures = {one: record.Failures(one, self._message(one)[0], count, tuple(self._message(one)[1][:3]))
                    for one, count in zip(codes.tolist(), counts.tolist(), strict=True)}
        return record.Records(scheduled - start, sent - start, done - start, code, payload, flags, plan.kind, max(0, end - start),
                              failures, late, int(held.sum()), team.given_up - self._given_up_before, team.unsent - self._unsent_before,
                              int(compared.sum()), len(wrong), tuple(wrong[:_WRONG_SHOWN]), found, self._warm_up,
                              self._partial, start, cpu_s / wall_s if wall_s else 0.0,
                              self._earlier(start, end) if plan.kind == "closed" else rows[:0, 2], int(unjudged.sum()))

    def _wrong(self, start, end):
        """The wrong ones of the answers that differ, sent in [start, end), in the order of their sends. Equal answers are judged once."""
        known, wrong = {}, []
        for index, sent, answer in self._team.answers:
            if (index, answer) not in known:
                known[index, answer] = self._payload.wrong(index, answer)
            if known[index, answer] and start <= sent < end:
                wrong.append(record.WrongAnswer(index, sent - start, known[index, answer]))
        return sorted(wrong, key=lambda one: one.sent_ns)


def _effort(beats, start, end):
    """(processor seconds of all workers, wall seconds, int64 lags) inside the measured stretch."""
    by_worker, lags = {}, [np.zeros(0, np.int64)]
    for worker, now, cpu, own in beats:
        if start <= now <= end:
            by_worker.setdefault(worker, []).append((now, cpu))
            lags.append(own)
    cpu = wall = 0.0
    for marks in by_worker.values():
        if len(marks) > 1:
            cpu += (marks[-1][1] - marks[0][1]) / 1e9
            wall = max(wall, (marks[-1][0] - marks[0][0]) / 1e9)
    return cpu, wall, np.concatenate(lags)


def _shared(total, parts):
    """Whole numbers that add up to `total`, as equal as can be."""
    return [total // parts + (number < total % parts) for number in range(parts)]
