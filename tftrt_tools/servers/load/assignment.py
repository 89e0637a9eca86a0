"""The work of a worker, in an anonymous file that it inherits: no command line shows it, and no disk holds it."""

import array
import dataclasses
import io
import json
import os
import typing
from collections.abc import Iterator, Sequence

from tftrt_tools.servers.load import frames


class Offsets(typing.Protocol):
    """int64 ns each: an array.array or a NumPy array."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[typing.Any]: ...

    def tobytes(self) -> bytes: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assignment:
    """The work of one worker process."""

    # JSON values: where to send, how, and which of the requests are this worker's.
    head: dict[str, typing.Any]
    # Messages on the wire.
    requests: Sequence[bytes]
    # The expected answers, None for one that is not known; empty if none is known.
    expected: Sequence[bytes | None]
    # In an open loop: instants in ns from the start.
    offsets: Offsets
    # (root certificates, key, certificate chain), PEM; None for plain text.
    tls: tuple[bytes | None, bytes | None, bytes | None] | None
    # The interpreter of another environment; None for this one. It is not written.
    python: str | None = None


def write(work: Assignment) -> int:
    """Returns: a file descriptor at its start; the caller closes it."""
    fd = os.memfd_create("tftrt-load-job")
    with os.fdopen(os.dup(fd), "wb") as file:
        frames.write(file, _parts(work))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read(fd: int) -> Assignment:
    """Read what `write` wrote, and close the descriptor."""
    with os.fdopen(fd, "rb") as file:
        return _read(file)


def packed(work: Assignment) -> bytes:
    """The same as bytes, for another machine."""
    return frames.joined(_parts(work))


def unpacked(data: bytes) -> Assignment:
    """Read what `packed` gave."""
    return _read(io.BytesIO(data))


def _parts(work: Assignment) -> Iterator[bytes | None]:
    head = {**work.head, "counts": [len(work.requests), len(work.expected)], "tls": work.tls is not None}
    yield json.dumps(head).encode()
    yield from work.requests
    yield from work.expected
    yield work.offsets.tobytes()
    yield from work.tls or ()


def _read(file: typing.IO[bytes]) -> Assignment:
    def part() -> bytes | None:
        return frames.read(file)

    def known() -> bytes:
        return part() or b""

    head = json.loads(known())
    requests = [known() for _ in range(head["counts"][0])]
    expected = [part() for _ in range(head["counts"][1])]
    offsets = array.array("q")
    offsets.frombytes(known())
    return Assignment(
        head=head,
        requests=requests,
        expected=expected,
        offsets=offsets,
        tls=(part(), part(), part()) if head["tls"] else None,
    )
