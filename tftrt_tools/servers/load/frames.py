"""Parts of bytes, one after the other, each with its length: what an assignment and what travels to other machines are written as."""

import io
import struct
import typing
from collections.abc import Iterable

_LENGTH = struct.Struct("<q")
_NOTHING = -1


def write(file: typing.IO[bytes], parts: Iterable[bytes | None]) -> None:
    """Write parts at the place of `file`; None stays None."""
    for part in parts:
        file.write(_LENGTH.pack(_NOTHING if part is None else len(part)))
        file.write(part or b"")


def read(file: typing.IO[bytes]) -> bytes | None:
    """The next part. Raises: ValueError where there is none."""
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise ValueError("there are no more parts")
    (length,) = _LENGTH.unpack(head)
    return None if length == _NOTHING else file.read(length)


def joined(parts: Iterable[bytes | None]) -> bytes:
    """Parts as one value."""
    file = io.BytesIO()
    write(file, parts)
    return file.getvalue()


def cut(data: bytes) -> list[bytes | None]:
    """The parts of what `joined` made."""
    file, size = io.BytesIO(data), len(data)
    found = []
    while file.tell() < size:
        found.append(read(file))
    return found
