"""The result of a benchmark. Text, JSON, CSV and pages are made from these classes."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors, records, results
from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.servers.client import serving_error
from tftrt_tools.servers.load.run_record import Generator
from tftrt_tools.studies.bench.gpu_watch import Use
from tftrt_tools.studies.bench.points import Point
from tftrt_tools.studies.bench.server_metrics import ServerSide

if typing.TYPE_CHECKING:
    from tftrt_tools.studies.bench.breakdown import Breakdown

SERVER, IN_PROCESS = "server", "in process"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency(records.Record):
    """Times of the requests that went well, in milliseconds."""

    # How many requests.
    count: int
    # None without any.
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    # {"p99": milliseconds, or None where there are too few requests}.
    percentiles: Mapping[str, float | None]
    # {"p99": how many requests it needs}, for percentiles that are None.
    needs: Mapping[str, int]
    # (share, milliseconds) of the distribution.
    cdf: tuple[tuple[float, float], ...] = ()
    # {"p99": milliseconds}, for percentiles that are not None: with 99 % confidence the percentile is below this.
    below: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def text(self, name: str) -> str:
        """A percentile for people: "1.234", or "needs 662" (samples)."""
        value = self.percentiles.get(name)
        return f"{value:.3f}" if value is not None else f"needs {self.needs[name]}"

    def bounds(self) -> str:
        """Such as "p50 below 1.2 ms, p99 below 13.1 ms", "" without any."""
        return ", ".join(f"{name} below {value:.3f} ms" for name, value in self.below.items())


@dataclasses.dataclass(frozen=True)
class Error(records.Record):
    """Requests that failed in the same way. code: name of the gRPC status; message: of the first."""

    code: str
    count: int
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series(records.Record):
    """The course over time, an entry for each interval after the warm-up."""

    # Length of an interval.
    seconds: float
    # Answers and errors a second.
    answered: tuple[float, ...]
    failed: tuple[float, ...]
    # Median and highest response time in milliseconds, None where nothing was answered.
    p50_ms: tuple[float | None, ...]
    max_ms: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True)
class Checked(records.Record):
    """One bound of the goal at one point. value: in the bound's unit (seconds, or a share); kept: None where there are too few requests
    to decide."""

    bound: str
    value: float | None
    kept: bool | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(records.Record):
    """One point, measured."""

    written_too: typing.ClassVar[tuple[str, ...]] = ("failed", "refused", "kept")

    # SERVER or IN_PROCESS.
    target: str
    # What was offered.
    point: Point
    # Seconds of the measurement, and of the warm-up before it.
    seconds: float
    warmup_seconds: float
    # Requests sent in the measurement, and how many of them succeeded.
    requests: int
    answered: int
    errors: tuple[Error, ...]
    # Answers that were compared with the expected ones, and those that differ.
    checked: int
    wrong: int
    # Answers a second, and rows of inputs a second.
    throughput: float
    rows_per_second: float
    # In an open loop: requests a second, scheduled and really sent.
    offered: float | None
    sent_rate: float | None
    # Requests sent more than 1 ms after their instant.
    late: int
    # Why the load generator, not the server, limited the rate; "" where it did not.
    limited: str
    # Times from the scheduled instant (open loop) or from the sending.
    response: Latency
    # Times from the sending.
    service: Latency
    series: Series
    # The server's counters and the GPUs during the measurement.
    server: ServerSide | None = None
    gpus: tuple[Use, ...] = ()
    goal: tuple[Checked, ...] = ()
    # Lines for people.
    notes: tuple[str, ...] = ()
    # False where it was interrupted.
    complete: bool = True
    # Whether it belongs to the search for a rate.
    probe: bool = False
    # Answers whose bytes differ from the expected ones, and that were not compared because there were too many.
    unjudged: int = 0
    # Why the load generator may have caused the tail of the times, or adds to each of them; "" where it does not.
    waits: str = ""
    # What each generator did, where other machines sent the load.
    generators: tuple[Generator, ...] = ()

    @property
    def failed(self) -> int:
        """Requests that failed."""
        return self.requests - self.answered

    @property
    def refused(self) -> int:
        """Requests that the server refused because it had no gRPC thread left."""
        return sum(one.count for one in self.errors if serving_error.no_thread_left(one.code, one.message))

    @property
    def kept(self) -> bool | None:
        """Whether the goal was kept: True, False, or None if the requests do not decide it or there is no goal. A row that is not
        complete lacks requests, so it never was shown to keep it."""
        if not self.goal:
            return None
        if any(one.kept is False for one in self.goal):
            return False
        return True if self.complete and all(one.kept for one in self.goal) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searched(records.Record):
    """The highest rate that keeps the goal, at one batch size."""

    target: str
    batch_size: int | None
    # Requests a second; None where no rate keeps the goal.
    rate: float | None
    # The lowest rate that was not shown to keep it.
    above: float | None
    # (above - rate) / rate at which the search stops.
    resolution: float
    # Why the search stopped, in words.
    ended: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Price(records.Record):
    """What serving costs at one point: the server beside the same runtime without a server."""

    written_too: typing.ClassVar[tuple[str, ...]] = ("added_ms",)

    point: Point
    # Median response times, None where there are too few requests.
    server_ms: float | None
    in_process_ms: float | None
    # Answers a second.
    server_throughput: float
    in_process_throughput: float

    @property
    def added_ms(self) -> float | None:
        return None if self.server_ms is None or self.in_process_ms is None else self.server_ms - self.in_process_ms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject(records.Record):
    """What was asked."""

    # HOST:PORT, "" without a server.
    address: str
    model_name: str
    # As the server names them.
    model_version: int | None
    # The files and their digests, "" where they are not known.
    model_dir: str
    model_digest: str
    manifest_digest: str
    signature: str
    # {name: "float32[?,8]"}.
    inputs: Mapping[str, str]
    # Where the requests' values come from, in words.
    values: str
    # How many different requests, and their mean size in bytes.
    requests: int
    request_bytes: int
    # Shapes of the requests, as text.
    shapes: tuple[str, ...]
    # What the answers are compared with, in words.
    compared: str


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Bench(results.Result):
    """A whole benchmark."""

    subject: Subject
    # {flag: value} of the flags that were set.
    settings: Mapping[str, Any]
    # {package: version} of the measuring side.
    versions: Mapping[str, str]
    # Facts about this machine.
    fingerprint: Fingerprint
    # Tool, version and time, as passport.stamp gives them.
    stamp: Mapping[str, str]
    rows: tuple[Row, ...]
    # Text of the goal, or "".
    goal: str = ""
    searched: tuple[Searched, ...] = ()
    prices: tuple[Price, ...] = ()
    # Where a request's time goes, one for each of the server's rows; () unless it was asked for.
    breakdowns: "tuple[Breakdown, ...]" = ()
    # Lines for people; and the reasons why the check fails, a line each.
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    # "" where all points were measured, else the reason of the early end.
    ended: str = ""
    # Whether it ended because first answers were wrong.
    refused: bool = False

    document: typing.ClassVar[str] = "bench"

    def summary(self) -> str:
        """As Result.summary."""
        each = [
            f"{row.target}, {row.point.text()}: {row.throughput:.1f} answers/s, p50 {row.response.text('p50')} ms"
            for row in self.rows
        ]
        return "; ".join([*each, *([f"ended early: {self.ended}"] if self.ended else [])])

    @property
    def complete(self) -> bool:
        return not self.ended and all(row.complete for row in self.rows)

    @property
    def exit_code(self) -> int:
        """1 if nothing was answered or the benchmark ended early, 3 if a check fails."""
        if self.refused:
            return errors.EXIT_CHECK
        if not self.complete or not any(row.answered for row in self.rows):
            return errors.EXIT_FAILED
        return errors.EXIT_CHECK if self.problems else errors.EXIT_DONE

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: the document begins with the way it ended, and has other names for the machine's facts."""
        return {
            "kind": "bench",
            "schema_version": 1,
            **self.stamp,
            "complete": self.complete,
            "ended": self.ended,
            "subject": self.subject.to_dict(),
            "settings": self.settings,
            "versions": self.versions,
            "machine": self.fingerprint.to_dict(),
            "goal": self.goal,
            "rows": [row.to_dict() for row in self.rows],
            "searched": [one.to_dict() for one in self.searched],
            "prices": [one.to_dict() for one in self.prices],
            "breakdowns": [one.to_dict() for one in self.breakdowns],
            "notes": list(self.notes),
            "problems": list(self.problems),
        }
