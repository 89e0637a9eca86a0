"""Listens, and answers gRPC's unary calls in threads that also read: most calls never change theirs.

All threads wait on one epoll. The one that is woken reads the connection; while it works on a call that came, the next report wakes
another. So no thread hands its call to another one, except where several calls came at once.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Mapping

from tftrt_tools.serving.local import failure
from tftrt_tools.serving.local.grpc_methods import Method
from tftrt_tools.serving.local.http2.call import Call
from tftrt_tools.serving.local.http2.connection import Connection

_log = logging.getLogger("tftrt.serving")
_BACKLOG = 1024
_POLL_S = 0.05


class Http2Server:
    """Args: methods: of grpc_methods.table. threads: the most, each started when no other waits."""

    def __init__(self, methods: Mapping[str, Method], threads: int) -> None:
        self._methods, self._most = methods, threads
        self._poll = select.epoll()
        self._listening: dict[int, socket.socket] = {}
        self._connections: dict[int, Connection] = {}
        self._waiting: collections.deque[tuple[Connection, Call]] = collections.deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._poll.register(self._wake, select.EPOLLIN)
        self._lock = threading.Lock()
        self._threads = self._idle = self._working = 0
        self._stopping = False

    def listen(self, address: str) -> int:
        """Bind "host:port" or "unix:path". Returns: the port, 1 for a path. Raises: OSError."""
        if address.startswith("unix:"):
            self._add(_unix(address.removeprefix("unix:")))
            return 1
        host, _, text = address.rpartition(":")
        port = int(text)
        for family, kind, protocol, _, place in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            own = socket.socket(family, kind, protocol)
            try:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                own.bind((place[0], port, *place[2:]))
                own.listen(_BACKLOG)
            except OSError:
                own.close()
                raise
            port = own.getsockname()[1]
            self._add(own)
        return port

    def start(self) -> None:
        """Answer from now on."""
        for own in self._listening.values():
            self._poll.register(own.fileno(), select.EPOLLIN)
        self._more_threads()

    def stop(self, seconds: float) -> None:
        """Take no more calls, wait at most so long for those that run, then end all connections."""
        self._stopping = True
        for own in self._listening.values():
            with contextlib.suppress(OSError, ValueError):
                self._poll.unregister(own.fileno())
            own.close()
        for connection in list(self._connections.values()):
            connection.refuse_new()
        until = time.monotonic() + seconds
        while self._working and time.monotonic() < until:
            time.sleep(_POLL_S)
        for connection in list(self._connections.values()):
            connection.close()

    def _add(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._listening[own.fileno()] = own

    def _more_threads(self) -> None:
        """Start one more where none is left to wait, up to the most."""
        with self._lock:
            if self._idle or self._threads >= self._most:
                return
            self._threads += 1
            self._idle += 1
            number = self._threads
        threading.Thread(target=self._run, name=f"grpc-{number}", daemon=True).start()

    def _run(self) -> None:
        while True:
            for number, events in self._poll.poll(maxevents=1):
                with self._lock:
                    self._idle -= 1
                try:
                    self._report(number, events)
                except Exception:
                    _log.exception("a connection failed")
                with self._lock:
                    self._idle += 1

    def _report(self, number: int, events: int) -> None:
        if number in self._listening:
            self._accept(self._listening[number])
        elif number == self._wake:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
                self._work(*self._waiting.popleft())
        elif connection := self._connections.get(number):
            calls = connection.report(events)
            if calls:
                first, *others = [(connection, call) for call in calls]
                self._waiting.extend(others)
                if others:
                    os.eventfd_write(self._wake, len(others))
                self._work(*first)

    def _accept(self, own: socket.socket) -> None:
        with contextlib.suppress(OSError):
            found, _ = own.accept()
            found.setblocking(False)
            if found.family != socket.AF_UNIX:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._connections[found.fileno()] = Connection(found, self._poll, self._ended)
            connection.begin()

    def _ended(self, connection: Connection) -> None:
        if self._connections.get(connection.number) is connection:
            del self._connections[connection.number]

    def _work(self, connection: Connection, call: Call) -> None:
        with self._lock:
            self._working += 1
        self._more_threads()
        try:
            if call.cancelled:
                return
            method = self._methods.get(call.path)
            if method is None:
                raise failure.unimplemented("Method not found!")
            connection.answer(call, method(call.message(), call.timeout_ms()))
        except failure.Failure as error:
            connection.refuse(call, error)
        finally:
            with self._lock:
                self._working -= 1


def _unix(path: str) -> socket.socket:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    own = socket.socket(socket.AF_UNIX)
    try:
        own.bind(path)
        own.listen(_BACKLOG)
    except OSError:
        own.close()
        raise
    return own
