"""A client of the server that an address names, whichever protocol that speaks."""

from typing import Any

from tftrt_tools.servers.client import protocols
from tftrt_tools.servers.client.client import Client
from tftrt_tools.servers.client.kserve.client import TritonClient


def opened(address: str, **arguments: Any) -> Client | TritonClient:
    """TritonClient for triton://HOST:PORT, else Client. Args: arguments: of the client. Raises: UsageError."""
    return (
        TritonClient(address, **arguments)
        if protocols.of(address) is protocols.TRITON
        else Client(address, **arguments)
    )
