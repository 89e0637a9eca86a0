"""Messages between the generator and a worker, over a socket pair: one byte for the kind, four for the length, the body."""

import json
import struct

_HEAD = struct.Struct("<cI")

COMMAND = b"C"  # to the worker, JSON
HELLO = b"H"  # JSON: it is ready, or why not
RECORDS = b"R"  # int64 entries, record.FIELDS each
BEATS = b"B"  # int64: now, processor time, then lags
EVENT = b"E"  # JSON: a first error message, an idle or finished worker, what was left out, a bug
ANSWER = b"A"  # struct of index and instant, then the answer's bytes
ANSWER_HEAD = struct.Struct("<qq")


def send(socket, kind, body):
    """Args: body: bytes, or a JSON value for the kinds that are JSON."""
    if not isinstance(body, bytes | bytearray | memoryview):
        body = json.dumps(body).encode()
    socket.sendall(_HEAD.pack(kind, len(body)))
    socket.sendall(body)


def parsed(body):
    """The value of a JSON body."""
    return json.loads(body)


class Reader:
    """Cuts what arrives into messages."""

    def __init__(self):
        self._bytes = bytearray()

    def feed(self, data):
        """Returns: list of (kind, body bytes) that are whole."""
        self._bytes += data
        whole, at = [], 0
        while len(self._bytes) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._bytes, at)
            end = at + _HEAD.size + length
            if len(self._bytes) < end:
                break
            whole.append((kind, bytes(self._bytes[at + _HEAD.size:end])))
            at = end
        del self._bytes[:at]
        return whole
