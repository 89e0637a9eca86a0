"""The frames of HTTP/2 (RFC 9113)."""

from __future__ import annotations

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
# Flags: END_STREAM of DATA and HEADERS, ACK of SETTINGS and PING.
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 1, 1, 4, 8, 32
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, COMPRESSION_ERROR = 1, 3, 6, 9
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 4, 5
LARGEST_WINDOW = (1 << 31) - 1
FIRST_WINDOW, FIRST_FRAME_SIZE, FIRST_TABLE_SIZE = (1 << 16) - 1, 1 << 14, 4096

_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")


class BrokenConnection(Exception):
    """What the other side sent cannot be read on. code: of GOAWAY."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def head(kind: int, flags: int, stream: int, size: int) -> bytes:
    """The first bytes of a frame with `size` bytes of content."""
    return _HEAD.pack(size >> 8, size & 255, kind, flags, stream)


def read_head(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int, int, int]:
    """(size of the content, kind, flags, stream) of the frame that begins at `at`."""
    high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
    return high << 8 | low, kind, flags, stream & LARGEST_WINDOW


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """A whole frame."""
    return head(kind, flags, stream, len(content)) + content


def number(kind: int, stream: int, value: int) -> bytes:
    """A frame whose content is a number of 32 bits: RST_STREAM or WINDOW_UPDATE."""
    return frame(kind, 0, stream, struct.pack(">I", value))


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*one) for one in values.items()))


def read_settings(content: bytes | memoryview) -> list[tuple[int, int]]:
    """[(setting, value)]. Raises: BrokenConnection."""
    if len(content) % _SETTING.size:
        raise BrokenConnection(FRAME_SIZE_ERROR, "SETTINGS are cut off")
    return list(_SETTING.iter_unpack(content))


def read_number(content: bytes | memoryview) -> int:
    """The number of 31 bits that is the whole content. Raises: BrokenConnection."""
    if len(content) != 4:
        raise BrokenConnection(FRAME_SIZE_ERROR, "a number has not 4 bytes")
    return int.from_bytes(content, "big") & LARGEST_WINDOW
