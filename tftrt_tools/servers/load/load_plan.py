"""The description of a load: the server, how much is sent and for how long, the warm-up rule, and the progress of a run."""

import dataclasses
import typing

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.servers.load import schedule

# "closed": a fixed number of requests is always under way. "open": each request has an instant. "offline": all are due at the start.
Kind = typing.Literal["closed", "open", "offline"]
KINDS: tuple[Kind, ...] = typing.get_args(Kind)
# "start" is reported once, directly before the measurement.
Phase = typing.Literal["warm-up", "start", "measure"]


class TlsFiles(typing.Protocol):
    """Names the files of a connection by TLS: client.Tls."""

    @property
    def server_name(self) -> str: ...

    def content(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Root certificates, key and certificate chain, PEM."""


@dataclasses.dataclass(frozen=True)
class Tls:
    """PEM bytes, as grpc.ssl_channel_credentials takes them; server_name: the name in the certificate where it is not the address's."""

    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None
    server_name: str = ""

    @classmethod
    def of(cls, tls: TlsFiles | None) -> "Tls | None":
        """With the content of the files that a client.Tls names; None for None. Raises: UsageError."""
        if tls is None:
            return None
        root, key, chain = tls.content()
        return cls(root, key, chain, tls.server_name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A server, and how to reach it."""

    # "host:port" or "unix:/path".
    address: str
    # None for plain text.
    tls: Tls | None = None
    # Deadline of each request.
    timeout_s: float = 30.0
    # The most connections of a process; a closed loop has no more than it has requests under way.
    channels: int = 4
    # Seconds to wait for the server at the start.
    connect_s: float = 10.0
    # Whether an answer is the expected one if it has the same outermost fields in any order, as a map's entries may come.
    unordered: bool = False


@dataclasses.dataclass(frozen=True)
class WarmUpRule:
    """Warm up until the last `windows` windows of `window_s` agree within `tolerance` (latency_statistics.stable), at most for
    `at_most_s`."""

    window_s: float = 0.5
    windows: int = 3
    tolerance: float = 0.1
    at_most_s: float = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What to send, and for how long. Raises: UsageError where the values do not fit together."""

    kind: Kind = "closed"
    # Requests under way, over all processes, of a closed or offline run.
    concurrency: int = 1
    # The instants of an open run: int64 [n], ns from the start.
    schedule: npt.NDArray[np.int64] | None = None
    # A closed or offline run lasts for so many seconds, and for `min_queries`.
    seconds: float = 10.0
    # Requests that failed count too, so the run also ends if the server is gone. An offline run sends this many and awaits the answers.
    min_queries: int = 0
    # The most requests; None for no bound.
    max_queries: int | None = None
    # Seconds after which a run ends in any case: a closed one even with fewer than min_queries (None: 10 times `seconds`), an open one
    # even with requests to send (None: never).
    max_seconds: float | None = None
    # Worker processes.
    processes: int = 1
    # None: no warm-up.
    warm_up: WarmUpRule | None = WarmUpRule()
    # Requests under way in the warm-up of an open run.
    warm_up_concurrency: int = 4
    # The most requests under way in an open run, over all processes.
    max_outstanding: int = 1000
    # One of so many answers is compared; 0: none.
    check_every: int = 16
    # Judge every compared answer that is not byte for byte the expected one. Otherwise the first 256 (64 MiB) of each process are judged,
    # and the rest is counted (Records.unjudged).
    judge_all: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise errors.UsageError(f"no kind of load {self.kind!r}", f"there are {', '.join(KINDS)}")
        for name in ("concurrency", "processes", "warm_up_concurrency", "max_outstanding"):
            if getattr(self, name) < 1:
                raise errors.UsageError(f"{name} is {getattr(self, name)}", "it has to be 1 or more")
        if (self.kind == "open") != (self.schedule is not None):
            raise errors.UsageError(
                "a schedule belongs to an open load, and to that alone", "make it with load.schedule"
            )
        if self.schedule is not None:
            schedule.checked(self.schedule)
        elif not self.seconds > 0 and not self.min_queries > 0 and not self.max_queries:
            raise errors.UsageError("the run has no length", "set seconds, min_queries or max_queries")
        if self.max_queries is not None and self.max_queries < max(1, self.min_queries):
            raise errors.UsageError(
                f"max_queries {self.max_queries} is below min_queries {self.min_queries}", "raise it"
            )

    @property
    def scheduled(self) -> npt.NDArray[np.int64]:
        """The schedule, int64 [n] ns; [0] for a load without one."""
        return np.zeros(0, np.int64) if self.schedule is None else self.schedule

    @property
    def longest(self) -> float:
        """Seconds after which a closed or offline run ends in any case."""
        return self.max_seconds if self.max_seconds is not None else max(10 * self.seconds, 60.0)


@dataclasses.dataclass(frozen=True)
class Share:
    """Which requests of a load are a generator's, where several send it: request k of the whole where k % of == number."""

    number: int = 0
    of: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a run."""

    phase: Phase
    # Seconds in this phase.
    seconds: float
    # Requests that ended in this phase.
    ended: int
    # The number of those that failed.
    failed: int
    # int64 [n]: latencies of the answers that came since the last call.
    latency_ns: npt.NDArray[np.int64]


def shared(total: int, parts: int) -> list[int]:
    """Whole numbers that add up to `total`, as equal as can be."""
    return [total // parts + (number < total % parts) for number in range(parts)]
