"""What a run leaves: one entry a request, and what has to be known to believe it."""

import dataclasses
import functools

import numpy as np

from tftrt_tools.load.limits import RATE, TIMES, Sign

LATE_NS = 1_000_000
# One entry as the workers write it: six int64.
FIELDS = ("scheduled_ns", "sent_ns", "done_ns", "code", "payload", "flags")
CHECKED, DIFFERS, HELD = 1, 2, 4  # bits of flags
UNAVAILABLE = 14  # of gRPC, as `code`
_FEW = 3
_NONE = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class Failures:
    """Requests that ended with one gRPC status. code: its number; name: such as "UNAVAILABLE"; messages: the first different ones."""

    code: int
    name: str
    count: int
    messages: tuple

    def to_dict(self):
        return {**dataclasses.asdict(self), "messages": list(self.messages)}


@dataclasses.dataclass(frozen=True)
class WrongAnswer:
    """payload: index of the request; sent_ns: from the start; why: one line."""

    payload: int
    sent_ns: int
    why: str


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """seconds: how long it took; requests: sent in it; stable: whether the rule was met, or None where there was none to meet."""

    seconds: float
    requests: int
    stable: bool | None


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """A finished run; all times in nanoseconds from its start, on the monotonic clock, sorted by `sent_ns`.

    scheduled_ns, sent_ns, done_ns: int64 [n]. code: int64 [n], 0 is OK. payload: int64 [n], index of the request sent. flags: int64 [n].
    kind: "closed", "open" or "offline". length_ns: of the measured stretch. errors: {code: Failures}. late: sent more than 1 ms after
    their instant although nothing held them (open). held: sends that had to wait because as many were outstanding as may be.
    unfinished: sent and given up by the generator when it ended. unsent: in the schedule and never sent. checked, wrong: answers compared,
    and wrong ones; wrong_answers: the first. limits: limits.Signs that the generator, not the server, set what was
    measured. warm_up: WarmUp. partial: "" for a whole run, else why it ended early. started_monotonic_ns: the start on
    CLOCK_MONOTONIC; cpu_share: processor time of the workers, of one core.
    earlier_ns: int64 [k], when requests that were sent before the start of a closed loop's stretch were answered inside it. unjudged:
    answers that are not byte for byte the expected ones and that nobody judged, as there were too many (Plan.judge_all).
    """

    scheduled_ns: np.ndarray
    sent_ns: np.ndarray
    done_ns: np.ndarray
    code: np.ndarray
    payload: np.ndarray
    flags: np.ndarray
    kind: str
    length_ns: int
    errors: dict = dataclasses.field(default_factory=dict)
    late: int = 0
    held: int = 0
    unfinished: int = 0
    unsent: int = 0
    checked: int = 0
    wrong: int = 0
    wrong_answers: tuple = ()
    limits: tuple[Sign, ...] = ()
    warm_up: WarmUp = WarmUp(0.0, 0, None)
    partial: str = ""
    started_monotonic_ns: int = 0
    cpu_share: float = 0.0
    earlier_ns: np.ndarray = _NONE
    unjudged: int = 0

    @functools.cached_property
    def ok(self):
        """bool [n]: answered with OK."""
        return self.code == 0

    @functools.cached_property
    def latency_ns(self):
        """int64 [answered]: response times of the requests that were answered, counted from the scheduled instant. In a closed loop that
        is the send; in an open one the wait for a late send is in it; offline it counts from the start."""
        return (self.done_ns - self.scheduled_ns)[self.ok]

    @functools.cached_property
    def service_ns(self):
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
    def seconds(self):
        """Length of the measured stretch."""
        return self.length_ns / 1e9

    @functools.cached_property
    def falling_behind(self):
        """statistics.falling_behind of an open loop: seconds by which the latencies grew for each second of its schedule; else 0."""
        from tftrt_tools.load import statistics

        return statistics.falling_behind(self.scheduled_ns, self.done_ns - self.scheduled_ns) if self.kind == "open" else 0.0

    @functools.cached_property
    def refused_ns(self):
        """For how long at the end of the run nothing but UNAVAILABLE came back, 0 where that were fewer than three requests: the server may
        be gone, or refuse because it has too much to do."""
        ended = np.argsort(self.done_ns, kind="stable")
        others = np.flatnonzero(self.code[ended] != UNAVAILABLE)
        first = int(others[-1]) + 1 if others.size else 0
        if ended.size - first < _FEW:
            return 0
        return max(self.length_ns, int(self.done_ns.max())) - int(self.done_ns[ended[first]])

    @functools.cached_property
    def under_way(self):
        """The most requests that were under way at one time, of those that came to an end."""
        if not self.sent_ns.size:
            return 0
        instants = np.concatenate([self.sent_ns, self.done_ns])
        steps = np.repeat([1, -1], self.sent_ns.size)
        return int(np.cumsum(steps[np.lexsort((steps, instants))]).max())

    def rate(self):
        """Requests answered a second.

        Closed loop: the answers that came inside the stretch, those to requests that were under way when it began included: as many are
        under way at its end. Open loop: the answers to the whole schedule, over its length and the time that the latencies grew by, so
        that the last latency does not count against a server that keeps up. Offline, and for a schedule without length: until the last
        answer.
        """
        from tftrt_tools.load import statistics

        done = self.done_ns[self.ok]
        if done.size and (self.kind == "offline" or (self.kind == "open" and not self.length_ns)):
            return statistics.rate(done, int(self.done_ns.max()) + 1)
        if self.kind == "open" and not self.partial:
            return done.size / (self.seconds * (1 + self.falling_behind)) if self.length_ns else 0.0
        return statistics.rate(np.concatenate([self.earlier_ns, done]), self.length_ns)

    def percentile(self, share, confidence=0.99):
        """statistics.percentile of `latency_ns`."""
        from tftrt_tools.load import statistics

        return statistics.percentile(self.latency_ns, share, confidence)

    def histogram(self):
        """HdrHistogram of `latency_ns`."""
        from tftrt_tools.load import statistics

        return statistics.histogram(self.latency_ns)

    def to_dict(self):
        """The run without its entries: JSON values."""
        kept = ("kind", "late", "held", "unfinished", "unsent", "checked", "wrong", "unjudged", "limited_by_generator", "partial",
                "cpu_share")
        return {"requests": int(self.sent_ns.size), "answered": int(self.ok.sum()), "seconds": self.seconds, "rate": self.rate(),
                **{name: getattr(self, name) for name in kept}, "limits": [one.text for one in self.limits],
                "errors": [one.to_dict() for one in self.errors.values()],
                "wrong_answers": [dataclasses.asdict(one) for one in self.wrong_answers], "warm_up": dataclasses.asdict(self.warm_up)}
