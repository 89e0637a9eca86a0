"""One call: the headers that name it, and its message as it arrives."""

from __future__ import annotations

import re
import struct
import time
import zlib
from collections.abc import Mapping

import numpy as np

from tftrt_tools.serving.local import failure

_PREFIX = struct.Struct(">?I")
_LARGEST_MESSAGE = (1 << 31) - 1
_LARGE = 1 << 16  # bytes from which on memory is not cleared first
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}


class Call:
    """Args: stream: its number. headers: of the request.

    Attributes:
      path: "/package.Service/Method". ended: the client has sent everything. cancelled: nobody waits for the answer.
    """

    __slots__ = ("stream", "path", "ended", "cancelled", "_deadline", "_encoding", "_prefix", "_message", "_filled", "_problem")

    def __init__(self, stream: int, headers: Mapping[bytes, bytes]) -> None:
        self.stream = stream
        self.path = headers.get(b":path", b"").decode("latin-1")
        self.ended = self.cancelled = False
        self._encoding = headers.get(b"grpc-encoding", b"identity")
        found = _TIMEOUT.fullmatch(headers.get(b"grpc-timeout", b""))
        self._deadline = time.monotonic() + int(found[1]) * _UNITS[found[2]] if found else None
        self._prefix = b""
        self._message: memoryview | None = None
        self._filled = 0
        self._problem: failure.Failure | None = None

    def timeout_ms(self) -> int:
        """Milliseconds that are left, at least 1; 0 for no deadline."""
        return 0 if self._deadline is None else max(int(1000 * (self._deadline - time.monotonic())), 1)

    def room(self) -> memoryview:
        """Where the next bytes of the message belong; empty while its length is not known."""
        return memoryview(b"") if self._message is None or self._problem else self._message[self._filled:]

    def placed(self, size: int) -> None:
        """So many bytes were written to `room()`."""
        self._filled += size

    def feed(self, data: memoryview) -> None:
        """The next bytes of DATA frames."""
        if self._message is None and not self._problem:
            missing = _PREFIX.size - len(self._prefix)
            self._prefix += data[:missing]
            data = data[missing:]
            if len(self._prefix) == _PREFIX.size:
                self._begin()
        if not len(data) or self._problem or self._message is None:
            return
        end = self._filled + len(data)
        if end > len(self._message):
            self._problem = failure.Failure(failure.INTERNAL, "more than one message in a unary call")
            return
        self._message[self._filled:end] = data
        self._filled = end

    def _begin(self) -> None:
        size = _PREFIX.unpack(self._prefix)[1]
        try:
            if size > _LARGEST_MESSAGE:
                raise MemoryError
            self._message = memoryview(bytearray(size) if size < _LARGE else np.empty(size, np.uint8).data)
        except MemoryError:
            self._problem = failure.exhausted(f"SERVER: Received message larger than max ({size} vs. {_LARGEST_MESSAGE})")

    def message(self) -> memoryview:
        """The whole message. Raises: Failure where there is none that can be read."""
        if self._problem:
            raise self._problem
        if self._message is None or self._filled < len(self._message):
            raise failure.Failure(failure.INTERNAL, "the call ended before its message")
        if not self._prefix[0]:
            return self._message
        bits = _WINDOW_BITS.get(self._encoding)
        if bits is None:
            raise failure.unimplemented(f"Compression algorithm '{self._encoding.decode('latin-1')}' is not supported")
        try:
            return memoryview(zlib.decompress(self._message, bits))
        except zlib.error as error:
            raise failure.Failure(failure.INTERNAL, f"the message cannot be unpacked: {error}") from None
