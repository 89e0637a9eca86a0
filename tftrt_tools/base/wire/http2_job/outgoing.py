"""What a connection sends: frames at once, messages as far as the other side's windows and the socket take them."""

from __future__ import annotations

import collections
import socket
import threading
from collections.abc import Sequence

from tftrt_tools.base.wire.http2_job import frames

_PIECES = 256  # of one system call
_MOST_UNSENT = 1 << 22  # bytes of frames without a message; one that reads nothing is gone


class _Message:
    """A message on its way. parts: what is left of it."""

    __slots__ = ("stream", "parts", "left", "window")

    def __init__(self, stream: int, parts: Sequence[bytes | memoryview], window: int) -> None:
        self.stream, self.window = stream, window
        self.parts = collections.deque(memoryview(part).cast("B") for part in parts if len(part))
        self.left = sum(map(len, self.parts))

    def take(self, size: int) -> list[memoryview]:
        """The next `size` bytes."""
        taken = []
        self.left -= size
        while size:
            part = self.parts[0]
            if len(part) <= size:
                taken.append(self.parts.popleft())
                size -= len(part)
            else:
                taken.append(part[:size])
                self.parts[0] = part[size:]
                size = 0
        return taken


class Outgoing:
    """Args: to: the socket, which does not block. All methods may be called from any thread.

    Raises, everywhere: OSError where the connection is gone.
    """

    def __init__(self, to: socket.socket) -> None:
        self._to = to
        self._lock = threading.Lock()
        self._window = frames.FIRST_WINDOW  # of the connection
        self._first_window = frames.FIRST_WINDOW  # of each stream
        self._windows: dict[int, int] = {}  # of streams whose window is not the first one
        self._frame_size = frames.FIRST_FRAME_SIZE
        self._messages: dict[int, _Message] = {}
        self._unsent: collections.deque[memoryview] = collections.deque()
        self._table_size = frames.FIRST_TABLE_SIZE

    @property
    def table_size(self) -> int:
        """Bytes of the other side's table of headers."""
        return self._table_size

    @property
    def waits(self) -> bool:
        """Whether the socket was full."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send frames without a message."""
        with self._lock:
            self._write([memoryview(data)])
            if not self._messages and sum(map(len, self._unsent)) > _MOST_UNSENT:
                raise BrokenPipeError("the other side reads nothing")

    def message(self, stream: int, start: bytes, message: Sequence[bytes | memoryview]) -> None:
        """Send the frame `start`, then the bytes of `message` as DATA, which ends the stream."""
        with self._lock:
            window = self._windows.pop(stream, self._first_window)
            size = sum(map(len, message))
            if size <= min(window, self._window, self._frame_size) and not self._messages:
                self._window -= size
                data = frames.head(frames.DATA, frames.END_STREAM, stream, size)
                if size < 1 << 14:
                    self._write([memoryview(b"".join((start, data, *message)))])
                else:
                    self._write([memoryview(part).cast("B") for part in (start, data, *message) if len(part)])
                return
            self._write([memoryview(start)])
            self._messages[stream] = _Message(stream, message, window)
            self._pump()

    def flush(self) -> None:
        """The socket takes bytes again."""
        with self._lock:
            self._write([])
            self._pump()

    def widen(self, stream: int, by: int, known: bool) -> None:
        """A WINDOW_UPDATE. Args: known: the stream is the connection, or waits for its answer. Raises: BrokenConnection."""
        with self._lock:
            message = self._messages.get(stream)
            if not stream:
                self._window = window = self._window + by
            elif message:
                message.window = window = message.window + by
            elif not known:
                return
            else:
                self._windows[stream] = window = self._windows.get(stream, self._first_window) + by
            if window > frames.LARGEST_WINDOW:
                raise frames.BrokenConnection(frames.FLOW_CONTROL_ERROR, "a window is too large")
            self._pump()

    def set(self, setting: int, value: int) -> None:
        """A value of the other side's SETTINGS. Raises: BrokenConnection."""
        with self._lock:
            if setting == frames.INITIAL_WINDOW_SIZE:
                if value > frames.LARGEST_WINDOW:
                    raise frames.BrokenConnection(frames.FLOW_CONTROL_ERROR, "a window is too large")
                grown, self._first_window = value - self._first_window, value
                for message in self._messages.values():
                    message.window += grown
                for stream in self._windows:
                    self._windows[stream] += grown
                self._pump()
            elif setting == frames.HEADER_TABLE_SIZE:
                self._table_size = min(value, frames.FIRST_TABLE_SIZE)
            elif setting == frames.MAX_FRAME_SIZE:
                if not frames.FIRST_FRAME_SIZE <= value < 1 << 24:
                    raise frames.BrokenConnection(frames.PROTOCOL_ERROR, "no frame may have this size")
                self._frame_size = value

    def forget(self, stream: int) -> None:
        """The stream was given up: what is on its way is not wanted."""
        with self._lock:
            self._windows.pop(stream, None)
            self._messages.pop(stream, None)

    def _pump(self) -> None:
        """Write of the messages, in turn, what the windows allow."""
        for message in list(self._messages.values()):
            while message.left and not self._unsent:
                pieces: list[memoryview] = []
                while (
                    len(pieces) < _PIECES
                    and (size := min(message.left, message.window, self._window, self._frame_size)) > 0
                ):
                    message.window -= size
                    self._window -= size
                    ends = frames.END_STREAM if size == message.left else 0
                    pieces.append(memoryview(frames.head(frames.DATA, ends, message.stream, size)))
                    pieces += message.take(size)
                if not pieces:
                    break
                self._write(pieces)
            if self._unsent:
                return
            if not message.left:
                del self._messages[message.stream]

    def _write(self, pieces: list[memoryview]) -> None:
        """Send these bytes after those that wait; what the socket does not take waits."""
        self._unsent += pieces
        while self._unsent:
            first = [self._unsent[place] for place in range(min(len(self._unsent), _PIECES))]
            try:
                sent = self._to.sendmsg(first)
            except BlockingIOError:
                return
            while sent:
                piece = self._unsent[0]
                if len(piece) <= sent:
                    sent -= len(piece)
                    self._unsent.popleft()
                else:
                    self._unsent[0] = piece[sent:]
                    sent = 0
