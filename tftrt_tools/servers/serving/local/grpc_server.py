"""gRPC's own server, on an event loop: a call has a thread while it is worked on, and none while its bytes come or go.

All calls are declared as streams, so that this module sees the single message of a call come and its answer go, and can bound both.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import zlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.grpc_methods import Method

if TYPE_CHECKING:
    from grpc import aio


_Result = TypeVar("_Result")
# It logs each header that is no UTF-8, with a traceback. Errors of clients are not logged.
logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL + 1)
_MOST_HELD = 1 << 30  # bytes of requests and answers under way, from which on a new call is refused
_PATIENCE_S = 60.0
_LARGEST = 256 << 20  # bytes of a message, packed or not; the real server takes 2 GiB
# First bytes of gzip's and zlib's forms. No request's message begins with one: it would have wire type 7, or a field 15.
_PACKED = (b"\x1f", b"\x78")
# Headers (16 KiB) and pings have gRPC's own bounds, as in the real server. A channel argument of the user's overrides any of these.
_LIMITS: Mapping[str, int] = {
    "grpc.max_receive_message_length": _LARGEST,
    "grpc.max_send_message_length": -1,
    "grpc.max_concurrent_streams": 4096,  # of one connection; gRPC's clients let further ones wait
    # A client that is gone, or that reads nothing, does not answer a ping.
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.max_connection_idle_ms": 600_000,
    # gRPC would unpack the messages of all calls at once.
    "grpc.per_message_decompression": 0,
    "grpc.so_reuseport": 0,  # it would silently let two servers share a port
}


class GrpcServer:
    """Args: methods: of grpc_methods.table. threads: that answer. options: [(channel argument, value)]. credentials: of
    grpc.ssl_server_credentials, or None. patience_s: how long a client may take to send its message, and to take its answer."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        threads: int,
        options: Sequence[tuple[str, Any]] = (),
        credentials: grpc.ServerCredentials | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._methods, self._credentials, self._patience = methods, credentials, patience_s
        limits = {**_LIMITS, **dict(options)}
        self._largest = limits["grpc.max_receive_message_length"]
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="grpc")
        self._held = 0
        self._unpacking = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="grpc-loop", daemon=True).start()
        self._server = self._within(self._made([*limits.items()]))

    def listen(self, address: str) -> int:
        """Bind "host:port" or "unix:path". Returns: the port. Raises: OSError."""

        async def bound() -> int:
            if self._credentials and not address.startswith("unix:"):
                return int(self._server.add_secure_port(address, self._credentials))
            return int(self._server.add_insecure_port(address))

        try:
            port = self._within(bound())
        except RuntimeError as error:
            raise OSError(str(error)) from None
        if not port:
            raise OSError("gRPC cannot listen there")
        return port

    def start(self) -> None:
        """Answer requests from now on."""
        self._within(self._server.start())

    def stop(self, seconds: float) -> None:
        """Refuse new requests and wait some seconds for those that run."""
        self._within(self._server.stop(seconds))
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _within(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run `work` on the loop. Returns: its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _made(self, options: Sequence[tuple[str, Any]]) -> Any:
        server = grpc.aio.server(options=options)  # takes the loop that runs
        server.add_generic_rpc_handlers(
            [_Handler({path: self._handler(method) for path, method in self._methods.items()})]
        )
        return server

    def _handler(self, method: Method) -> Any:
        async def call(_: object, context: aio.ServicerContext) -> None:
            held = 0
            try:
                self._refuse_beyond_memory()
                request = await self._read(context)
                held = self._hold(len(request))
                if request[:1] in _PACKED:
                    async with self._unpacking:
                        self._refuse_beyond_memory()
                        request = await self._loop.run_in_executor(self._pool, _unpacked, request, self._largest)
                        held += self._hold(len(request))
                answer = await self._loop.run_in_executor(self._pool, _answered, method, request, _timeout_ms(context))
                del request
                held += self._hold(len(answer))
                await asyncio.wait_for(context.write(answer), self._patience)
                return
            except failure.Failure as error:
                code, text = error.code, error.grpc_message
            except asyncio.TimeoutError:
                code, text = (
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    f"the client did not take its answer within {self._patience:g} s",
                )
            finally:
                self._held -= held
            await context.abort(code, text)

        return grpc.stream_stream_rpc_method_handler(call)  # bytes in, bytes out

    async def _read(self, context: aio.ServicerContext) -> bytes:
        """The message of a call. Raises: Failure."""
        try:
            message = await asyncio.wait_for(context.read(), self._patience)
        except asyncio.TimeoutError:
            raise failure.Failure(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no message came within {self._patience:g} s"
            ) from None
        if not isinstance(message, bytes):
            raise failure.Failure(failure.INTERNAL, "the call ended before its message")
        return message

    def _hold(self, size: int) -> int:
        """Count bytes that stay in memory. Returns: `size`."""
        self._held += size
        return size

    def _refuse_beyond_memory(self) -> None:
        if self._held > _MOST_HELD:
            raise failure.exhausted(
                f"the development server holds more than {_MOST_HELD >> 20} MiB of requests and answers"
            )


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._known.get(details.method)


def _answered(method: Method, request: bytes, timeout_ms: int) -> bytes:
    return b"".join(method(request, timeout_ms))


def _unpacked(message: bytes, largest: int) -> bytes:
    """What a message of gzip's or zlib's form holds; any other message as it is. Raises: Failure where it holds more than `largest`."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        content = stream.decompress(message, largest)
    except zlib.error:
        return message
    if stream.unconsumed_tail:
        raise failure.exhausted(f"SERVER: Decompressed message larger than max {largest}")
    return content if stream.eof else message


def _timeout_ms(context: aio.ServicerContext) -> int:
    left = context.time_remaining()
    return 0 if left is None or left > 1e9 else max(int(left * 1000), 1)
