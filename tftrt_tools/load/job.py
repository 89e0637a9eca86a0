"""What a worker gets to do, in an anonymous file that it inherits: nothing of it stands in a command line, and it is not on a disk."""

import array
import dataclasses
import json
import os
import struct

_LENGTH = struct.Struct("<q")
_NOTHING = -1


@dataclasses.dataclass(frozen=True)
class Job:
    """head: JSON values. requests: bytes each. expected: bytes or None each. offsets: array of int64 ns. tls: (roots, key, chain), bytes or
    None each, or None."""

    head: dict
    requests: list
    expected: list
    offsets: array.array
    tls: tuple | None


def write(job):
    """Returns: a file descriptor at its start; the caller closes it."""
    fd = os.memfd_create("tftrt-load-job")
    with os.fdopen(os.dup(fd), "wb") as file:
        head = {**job.head, "counts": [len(job.requests), len(job.expected)], "tls": job.tls is not None}
        for part in (json.dumps(head).encode(), *job.requests, *job.expected, job.offsets.tobytes(), *(job.tls or ())):
            file.write(_LENGTH.pack(_NOTHING if part is None else len(part)))
            file.write(part or b"")
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read(fd):
    """Returns: Job."""
    with os.fdopen(fd, "rb") as file:

        def part():
            length, = _LENGTH.unpack(file.read(_LENGTH.size))
            return None if length == _NOTHING else file.read(length)

        head = json.loads(part())
        requests, expected = ([part() for _ in range(count)] for count in head["counts"])
        offsets = array.array("q")
        offsets.frombytes(part())
        return Job(head, requests, expected, offsets, (part(), part(), part()) if head["tls"] else None)
