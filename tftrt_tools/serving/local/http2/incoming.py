"""What a connection receives: bytes become frames, and frames become calls. One thread at a time."""

from __future__ import annotations

import socket

from tftrt_tools.serving.local.http2.call import Call
from tftrt_tools.wire.http2_job import control, frames, hpack
from tftrt_tools.wire.http2_job.outgoing import Outgoing

_CHUNK = 1 << 16
# Bytes of a header block, and of a frame that is not DATA.
_LARGEST_BLOCK = 1 << 20
_FRAME_SIZE = 1 << 20  # that a client may send
_HALF_WINDOW = 1 << 30
# Data that one thread takes before it looks at other connections.
_TURN = 1 << 26
GREETING = control.greeting(_FRAME_SIZE)


class Incoming:
    """Args: source: the socket, which does not block. outgoing: for what frames ask for at once.

    Attributes: calls: {stream: Call} that are not answered yet; whoever answers one removes it. last: the latest stream. refusing: no call
      begins any more.
    """

    def __init__(self, source: socket.socket, outgoing: Outgoing) -> None:
        self.calls: dict[int, Call] = {}
        self.last = 0
        self.refusing = False
        self._source, self._outgoing = source, outgoing
        self._headers = hpack.Decoder()
        self._bytes = b""  # what came and is no whole frame yet
        self._greeted = False
        self._block: tuple[int, bool, bytearray] | None = None  # stream, END_STREAM and the bytes of a block that goes on
        # Of the DATA frame that is being received.
        self._data: Call | None = None
        self._data_left = 0
        self._data_ends = False
        self._received = 0  # bytes that the connection's window lost

    def read(self) -> list[Call] | None:
        """Take in what has come. Returns: the calls whose requests are complete now; None where the client has closed the connection.

        Raises: BrokenConnection, OSError.
        """
        complete: list[Call] = []
        taken = 0
        while taken < _TURN and not complete:
            try:
                size = self._receive(complete)
            except BlockingIOError:
                break
            if not size:
                return None
            taken += size
            if size < _CHUNK and not self._data_left:
                break  # that was all
        if self._received > _HALF_WINDOW:
            self._outgoing.send(frames.number(frames.WINDOW_UPDATE, 0, self._received))
            self._received = 0
        return complete

    def _receive(self, complete: list[Call]) -> int:
        """One call of the system: the middle of a large frame goes to its place at once. Returns: bytes, 0 at the end."""
        if self._data and self._data_left > _CHUNK and len(room := self._data.room()[:self._data_left]) > _CHUNK:
            size = self._source.recv_into(room)
            self._data.placed(size)
            self._pass(size, complete)
            return size
        data = self._source.recv(_CHUNK)
        self._feed(data, complete)
        return len(data)

    def _feed(self, data: bytes, complete: list[Call]) -> None:
        whole = memoryview(self._bytes + data if self._bytes else data)
        self._bytes = b""
        at = 0
        if not self._greeted:
            if whole[:len(frames.PREFACE)] != frames.PREFACE[:len(whole)]:
                raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "no HTTP/2")
            self._greeted, at = len(whole) >= len(frames.PREFACE), len(frames.PREFACE)
            if not self._greeted:
                self._bytes = bytes(whole)
                return
        while at < len(whole):
            if self._data_left:
                part = whole[at:at + self._data_left]
                if self._data:
                    self._data.feed(part)
                at += len(part)
                self._pass(len(part), complete)
                continue
            behind = self._frame(whole, at, complete)
            if not behind:
                self._bytes = bytes(whole[at:])
                return
            at = behind

    def _frame(self, whole: memoryview, at: int, complete: list[Call]) -> int:
        """Take in the frame that begins at `at`, of DATA its first bytes. Returns: the place behind it, 0 where it is not whole yet."""
        start = at + frames.HEAD_BYTES
        if start > len(whole):
            return 0
        size, kind, flags, stream = frames.read_head(whole, at)
        if size > _FRAME_SIZE:
            raise frames.BrokenConnection(frames.FRAME_SIZE_ERROR, "a frame is too large")
        if self._block and (kind != frames.CONTINUATION or stream != self._block[0]):
            raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "a header block does not go on")
        if kind == frames.DATA and not flags & frames.PADDED:
            self._begin_data(stream, size, flags, complete)
            return start
        if start + size > len(whole):
            return 0
        self._take(kind, flags, stream, whole[start:start + size], complete)
        return start + size

    def _take(self, kind: int, flags: int, stream: int, content: memoryview, complete: list[Call]) -> None:
        """A whole frame."""
        if kind == frames.DATA:
            self._begin_data(stream, len(content), flags, complete)
            data = _unpadded(content)
            if self._data:
                self._data.feed(data)
            self._pass(len(content), complete)
        elif kind == frames.HEADERS:
            data = _unpadded(content) if flags & frames.PADDED else content
            self._block = stream, bool(flags & frames.END_STREAM), bytearray(data[5 if flags & frames.HAS_PRIORITY else 0:])
            self._end_block(flags, complete)
        elif kind == frames.CONTINUATION:
            if not self._block or len(self._block[2]) + len(content) > _LARGEST_BLOCK:
                raise frames.BrokenConnection(frames.ENHANCE_YOUR_CALM, "no header block goes on, or too long a one")
            self._block[2].extend(content)
            self._end_block(flags, complete)
        else:
            self._control(kind, flags, stream, content)

    def _control(self, kind: int, flags: int, stream: int, content: memoryview) -> None:
        """A frame that carries nothing of a request."""
        if kind == frames.RST_STREAM:
            frames.read_number(content)
            self._outgoing.forget(stream)
            call = self.calls.pop(stream, None)
            if call:
                call.cancelled = True
        elif kind == frames.PUSH_PROMISE:
            raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "a client promises nothing")
        else:
            control.take(kind, flags, stream, content, self._outgoing, stream in self.calls)

    def _end_block(self, flags: int, complete: list[Call]) -> None:
        """The header block may be whole: a new call, or the end of one."""
        if not flags & frames.END_HEADERS or not self._block:
            return
        (stream, ends, block), self._block = self._block, None
        try:
            headers = self._headers.read(bytes(block))
        except ValueError as error:
            raise frames.BrokenConnection(frames.COMPRESSION_ERROR, str(error)) from None
        if stream > self.last:
            if not stream % 2:
                raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "a client's streams are odd")
            self.last = stream
            if self.refusing:
                self._outgoing.send(frames.number(frames.RST_STREAM, stream, frames.REFUSED_STREAM))
                return
            self.calls[stream] = Call(stream, headers)
        call = self.calls.get(stream)
        if ends and call:
            self._end(call, complete)

    def _begin_data(self, stream: int, size: int, flags: int, complete: list[Call]) -> None:
        if not 0 < stream <= self.last:
            raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "DATA for a stream that never began")
        # A stream that was given up may still have data on the way.
        call = self.calls.get(stream)
        self._data = None if call is None or call.ended else call
        self._data_left, self._data_ends = size, bool(flags & frames.END_STREAM)
        if not size:
            self._pass(0, complete)

    def _pass(self, size: int, complete: list[Call]) -> None:
        """So many bytes of the present DATA frame are done."""
        self._received += size
        self._data_left -= size
        if not self._data_left:
            if self._data_ends and self._data:
                self._end(self._data, complete)
            self._data = None

    def _end(self, call: Call, complete: list[Call]) -> None:
        if not call.ended:
            call.ended = True
            complete.append(call)


def _unpadded(content: memoryview) -> memoryview:
    if not len(content) or content[0] >= len(content):
        raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "the padding is longer than its frame")
    return content[1:len(content) - content[0]]
