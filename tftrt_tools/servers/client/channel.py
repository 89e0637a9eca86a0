"""How a connection is made: limits, TLS, compression, and which calls are sent again.

A call is sent again only if the answer is UNAVAILABLE, and only if it changes nothing on the server: Predict, GetModelMetadata and
GetModelStatus, ModelInfer, ModelMetadata, ModelConfig and RepositoryIndex. A reload or a load is never sent again: another client's may
have come in between. gRPC sends the calls again by its retry policy (grpc.io/docs/guides/retry): by default at most RETRIES more attempts,
after a pause of 0.1 s, then twice as long each time up to 1 s, each 20 % more or less at random, all within the call's one deadline. While
failed calls outnumber successful ones by 50, none is sent again, to spare an overloaded server.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors

if TYPE_CHECKING:
    import types

    import grpc


RETRIES = 3
_MOST_RETRIES = 4  # gRPC makes no more than five attempts
_KSERVE = "inference.GRPCInferenceService"
_SAFE = [
    {"service": "tensorflow.serving.PredictionService"},
    {"service": "tensorflow.serving.ModelService", "method": "GetModelStatus"},
    *(
        {"service": _KSERVE, "method": method}
        for method in ("ModelInfer", "ModelMetadata", "ModelConfig", "RepositoryIndex")
    ),
]
_POLICY = {
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_THROTTLING = {"maxTokens": 100, "tokenRatio": 1}
# gRPC's own pauses start at a second and go up to two minutes. The attempts of one call take at least 0.56 s with three retries; a
# server that is back has to be found within that time. "min" is left alone: it is the time that one connection may take.
_RECONNECT_MS = {"initial": 100, "max": 400}
_LARGEST = (1 << 31) - 1
_COMPRESSIONS = ("", "gzip", "deflate")


@dataclasses.dataclass(frozen=True)
class Tls:
    """Paths of PEM files. root: of the certificates to trust, "" for the system's; certificate, key: the client's own, where the server
    asks for one; server_name: the name in the server's certificate, where it is not the address's."""

    root: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def content(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """(root, key, certificate): bytes of the files, None for those that are not named. Raises: UsageError."""
        if bool(self.certificate) != bool(self.key):
            raise errors.UsageError(
                "a client certificate needs its key, and a key its certificate",
                "give both (Tls(certificate=…, key=…), --tls_certificate and --tls_key)",
            )
        return _pem(self.root), _pem(self.key), _pem(self.certificate)

    def credentials(self) -> Any:
        """grpc.ChannelCredentials. Raises: UsageError."""
        import grpc

        return grpc.ssl_channel_credentials(*self.content())


def _pem(path: str) -> bytes | None:
    if not path:
        return None
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise errors.UsageError(f"{path}: {error.strerror}", "give the path of a PEM file") from None
    if b"-----BEGIN" not in content:
        raise errors.UsageError(
            f"{path} is no PEM file: it has no line -----BEGIN …-----", "convert it with openssl x509 or openssl pkey"
        )
    return content


def options(retries: int, tls: Tls | None = None, proxy: bool = True) -> list[tuple[str, Any]]:
    """Channel arguments. Args: retries: attempts after the first; proxy: take the environment's. Raises: UsageError."""
    if not isinstance(retries, int) or not 0 <= retries <= _MOST_RETRIES:
        raise errors.UsageError(f"retries is {retries}", f"give 0 to {_MOST_RETRIES}")
    # Each client has its own connection: closing it, and its pauses, do not affect another client.
    settings: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    settings += [(f"grpc.{name}_reconnect_backoff_ms", value) for name, value in _RECONNECT_MS.items()]
    if tls and tls.server_name:
        settings.append(("grpc.ssl_target_name_override", tls.server_name))
    if not proxy:
        settings.append(("grpc.enable_http_proxy", 0))
    if not retries:
        return [*settings, ("grpc.enable_retries", 0)]
    config = {
        "methodConfig": [{"name": _SAFE, "retryPolicy": {"maxAttempts": retries + 1, **_POLICY}}],
        "retryThrottling": _THROTTLING,
    }
    # gRPC keeps a request for another attempt up to this size; its default is 256 KiB.
    return [
        *settings,
        ("grpc.enable_retries", 1),
        ("grpc.service_config", json.dumps(config)),
        ("grpc.per_rpc_retry_buffer_size", _LARGEST),
    ]


def opened(
    module: types.ModuleType,
    address: str,
    credentials: grpc.ChannelCredentials | None,
    arguments: list[tuple[str, Any]],
) -> Any:
    """A channel of `module`, grpc or grpc.aio. Args: credentials: of Tls, or None without encryption. arguments: of `options`."""
    if credentials:
        return module.secure_channel(address, credentials, options=arguments)
    return module.insecure_channel(address, options=arguments)


def compression(name: str) -> Any:
    """grpc.Compression of "", "gzip" or "deflate". Raises: UsageError."""
    import grpc

    if name not in _COMPRESSIONS:
        raise errors.UsageError(f"there is no compression {name!r}", "give 'gzip', 'deflate', or '' for none")
    return {"": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}[
        name
    ]
