"""One HTTP/2 connection of a worker, which sends a payload's requests as gRPC calls."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from tftrt_tools.base.wire.http2_job import control, frames, hpack
from tftrt_tools.base.wire.http2_job.outgoing import Outgoing
from tftrt_tools.servers.load.request_entries import UNAVAILABLE, clock

_CHUNK = 1 << 18
_FRAME_SIZE = 1 << 18
_INTERNAL, _CANCELLED, _DEADLINE = 13, 1, 4
_CANCEL = 8  # of RST_STREAM
_PREFIX_BYTES = 5
# gRPC's statuses by number.
NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


class Refused(Exception):
    """A call that failed. code: gRPC's number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Reply:
    """The future answer of one call: drive_job.Future."""

    __slots__ = ("until", "parts", "_error", "_callback", "_turns")

    def __init__(self, until: int) -> None:
        self.until = until  # its deadline
        self.parts: list[bytes] = []
        self._error: Refused | None = None
        self._callback: Callable[[Any], object] | None = None
        self._turns = [None]  # whoever comes second, the answer or the callback, finds it empty

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn` with this when the call has ended, or now."""
        self._callback = fn
        self._meet()

    def end(self, error: Refused | None) -> None:
        """The call has ended. Once."""
        self._error = error
        self._meet()

    def exception(self) -> Refused | None:
        return self._error

    def result(self) -> bytes:
        """The answer's message."""
        return b"".join(self.parts)[_PREFIX_BYTES:]

    def _meet(self) -> None:
        try:
            self._turns.pop()
        except IndexError:
            if self._callback:
                self._callback(self)


class Connection:
    """Args: own: a connected socket. headers: of each request. timeout_ns: of each call. requests: the messages.

    One thread calls `receive` and `expire`; any thread calls `call`.

    Attributes: ready: the server has greeted. lost: it can be used no more, and all calls on it have ended.
    """

    def __init__(
        self, own: socket.socket, headers: Sequence[hpack.Header], timeout_ns: int, requests: Sequence[bytes]
    ) -> None:
        self.socket, self._timeout = own, timeout_ns
        self.ready = self.lost = self._leaving = self._ends = False
        self._messages = [[b"\x00" + len(request).to_bytes(4, "big"), request] for request in requests]
        self._outgoing = Outgoing(own)
        self._plain = hpack.block(headers)
        self._first, self._later = hpack.repeated(headers)
        self._needed = hpack.table_bytes(headers)
        self._decoder = hpack.Decoder()
        self._lock = threading.Lock()
        self._stream = 1
        self._pending: dict[int, Reply] = {}
        self._rest = b""
        self._received = 0
        self._block = b""
        self._outgoing.send(frames.PREFACE + control.greeting(_FRAME_SIZE))

    @property
    def waits(self) -> bool:
        """Whether the socket was full."""
        return self._outgoing.waits

    def call(self, index: int) -> Reply:
        """Send a request."""
        reply = Reply(clock() + self._timeout)
        with self._lock:
            if self.lost or self._leaving:
                reply.end(Refused(UNAVAILABLE, "the connection was lost"))
                return reply
            stream = self._stream
            self._stream = stream + 2
            self._pending[stream] = reply
            if self._outgoing.table_size < self._needed:
                block = self._plain
            else:
                block = self._first if stream == 1 else self._later
            start = frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block)
            try:
                self._outgoing.message(stream, start, self._messages[index])
                return reply
            except OSError as error:
                problem = error
        self.lose(str(problem))
        return reply

    def flush(self) -> None:
        """The socket takes bytes again."""
        try:
            self._outgoing.flush()
        except OSError as error:
            self.lose(str(error))

    def receive(self) -> None:
        """Take in what came."""
        try:
            data = self.socket.recv(_CHUNK)
            if data:
                self._feed(data)
            else:
                self.lose("Socket closed")
        except BlockingIOError:
            pass
        except OSError as error:
            self.lose(str(error))
        except frames.BrokenConnection as error:
            self.lose(f"the server broke HTTP/2: {error}")

    def expire(self, now: int) -> None:
        """End the calls whose time is over. They are in the order of their deadlines."""
        while True:
            try:
                stream, reply = next(iter(self._pending.items()))
            except (StopIteration, RuntimeError):  # none, or another thread sent one at this moment
                return
            if reply.until > now:
                return
            self._outgoing.forget(stream)
            with contextlib.suppress(OSError):
                self._outgoing.send(frames.number(frames.RST_STREAM, stream, _CANCEL))
            self._end(stream, Refused(_DEADLINE, "Deadline Exceeded"))

    def lose(self, text: str, code: int = UNAVAILABLE) -> None:
        """Give the connection up: its calls end."""
        with self._lock:
            if self.lost:
                return
            self.lost = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        for stream in list(self._pending):
            self._end(stream, Refused(code, text))

    def give_up(self) -> None:
        """End all calls at once."""
        self.lose("the load generator gave up", _CANCELLED)

    def _end(self, stream: int, error: Refused | None) -> None:
        reply = self._pending.pop(stream, None)
        if reply:
            reply.end(error)
        if self._leaving and not self._pending:
            self.lose("the server takes no more calls")

    def _feed(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > frames.LARGEST_WINDOW // 2:
            self._outgoing.send(frames.number(frames.WINDOW_UPDATE, 0, self._received))
            self._received = 0
        whole = self._rest + data if self._rest else data
        at, end = 0, len(whole)
        while end - at >= frames.HEAD_BYTES:
            size, kind, flags, stream = frames.read_head(whole, at)
            if size > _FRAME_SIZE:
                raise frames.BrokenConnection(frames.FRAME_SIZE_ERROR, "a frame is too large")
            behind = at + frames.HEAD_BYTES + size
            if behind > end:
                break
            self._frame(kind, flags, stream, whole[at + frames.HEAD_BYTES : behind])
            at = behind
        self._rest = whole[at:]

    def _frame(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind in (frames.DATA, frames.HEADERS):
            if flags & frames.PADDED:
                content = content[1 : len(content) - content[0]]
            if kind == frames.DATA:
                reply = self._pending.get(stream)
                if reply:
                    reply.parts.append(content)
                if flags & frames.END_STREAM:
                    self._end(stream, Refused(_INTERNAL, "the answer has no status"))
                return
            self._block = content[5 if flags & frames.HAS_PRIORITY else 0 :]
            self._ends = bool(flags & frames.END_STREAM)
            self._headers(flags, stream)
        elif kind == frames.CONTINUATION:
            self._block += content
            self._headers(flags, stream)
        elif kind == frames.RST_STREAM:
            self._outgoing.forget(stream)
            self._end(
                stream, Refused(UNAVAILABLE, f"the server reset the call with code {frames.read_number(content)}")
            )
        elif kind == frames.GOAWAY:
            self._leaving = True
            last = int.from_bytes(content[:4], "big")
            for unseen in [0, *(number for number in list(self._pending) if number > last)]:
                self._end(unseen, Refused(UNAVAILABLE, "the server takes no more calls"))
        else:
            self.ready = self.ready or kind == frames.SETTINGS
            control.take(kind, flags, stream, content, self._outgoing, stream in self._pending)

    def _headers(self, flags: int, stream: int) -> None:
        if not flags & frames.END_HEADERS:
            return
        try:
            headers = self._decoder.read(self._block)
        except ValueError as error:
            raise frames.BrokenConnection(frames.COMPRESSION_ERROR, str(error)) from None
        if not self._ends:
            return
        status = headers.get(b"grpc-status")
        if status == b"0":
            self._end(stream, None)
            return
        code = int(status) if status is not None and status.isdigit() else _INTERNAL
        text = urllib.parse.unquote_to_bytes(headers.get(b"grpc-message", b"")).decode("utf-8", "replace")
        if status is None:
            text = f"an answer without a gRPC status, HTTP {headers.get(b':status', b'?').decode('latin-1')}"
        self._end(stream, Refused(code, text))
