"""Which processes of this machine listen on a socket, read from /proc."""

import os
import pathlib
from collections.abc import Collection, Iterator

_LISTENS = "0A"  # TCP_LISTEN


def on_tcp(port: int) -> set[str]:
    """Sockets ("socket:[INODE]") that listen on a TCP port, in this network namespace."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _lines(table)[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == _LISTENS:
                inodes.add(f"socket:[{fields[9]}]")
    return inodes


def on_unix(path: str) -> set[str]:
    """Sockets bound to the absolute path of a UNIX socket."""
    rows = (line.split(maxsplit=7) for line in _lines("/proc/net/unix")[1:])
    return {f"socket:[{row[6]}]" for row in rows if len(row) == 8 and row[7] == path}


def holders(found: Collection[str]) -> Iterator[int]:
    """Ids of the processes that hold one of these sockets, as far as this user sees, the oldest id first."""
    for pid in sorted(int(process.name) for process in pathlib.Path("/proc").glob("[0-9]*")):
        try:
            if any(os.readlink(descriptor) in found for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir()):
                yield pid
        except OSError:
            continue  # of another user, or ended


def _lines(path: str) -> list[str]:
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []
