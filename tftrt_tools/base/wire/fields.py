"""The fields of a protocol message whose bytes nobody has checked (protobuf.dev/programming-guides/encoding).

Walking ends for any bytes: each step moves forward, and a truncated or malformed field is a ValueError. Nothing is copied.
"""

from collections.abc import Iterator, Sequence
from typing import Any

VARINT, FIXED64, DELIMITED, _GROUP, _GROUP_END, FIXED32 = range(6)
_FIXED = {FIXED64: 8, FIXED32: 4}
_DEEPEST = 100  # groups in groups, as protobuf's own parsers
_LARGEST_FIELD = (1 << 29) - 1
_UINT64 = (1 << 64) - 1


def walk(raw: memoryview) -> Iterator[tuple[int, int, Any]]:
    """The fields in their order.

    Args: raw: memoryview of bytes.
    Yields: (field number, wire type, value): an int below 2^64 for VARINT, a memoryview of the content for the other three. Groups, which
    no message of this project has, are passed over. Raises: ValueError.
    """
    position, end = 0, len(raw)
    open_groups: list[int] = []
    while position < end:
        tag = raw[position]
        position += 1
        if tag > 127:
            tag, position = varint(raw, position - 1)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _LARGEST_FIELD:
            raise ValueError(f"there is no field {number}")
        if kind == DELIMITED:
            if (
                position < end and raw[position] < 128
            ):  # most sizes have one byte; a call would cost more than all the rest
                size, position = raw[position], position + 1
            else:
                size, position = varint(raw, position)
        elif kind == VARINT:
            value, position = varint(raw, position)
            if not open_groups:
                yield number, kind, value
            continue
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            _group(open_groups, number, kind)
            continue
        position += size
        if position > end:
            raise ValueError(f"field {number} is cut off")
        if not open_groups:
            yield number, kind, raw[position - size : position]
    if open_groups:
        raise ValueError("a group does not end")


def _group(open_groups: list[int], number: int, kind: int) -> None:
    if kind == _GROUP and len(open_groups) < _DEEPEST:
        open_groups.append(number)
    elif kind == _GROUP_END and open_groups and open_groups[-1] == number:
        open_groups.pop()
    else:
        raise ValueError(f"field {number} has the wire type {kind}, which cannot stand here")


def varint(raw: bytes | memoryview, position: int) -> tuple[int, int]:
    """(value below 2^64, position behind it) of the varint that starts at `position`. Raises: ValueError."""
    value = shift = 0
    while True:
        if position >= len(raw) or shift > 63:
            raise ValueError("a varint does not end")
        byte = raw[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & _UINT64, position


def signed(value: int, bits: int = 64) -> int:
    """An int32 or int64 field's value from its varint."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def joined(parts: Sequence[memoryview]) -> memoryview:
    """One message from a field that came more than once: protobuf merges such pieces, as if they were parsed one after the other."""
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
