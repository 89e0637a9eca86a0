"""The server whose models are managed: a client of it, and which version a label is on."""

from tftrt_tools.servers.client import Client, ServingError, Tls, TritonClient, protocols

_MENDS = {"DEADLINE_EXCEEDED": "is that the gRPC port of a TensorFlow Serving? --timeout_seconds waits longer"}


def connected(address: str, deadline_seconds: float = 10, tls: Tls | None = None) -> Client:
    """A Client that sends no call again. Args: address: HOST[:PORT] or unix:PATH; deadline_seconds: of one call. Raises: UsageError."""
    return Client(address, timeout=deadline_seconds, tls=tls, retries=0, mends=_MENDS)


def asked(address: str, deadline_seconds: float = 10, tls: Tls | None = None) -> Client | TritonClient:
    """`connected`, to a server that is only asked: a Triton too, as triton://HOST:PORT. Raises: UsageError."""
    if protocols.of(address) is protocols.TRITON:
        return TritonClient(address, timeout=deadline_seconds, tls=tls, retries=0)
    return connected(address, deadline_seconds, tls)


def version_of(client: Client | TritonClient, name: str, label: str = "") -> int | None:
    """The version that answers for a label, or, without one, for requests that name no version. None: no such label, or not loaded.

    Raises: ServingError.
    """
    try:
        return client.metadata(name, label=label).model.version
    except ServingError as error:
        if error.code == "NOT_FOUND" or (error.code == "INVALID_ARGUMENT" and "version label" in error.message):
            return None
        raise
