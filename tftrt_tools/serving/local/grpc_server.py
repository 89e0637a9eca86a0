"""gRPC's own server, for TLS and channel arguments; http2/ serves everything else, with fewer changes of thread."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from tftrt_tools.serving.local import failure
from tftrt_tools.serving.local.grpc_methods import Method


class GrpcServer:
    """Args: methods: of grpc_methods.table; threads: that answer; options: [(channel argument, value)]; credentials: of
    grpc.ssl_server_credentials, or None."""

    def __init__(self, methods: Mapping[str, Method], threads: int, options: Sequence[tuple[str, Any]], credentials: Any | None) -> None:
        # SO_REUSEPORT would silently let two servers share a port.
        limits = [("grpc.max_receive_message_length", 2 ** 31 - 1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="grpc"), options=[*limits, *options])
        self._server.add_generic_rpc_handlers([_Handler(methods)])
        self._credentials = credentials

    def listen(self, address: str) -> int:
        """Bind "host:port" or "unix:path". Returns: the port. Raises: OSError."""
        try:
            if self._credentials and not address.startswith("unix:"):
                port = self._server.add_secure_port(address, self._credentials)
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        if not port:
            raise OSError("gRPC cannot listen there")
        found: int = port
        return found

    def start(self) -> None:
        """Answer requests from now on."""
        self._server.start()

    def stop(self, seconds: float) -> None:
        """Refuse new requests and wait some seconds for those that run."""
        self._server.stop(seconds).wait()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._known = {path: _unary(method) for path, method in methods.items()}

    def service(self, details: Any) -> Any:
        return self._known.get(details.method)


def _unary(method: Method) -> Any:
    def call(raw: bytes, context: Any) -> Any:
        try:
            return b"".join(method(raw, _timeout_ms(context)))
        except failure.Failure as error:
            code, text = error.code, error.grpc_message
        return context.abort(code, text)  # raises

    return grpc.unary_unary_rpc_method_handler(call)  # bytes in, bytes out


def _timeout_ms(context: Any) -> int:
    left = context.time_remaining()
    return 0 if left is None or left > 1e9 else max(int(left * 1000), 1)
