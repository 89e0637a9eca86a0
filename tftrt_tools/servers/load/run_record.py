"""The result of a run: one entry for each request, and how far it can be trusted."""

import dataclasses
import functools
import typing

import numpy as np

from tftrt_tools.base import records
from tftrt_tools.servers.load.limits import RATE, TIMES, Sign
from tftrt_tools.servers.load.load_plan import Kind
from tftrt_tools.servers.load.request_entries import DEADLINE_EXCEEDED, Column, Mask

if typing.TYPE_CHECKING:
    from tftrt_tools.servers.load import latency_statistics

LATE_NS = 1_000_000
_FEW = 3
_NONE = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class Failures(records.Record):
    """Requests that ended with one gRPC status. code: its number; name: such as "UNAVAILABLE"; messages: the first different ones."""

    code: int
    name: str
    count: int
    messages: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WrongAnswer(records.Record):
    """payload: index of the request; sent_ns: from the start; why: one line."""

    payload: int
    sent_ns: int
    why: str


@dataclasses.dataclass(frozen=True)
class WarmUp(records.Record):
    """seconds: how long it took; requests: sent in it; stable: whether the rule was met, or None where there was none to meet."""

    seconds: float
    requests: int
    stable: bool | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generator(records.Record):
    """What one of several generators did in a run."""

    # From 1, and the machine.
    number: int
    host: str
    # Processors that it may use, and processes that sent.
    cores: int
    processes: int = 0
    # Its clock less that of the machine that asks, what that may be off by either way, and by how much the offset was another after the
    # run, ms; None where it was not compared again.
    clock_offset_ms: float
    clock_uncertainty_ms: float
    clock_moved_ms: float | None = None
    # Its requests in the measured stretch, those that were answered, and answers a second.
    requests: int = 0
    answered: int = 0
    rate: float = 0.0
    # Of an open loop: sends that were late, as Records.late; those that were held; and how late the latest one was, ms.
    late: int = 0
    held: int = 0
    latest_ms: float | None = None
    # Processor time of its processes, in shares of one core.
    cpu_share: float = 0.0
    # Why it was the limit of the rate, and why it may have caused the tail of the times; "" where it was not, and did not.
    limited: str = ""
    waits: str = ""
    # Why it ended early, or is gone; "" where it came to its end.
    ended: str = ""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Records:
    """A finished run. All times are nanoseconds from its start, on the monotonic clock. Entries are sorted by `sent_ns`."""

    # Columns, int64 [n]: when each request was due, was sent, and ended.
    scheduled_ns: Column
    sent_ns: Column
    done_ns: Column
    # int64 [n]: gRPC's status codes; 0 is OK.
    code: Column
    # int64 [n]: indices of the requests sent.
    payload: Column
    # int64 [n]: bits, as request_entries.Entries.
    flags: Column
    kind: Kind
    # The length of the measured stretch.
    length_ns: int
    # {status code: failures}.
    errors: dict[int, Failures] = dataclasses.field(default_factory=dict)
    # Requests of an open loop that were sent more than 1 ms after their instant, though nothing held them back.
    late: int = 0
    # Sends that had to wait because the most allowed requests were outstanding.
    held: int = 0
    # Requests that were sent, but had no answer when the generator ended.
    unfinished: int = 0
    # Requests in the schedule that were never sent.
    unsent: int = 0
    # Answers that were compared, and how many of them were wrong.
    checked: int = 0
    wrong: int = 0
    # The first wrong ones.
    wrong_answers: tuple[WrongAnswer, ...] = ()
    # Signs that the generator, not the server, limited the measured rate.
    limits: tuple[Sign, ...] = ()
    warm_up: WarmUp = WarmUp(0.0, 0, None)
    # Why the run ended early; "" for a whole one.
    partial: str = ""
    # The start, on CLOCK_MONOTONIC.
    started_monotonic_ns: int = 0
    # Processor time of the workers, in shares of one core.
    cpu_share: float = 0.0
    # int64 [k]: when requests that were sent before the start of a closed loop's stretch were answered inside it.
    earlier_ns: Column = dataclasses.field(default_factory=lambda: _NONE)
    # Answers whose bytes differ from the expected ones and that nobody judged, because there were too many (Plan.judge_all).
    unjudged: int = 0
    # Each generator, where other machines sent the load.
    generators: tuple[Generator, ...] = ()
    # int64 [n]: the number of the generator that sent each request; empty where this machine sent them.
    generator: Column = dataclasses.field(default_factory=lambda: _NONE)

    @functools.cached_property
    def ok(self) -> Mask:
        """bool [n]: answered with OK."""
        result: Mask = self.code == 0
        return result

    @functools.cached_property
    def latency_ns(self) -> Column:
        """int64 [answered]: response times of the requests that were answered, counted from the scheduled instant. In a closed loop that
        is the send; in an open one the wait for a late send is in it; offline it counts from the start."""
        return (self.done_ns - self.scheduled_ns)[self.ok]

    @functools.cached_property
    def service_ns(self) -> Column:
        """int64 [answered]: from the send to the answer, for the requests that were answered."""
        return (self.done_ns - self.sent_ns)[self.ok]

    @property
    def limited_by_generator(self) -> bool:
        """Whether the generator, not the server, set the rate."""
        return bool(self.why)

    @property
    def why(self) -> str:
        """Why the generator was the limit of the rate, one line; "" where it was not."""
        return "; ".join(one.text for one in self.limits if one.of == RATE)

    @property
    def waits(self) -> str:
        """Why the tail of the times may be the generator's, one line; "" where it is not."""
        return "; ".join(one.text for one in self.limits if one.of == TIMES)

    @property
    def seconds(self) -> float:
        """Length of the measured stretch."""
        return self.length_ns / 1e9

    @functools.cached_property
    def falling_behind(self) -> float:
        """latency_statistics.falling_behind of an open loop: seconds by which latencies grew for each second of its schedule; else 0."""
        from tftrt_tools.servers.load import latency_statistics

        return (
            latency_statistics.falling_behind(self.scheduled_ns, self.done_ns - self.scheduled_ns)
            if self.kind == "open"
            else 0.0
        )

    @functools.cached_property
    def silent_ns(self) -> int:
        """For how long, at the end of the run, no request was answered: the server or its model is gone, or it is overloaded. 0 where fewer
        than three requests failed since the last answer, and none of them by its deadline."""
        last = max(int(self.done_ns[self.ok].max(initial=0)), int(self.earlier_ns.max(initial=0)))
        failed = self.code[~self.ok & (self.done_ns >= last)]
        if failed.size < _FEW and DEADLINE_EXCEEDED not in failed:
            return 0
        return max(self.length_ns, int(self.done_ns.max())) - last

    @property
    def unanswered(self) -> int:
        """Requests that nobody answered in time: the server may still have to do them."""
        return int((self.code == DEADLINE_EXCEEDED).sum()) + self.unfinished

    @property
    def pace(self) -> float:
        """Requests answered a second until the last answer; 0 without one. A server can do at least as many."""
        done = np.concatenate([self.earlier_ns, self.done_ns[self.ok]])
        return 1e9 * done.size / max(int(done.max()), 1) if done.size else 0.0

    @functools.cached_property
    def under_way(self) -> int:
        """The most requests that were under way at one time. Requests that did not end are not counted."""
        if not self.sent_ns.size:
            return 0
        instants = np.concatenate([self.sent_ns, self.done_ns])
        steps = np.repeat([1, -1], self.sent_ns.size)
        return int(np.cumsum(steps[np.lexsort((steps, instants))]).max())

    def rate(self) -> float:
        """Requests answered a second.

        Closed loop: all answers that came inside the stretch. Some belong to requests that were under way when it began; about as many
        requests are under way at its end. Open loop: the answers to the whole schedule, divided by its length plus the time by which the
        latencies grew. So the last latency does not count against a server that keeps up. Offline, and for a schedule without length:
        until the last answer.
        """
        from tftrt_tools.servers.load import latency_statistics

        done = self.done_ns[self.ok]
        if done.size and (self.kind == "offline" or (self.kind == "open" and not self.length_ns)):
            return latency_statistics.rate(done, int(self.done_ns.max()) + 1)
        if self.kind == "open" and not self.partial:
            return done.size / (self.seconds * (1 + self.falling_behind)) if self.length_ns else 0.0
        return latency_statistics.rate(np.concatenate([self.earlier_ns, done]), self.length_ns)

    def percentile(self, share: float, confidence: float = 0.99) -> "latency_statistics.Percentile":
        """latency_statistics.percentile of `latency_ns`."""
        from tftrt_tools.servers.load import latency_statistics

        return latency_statistics.percentile(self.latency_ns, share, confidence)

    def histogram(self) -> typing.Any:
        """HdrHistogram of `latency_ns`."""
        from tftrt_tools.servers.load import latency_statistics

        return latency_statistics.histogram(self.latency_ns)

    def to_dict(self) -> dict[str, typing.Any]:
        """The run without its entries, for the written result. It is not read back."""
        kept = (
            "kind",
            "late",
            "held",
            "unfinished",
            "unsent",
            "checked",
            "wrong",
            "unjudged",
            "limited_by_generator",
            "partial",
            "cpu_share",
        )
        return {
            "requests": int(self.sent_ns.size),
            "answered": int(self.ok.sum()),
            "seconds": self.seconds,
            "rate": self.rate(),
            **{name: getattr(self, name) for name in kept},
            "limits": [limit.text for limit in self.limits],
            "errors": records.plain(tuple(self.errors.values())),
            "wrong_answers": records.plain(self.wrong_answers),
            "warm_up": self.warm_up.to_dict(),
        }
