"""The connections of a worker to a server without TLS, over this project's HTTP/2: one thread reads all of them, notes when each answer
came and sends the next request. grpc's own client changes the thread for each answer."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

from tftrt_tools.base.wire.http2_job import hpack
from tftrt_tools.servers.load import drive_job
from tftrt_tools.servers.load.http2_connection_job import NAMES, Connection, Refused, Reply
from tftrt_tools.servers.load.request_entries import UNAVAILABLE, clock

_LOOK_S = 0.05
_LOOK_NS = 50_000_000
_AGAIN_S, _ATTEMPT_S = 0.1, 1.0
_UNKNOWN = 2


class NoServer(Exception):
    """No server answers in time."""


def place(address: str) -> tuple[str, int] | str | None:
    """(host, port) of "host:port", the path of "unix:path", None for other forms of gRPC's addresses."""
    if address.startswith("unix:") and not address.startswith("unix://"):
        return address.removeprefix("unix:")
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return (
        (host, int(port))
        if host and port.isascii() and port.isdigit() and (":" not in host or address.startswith("["))
        else None
    )


class Http2Calls:
    """Args: address: text; where: its `place`; channels: connections; method: "/package.Service/Method"; requests: messages; timeout_s: of
    each; connect_s: for the server's first answer.

    Attributes: count: requests. calls: for each connection, its drive_job.Call.

    Raises: NoServer.
    """

    def __init__(
        self,
        address: str,
        where: tuple[str, int] | str,
        *,
        channels: int,
        method: str,
        requests: Sequence[bytes],
        timeout_s: float,
        connect_s: float,
    ) -> None:
        self.count = len(requests)
        self._where, self._requests, self._timeout = where, requests, timeout_s
        authority = "localhost" if isinstance(where, str) else address
        milliseconds = min(max(int(1000 * timeout_s), 1), 99_999_999)
        self._headers: list[hpack.Header] = [
            (name.encode(), value.encode())
            for name, value in (
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", authority),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "tftrt-load"),
                ("grpc-timeout", f"{milliseconds}m"),
            )
        ]
        self._poll = select.epoll()
        self._ended = False
        self._numbers: dict[int, _Slot] = {}
        self._slots = [_Slot(self._made, self._poll, self._numbers) for _ in range(channels)]
        self._connect(connect_s)
        self.calls: list[drive_job.Call] = [slot.call for slot in self._slots]
        threading.Thread(target=self._run, daemon=True).start()
        threading.Thread(target=self._again, daemon=True).start()

    def explain(self, error: BaseException) -> tuple[int, str, str]:
        """(code, its name, message)."""
        code = error.code if isinstance(error, Refused) else _UNKNOWN
        return code, NAMES[code] if code < len(NAMES) else f"code {code}", str(error)

    def close(self) -> None:
        """Give up the outstanding requests."""
        self._ended = True
        for slot in self._slots:
            if slot.connection:
                slot.connection.give_up()

    def _connect(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not all(slot.ready for slot in self._slots):
            if any(slot.lost for slot in self._slots):
                time.sleep(_AGAIN_S * any(slot.problem.startswith("failed") for slot in self._slots))
            for slot in self._slots:
                if slot.lost:
                    slot.renew()
            for number, events in self._poll.poll(_AGAIN_S):
                self._numbers[number].report(events)
            if time.monotonic() > until:
                self.close()
                raise NoServer

    def _made(self) -> Connection:
        """Make a new connection. Raises: OSError."""
        if isinstance(self._where, str):
            own = socket.socket(socket.AF_UNIX)
            own.settimeout(_ATTEMPT_S)
            own.connect(self._where)
        else:
            own = socket.create_connection(self._where, _ATTEMPT_S)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setblocking(False)
        return Connection(own, self._headers, int(self._timeout * 1e9), self._requests)

    def _run(self) -> None:
        """Read all connections."""
        look = clock() + _LOOK_NS
        while not self._ended:
            for number, events in self._poll.poll(_LOOK_S):
                self._numbers[number].report(events)
            now = clock()
            if now > look:
                look = now + _LOOK_NS
                for slot in self._slots:
                    if slot.connection:
                        slot.connection.expire(now)

    def _again(self) -> None:
        """Bring lost connections back."""
        while not self._ended:
            time.sleep(_AGAIN_S)
            for slot in self._slots:
                if slot.lost and not self._ended:
                    slot.renew()


class _Slot:
    """A connection, and those that follow it when it is lost.

    Args: made: a new connection, or raises OSError. poll: reports on all of them. numbers: {descriptor: slot}, for those reports.
    """

    def __init__(self, made: Callable[[], Connection], poll: select.epoll, numbers: dict[int, _Slot]) -> None:
        self._made, self._poll, self._numbers = made, poll, numbers
        self.connection: Connection | None = None
        self.problem = "it was not tried"

    @property
    def ready(self) -> bool:
        """Whether the server has sent its SETTINGS."""
        return self.connection is not None and self.connection.ready

    @property
    def lost(self) -> bool:
        """Whether the slot needs another connection."""
        return self.connection is None or self.connection.lost

    def renew(self) -> None:
        """Connect again, if the server is there."""
        try:
            connection = self._made()
        except OSError as error:
            self.connection, self.problem = None, f"failed to connect: {error.strerror or error}"
            return
        number = connection.socket.fileno()
        self.connection, self._numbers[number] = connection, self
        self._poll.register(number, select.EPOLLIN)

    def call(self, index: int) -> Reply:
        """Send a request; without a connection it fails at once."""
        connection = self.connection
        if connection is None:
            reply = Reply(0)
            reply.end(Refused(UNAVAILABLE, self.problem))
            return reply
        reply = connection.call(index)
        if connection.waits:
            self._watch(connection)
        return reply

    def report(self, events: int) -> None:
        """Handle what the system reports of the connection. Args: events: of epoll."""
        connection = self.connection
        if connection is None:
            return
        if events & select.EPOLLOUT:
            connection.flush()
            self._watch(connection)
        if events & ~select.EPOLLOUT:
            connection.receive()
            if connection.waits:  # the server has widened a window, and what it let go on has filled the socket
                self._watch(connection)
        if connection.lost:
            with contextlib.suppress(OSError, ValueError):
                self._poll.unregister(connection.socket.fileno())

    def _watch(self, connection: Connection) -> None:
        with contextlib.suppress(OSError, ValueError):  # it was lost meanwhile
            self._poll.modify(connection.socket.fileno(), select.EPOLLIN | (select.EPOLLOUT if connection.waits else 0))
