"""What a benchmark found. Text, JSON, CSV and pages are made from these."""

import dataclasses

from tftrt_tools import errors
from tftrt_tools.bench.points import Point

SERVER, IN_PROCESS = "server", "in process"


@dataclasses.dataclass(frozen=True)
class Latency:
    """Times of the requests that went well. count: how many; mean_ms, min_ms, max_ms: None without any; percentiles: {"p99":
    milliseconds, or None where there are too few requests}; needs: {"p99": how many it takes}, for those that are None; below: {"p99":
    milliseconds}, for those that are not: with 99 % confidence the percentile is below that; cdf: ((share, milliseconds), …)."""

    count: int
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    percentiles: dict
    needs: dict
    cdf: tuple = ()
    below: dict = dataclasses.field(default_factory=dict)

    def to_dict(self):
        return {**dataclasses.asdict(self), "cdf": [list(pair) for pair in self.cdf]}

    def text(self, name):
        """A percentile for people: "1.234", or "needs 662" (samples)."""
        value = self.percentiles.get(name)
        return f"{value:.3f}" if value is not None else f"needs {self.needs[name]}"

    def bounds(self):
        """Such as "p50 below 1.2 ms, p99 below 13.1 ms", "" without any."""
        return ", ".join(f"{name} below {value:.3f} ms" for name, value in self.below.items())


@dataclasses.dataclass(frozen=True)
class Error:
    """Requests that failed alike. code: name of the gRPC status; message: of the first."""

    code: str
    count: int
    message: str

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Series:
    """How it went over time, one entry an interval of `seconds` after the warm-up: answers a second, errors a second, median and highest
    response time in milliseconds (None where nothing was answered)."""

    seconds: float
    answered: tuple
    failed: tuple
    p50_ms: tuple
    max_ms: tuple

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Checked:
    """One bound of the goal at one point. value: in the bound's unit (seconds, or a share); kept: None where too few requests say it."""

    bound: str
    value: float | None
    kept: bool | None

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Row:
    """One point, measured.

    target: SERVER or IN_PROCESS. seconds: of the measurement, without the warm-up (warmup_seconds). requests: sent in it; answered: of
    them, well; errors: [Error]; checked, wrong: answers that were compared with the expected ones, and those that differ; unjudged: such
    that are not the same bytes, and were too many to be compared.
    throughput: answers a second; rows_per_second: of inputs. offered, sent_rate: requests a second as scheduled and as really sent (open
    loop). late: sent more than 1 ms after their instant. limited: why the generator, not the server, set the pace; "" where it did not.
    waits: why the generator may have made the tail of the times, or is part of each of them; "" where it is not.
    response: from the scheduled instant (open loop) or the sending; service: from the sending. server, gpus: what was seen meanwhile.
    goal: [Checked]. complete: False where it was interrupted.
    """

    target: str
    point: Point
    seconds: float
    warmup_seconds: float
    requests: int
    answered: int
    errors: tuple
    checked: int
    wrong: int
    throughput: float
    rows_per_second: float
    offered: float | None
    sent_rate: float | None
    late: int
    limited: str
    response: Latency
    service: Latency
    series: Series
    server: object = None
    gpus: tuple = ()
    goal: tuple = ()
    notes: tuple = ()
    complete: bool = True
    probe: bool = False
    unjudged: int = 0
    waits: str = ""

    @property
    def failed(self):
        """Requests that failed."""
        return self.requests - self.answered

    @property
    def kept(self):
        """Whether the goal was kept: True, False, or None where nobody can say or there is none."""
        if not self.goal:
            return None
        if any(one.kept is False for one in self.goal):
            return False
        return None if any(one.kept is None for one in self.goal) else True

    def to_dict(self):
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("point", "response", "service", "series"):
            plain[name] = plain[name].to_dict()
        for name in ("errors", "gpus", "goal"):
            plain[name] = [one.to_dict() for one in plain[name]]
        return {**plain, "server": self.server.to_dict() if self.server else None, "notes": list(self.notes), "failed": self.failed,
                "kept": self.kept}


@dataclasses.dataclass(frozen=True)
class Searched:
    """The highest rate that keeps the goal, at one batch size. rate: None where none does; above: the lowest rate that was not
    shown to; ended: why the search stopped."""

    target: str
    batch_size: int | None
    rate: float | None
    above: float | None
    resolution: float
    ended: str

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Price:
    """What serving costs at one point: the server's median response beside that of the same runtime without a server, and the rates.
    Medians are None where there are too few requests."""

    point: Point
    server_ms: float | None
    in_process_ms: float | None
    server_throughput: float
    in_process_throughput: float

    @property
    def added_ms(self):
        return None if None in (self.server_ms, self.in_process_ms) else self.server_ms - self.in_process_ms

    def to_dict(self):
        return {**dataclasses.asdict(self), "added_ms": self.added_ms}


@dataclasses.dataclass(frozen=True)
class Subject:
    """What was asked. address: "" without a server. model_version: as the server says; model_dir, model_digest, manifest_digest: of the
    files, "" where they are not known; signature; inputs: {name: "float32[?,8]"}; values: where the requests' values are from; requests:
    how many different ones; request_bytes: mean size; shapes: of the requests, as text; compared: what the answers are compared with."""

    address: str
    model_name: str
    model_version: int | None
    model_dir: str
    model_digest: str
    manifest_digest: str
    signature: str
    inputs: dict
    values: str
    requests: int
    request_bytes: int
    shapes: tuple
    compared: str

    def to_dict(self):
        return {**dataclasses.asdict(self), "shapes": list(self.shapes)}


@dataclasses.dataclass(frozen=True)
class Bench:
    """The whole. settings: the flags that decide; versions: {package: version} of what measured; fingerprint: of this machine; goal: text
    of the goal or ""; searched: [Searched]; prices: [Price]; ended: "" where all points were measured, else why not; refused: it ended
    because first answers were wrong."""

    subject: Subject
    settings: dict
    versions: dict
    fingerprint: object
    stamp: dict
    rows: tuple
    goal: str = ""
    searched: tuple = ()
    prices: tuple = ()
    notes: tuple = ()
    problems: tuple = ()
    ended: str = ""
    refused: bool = False

    @property
    def complete(self):
        return not self.ended and all(row.complete for row in self.rows)

    @property
    def exit_code(self):
        """1 where nothing was answered or something was cut short, 3 where a check does not hold."""
        if self.refused:
            return errors.EXIT_CHECK
        if not self.complete or not any(row.answered for row in self.rows):
            return errors.EXIT_FAILED
        return errors.EXIT_CHECK if self.problems else errors.EXIT_DONE

    def to_dict(self):
        return {"kind": "bench", "schema_version": 1, **self.stamp, "complete": self.complete, "ended": self.ended,
                "subject": self.subject.to_dict(), "settings": self.settings, "versions": self.versions,
                "machine": self.fingerprint.to_dict(), "goal": self.goal, "rows": [row.to_dict() for row in self.rows],
                "searched": [one.to_dict() for one in self.searched], "prices": [one.to_dict() for one in self.prices],
                "notes": list(self.notes), "problems": list(self.problems)}
