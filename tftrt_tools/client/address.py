"""The address of a server's gRPC port."""

import re

from tftrt_tools import errors

DEFAULT_PORT = 8500


def target(address: str) -> str:
    """The gRPC target of HOST[:PORT] or unix:PATH. Raises: UsageError."""
    if address.startswith("unix:"):
        return address
    if "://" in address or "/" in address:
        raise errors.UsageError(f"{address} is no address of a gRPC port", f"write HOST:PORT, such as localhost:{DEFAULT_PORT}")
    port = re.search(r":(\d+)$", address)
    if not address or (port and not 0 < int(port[1]) < 65536) or (":" in address and not port and not address.endswith("]")):
        raise errors.UsageError(f"{address!r} is no address", f"write HOST:PORT, such as localhost:{DEFAULT_PORT}")
    return address if port else f"{address}:{DEFAULT_PORT}"


def is_here(address: str) -> bool:
    """Whether the address is surely of this machine. False does not mean that it is of another."""
    return address.startswith("unix:") or address.rpartition(":")[0] in ("localhost", "127.0.0.1", "[::1]", "")
