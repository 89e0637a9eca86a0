"""Protocol buffers' variable-length integers, whole arrays at a time (protobuf.dev/programming-guides/encoding)."""

from typing import Any

import numpy as np
import numpy.typing as npt

_LONGEST = 10  # bytes of a 64-bit value
_SHORT = [bytes([value]) for value in range(128)]


def encode(values: npt.NDArray[Any]) -> bytes:
    """Args: values: 1-D array of an integer or bool dtype; negative ones take ten bytes, as int32 and int64 fields do. Returns: bytes."""
    left = values.astype(np.uint64) if values.dtype.kind in "bu" else values.astype(np.int64).view(np.uint64)
    if not left.size:
        return b""
    if left.max() < 128:
        return left.astype(np.uint8).tobytes()
    columns: list[npt.NDArray[np.uint8]] = []
    kept: list[npt.NDArray[np.bool_]] = []
    more = np.ones(left.shape, bool)
    while more.any():
        rest = left >> np.uint64(7)
        kept.append(more)
        more = more & (rest != 0)
        columns.append((left & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7))
        left = rest
    return np.stack(columns, 1)[np.stack(kept, 1)].tobytes()


def decode(payload: bytes | memoryview) -> npt.NDArray[np.uint64]:
    """The values of packed varints. Args: payload: bytes-like. Returns: uint64 [n]. Raises: ValueError."""
    raw = np.frombuffer(payload, np.uint8)
    if not raw.size:
        return np.zeros(0, np.uint64)
    last = raw < 128
    if last.all():
        return raw.astype(np.uint64)
    if not last[-1]:
        raise ValueError("the last varint does not end")
    ends = np.flatnonzero(last)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        raise ValueError("a varint is longer than ten bytes")
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        here = lengths > place
        values[here] |= (raw[starts[here] + place].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * place)
    return values


def encode_one(value: int) -> bytes:
    """The varint of a single non-negative int."""
    if 0 <= value < 128:
        return _SHORT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(field: int, *parts: bytes | memoryview) -> list[Any]:
    """A field of wire type 2 (bytes, string, message, packed values) whose content is `parts`.

    Returns: its pieces, bytes and memoryviews, to be joined.
    """
    return [encode_one(field << 3 | 2), encode_one(sum(map(len, parts))), *parts]
