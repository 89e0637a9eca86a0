"""A client's connection: which thread reads it, and when the system is to report on it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

from tftrt_tools.serving.local import failure
from tftrt_tools.serving.local.http2.call import Call
from tftrt_tools.serving.local.http2.incoming import GREETING, Incoming
from tftrt_tools.wire.http2_job import frames, hpack
from tftrt_tools.wire.http2_job.outgoing import Outgoing

_GRPC = (b"content-type", b"application/grpc")
_START = hpack.ok_block([_GRPC, (b"grpc-accept-encoding", b"identity, deflate, gzip")])
_OK = hpack.block([(b"grpc-status", b"0")])


class Connection:
    """Args: own: the socket, handed over. poll: where it is registered; each report on it is given once, until it is armed again. on_end:
    called once with this, when it has ended.

    Attributes: number: its descriptor.
    """

    def __init__(self, own: socket.socket, poll: select.epoll, on_end: Callable[[Connection], object]) -> None:
        self._own, self._poll, self._on_end = own, poll, on_end
        self.number = own.fileno()
        self._lock = threading.Lock()
        self._reading = self._closed = False
        self._outgoing = Outgoing(own)
        self._incoming = Incoming(own, self._outgoing)

    def begin(self) -> None:
        """Greet the client, and let the system report on it."""
        with self._guarded():
            self._outgoing.send(GREETING)
        with self._lock:
            if not self._closed:
                self._poll.register(self.number, select.EPOLLIN | select.EPOLLONESHOT)

    def report(self, events: int) -> list[Call]:
        """Read and write what the system reported. Returns: the calls that are complete now."""
        complete: list[Call] = []
        with self._lock:
            mine = not self._reading and bool(events & ~select.EPOLLOUT)
            self._reading = self._reading or mine
        with self._guarded():
            if events & select.EPOLLOUT:
                self._outgoing.flush()
            if mine:
                found = self._incoming.read()
                if found is None:
                    self.close()
                complete = found or []
        if mine:
            self._reading = False
        self._arm()
        return complete

    def answer(self, call: Call, message: Sequence[bytes | memoryview]) -> None:
        """Send the answer's message, bytes in parts."""
        if call.cancelled:
            return
        size = sum(memoryview(part).nbytes for part in message)
        stream = call.stream
        with self._guarded():
            self._outgoing.message(stream, frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _START),
                                   [b"\x00" + size.to_bytes(4, "big"), *message],
                                   frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, _OK))
            # Only now: a window that the client widens meanwhile is that of a call.
            self._incoming.calls.pop(stream, None)
            self._outgoing.forget(stream, call.cancelled)
        if self._outgoing.waits:
            self._arm()

    def refuse(self, call: Call, problem: failure.Failure) -> None:
        """Send a status."""
        if call.cancelled or self._incoming.calls.pop(call.stream, None) is None:
            return
        block = hpack.ok_block([_GRPC, (b"grpc-status", str(problem.number).encode()), (b"grpc-message", _percent(problem.grpc_message))])
        with self._guarded():
            self._outgoing.send(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, call.stream, block))
        if self._outgoing.waits:
            self._arm()

    def refuse_new(self) -> None:
        """Tell the client to begin no more calls here."""
        self._incoming.refusing = True
        with self._guarded():
            self._outgoing.send(frames.goaway(self._incoming.last, frames.NO_ERROR))

    def close(self) -> None:
        """End it; its answers are dropped. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for call in list(self._incoming.calls.values()):
                call.cancelled = True
            with contextlib.suppress(OSError, ValueError):
                self._poll.unregister(self.number)
            with contextlib.suppress(OSError):
                self._own.shutdown(socket.SHUT_RDWR)
        # The descriptor is closed with the last thread that uses this object: until then no other connection may have its number.
        self._on_end(self)

    def _arm(self) -> None:
        with self._lock:
            if not self._closed:
                wanted = (0 if self._reading else select.EPOLLIN) | (select.EPOLLOUT if self._outgoing.waits else 0)
                self._poll.modify(self.number, wanted | select.EPOLLONESHOT)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A fault of the connection ends it."""
        try:
            yield
        except frames.BrokenConnection as error:
            with contextlib.suppress(OSError):
                self._outgoing.send(frames.goaway(self._incoming.last, error.code))
            self.close()
        except OSError:
            self.close()


def _percent(text: str) -> bytes:
    """As gRPC writes a message: printable ASCII as it is."""
    return b"".join(bytes([byte]) if 32 <= byte < 127 and byte != 37 else b"%%%02X" % byte for byte in text.encode("utf-8", "replace"))
