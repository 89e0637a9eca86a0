"""Messages between the generator and a worker, over a socket pair: one byte for the kind, four for the length, the body."""

import json
import socket
import struct
import typing

_HEAD = struct.Struct("<cI")

COMMAND = b"C"  # to the worker, JSON
HELLO = b"H"  # JSON: it is ready, or why not
RECORDS = b"R"  # request_entries.Entries
BEATS = b"B"  # int64: now, processor time, then lags
EVENT = b"E"  # JSON: a first error message, an idle or finished worker, what was left out, a bug
ANSWER = b"A"  # struct of index and instant, then the answer's bytes
ANSWER_HEAD = struct.Struct("<qq")


def send(to: socket.socket, kind: bytes, body: object) -> None:
    """Args: body: bytes, or a JSON value for the kinds that are JSON."""
    if not isinstance(body, bytes | bytearray | memoryview):
        body = json.dumps(body).encode()
    to.sendall(_HEAD.pack(kind, len(body)))
    to.sendall(body)


def parsed(body: bytes) -> typing.Any:
    """The value of a JSON body."""
    return json.loads(body)


class Reader:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Returns: (kind, body) of the messages that are whole now."""
        self._bytes += data
        whole, at = [], 0
        while len(self._bytes) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._bytes, at)
            end = at + _HEAD.size + length
            if len(self._bytes) < end:
                break
            whole.append((kind, bytes(self._bytes[at + _HEAD.size : end])))
            at = end
        del self._bytes[:at]
        return whole
