"""May a load be more than a server's gRPC threads carry? Then it refuses calls, and the result is about that."""

import os

from tftrt_tools.servers.client import protocols
from tftrt_tools.servers.serving.smoke import server_process

# A real server with 8 threads refuses from 6 calls under way.
_REFUSES_FROM = 0.75
# What a server on one core may refuse from; a machine elsewhere may have no more.
_ANY_SERVER = 4
_EACH_CORE = 4


def note(address: str, most: int) -> str:
    """A line for people, "" where nothing has to be said. Args: address: of the server, "" for none. most: requests under way at a time."""
    if not address or protocols.of(address) is not protocols.TENSORFLOW_SERVING or most <= _ANY_SERVER:
        return ""
    threads, known = _threads(address)
    if threads is not None and most < _REFUSES_FROM * threads:
        return ""
    has = (
        f"has {threads} gRPC threads ({known})"
        if threads is not None
        else "has 4 gRPC threads for each of its cores by default"
    )
    return (
        f"{most} requests under way may be too many: the server {has} and refuses calls from about three quarters of them on; "
        "start it with --grpc_max_threads=256, or have fewer under way (--concurrency)"
    )


def _threads(address: str) -> tuple[int | None, str]:
    """(threads of a server on this machine, where that is known from); (None, "") for others."""
    server, _ = server_process.find(
        address if address.startswith("unix:") or address.rpartition(":")[0] else f"{address}:8500"
    )
    if server is None or not server.known:
        return None, ""
    given = server.flag("grpc_max_threads")
    if given.isdecimal():
        return int(given), f"--grpc_max_threads={given}"
    return _EACH_CORE * (os.cpu_count() or 1), "by default 4 for each core"
