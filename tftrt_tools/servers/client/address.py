"""The address of a server's gRPC port."""

import re

from tftrt_tools.base import errors
from tftrt_tools.servers.client.protocol import Protocol


def target(address: str, protocol: Protocol) -> str:
    """The gRPC target of HOST[:PORT] or unix:PATH, with or without the protocol's scheme. Raises: UsageError."""
    bare = address.removeprefix(protocol.scheme)
    if bare.startswith("unix:"):
        return bare
    mend = f"write HOST:PORT, such as {protocol.scheme}localhost:{protocol.port}; {protocol.instead}"
    if "://" in bare or "/" in bare:
        raise errors.UsageError(f"{address} is no address of a {protocol.server}'s gRPC port", mend)
    port = re.search(r":(\d+)$", bare)
    if not bare or (port and not 0 < int(port[1]) < 65536) or (":" in bare and not port and not bare.endswith("]")):
        raise errors.UsageError(f"{address!r} is no address", mend)
    return bare if port else f"{bare}:{protocol.port}"


def is_here(address: str) -> bool:
    """Whether the address is surely of this machine. False does not mean that it is of another."""
    return address.startswith("unix:") or address.rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]", "")
