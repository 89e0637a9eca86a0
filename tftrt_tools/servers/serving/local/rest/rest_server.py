"""The HTTP side of the REST API: sockets in one event loop with its own thread, requests in a pool of threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import logging
import threading
from typing import Any

import aiohttp
from aiohttp import web

from tftrt_tools.base import errors
from tftrt_tools.servers.serving.local.rest import handler

_HEADER_LIMIT = 1 << 20  # bytes of one line; the real server has no limit
_SHUTDOWN_S = 1.0
_MOST_CONNECTIONS = 512  # one more is closed at once
_LARGEST = 256 << 20  # bytes of a body
_PATIENCE_S = 60.0  # for a first request, a body, and the next request
_quiet = logging.getLogger(__name__ + ".http")
_quiet.setLevel(logging.CRITICAL + 1)  # errors of clients are not logged; handler logs our own errors


class _TooLarge(Exception):
    pass


class _Bounded(web.Server):
    """Takes a limited number of connections."""

    def __call__(self) -> Any:
        return _Refusing() if len(self.connections) >= _MOST_CONNECTIONS else super().__call__()


class _Refusing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _without_descriptor(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing where no descriptor is left for a connection: the loop would say it once a second, with a traceback."""
    error = context.get("exception")
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        loop.default_exception_handler(context)


async def _body(request: web.BaseRequest) -> bytes:
    """Raises: _TooLarge, and what a broken body raises."""
    parts, size = [], 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > _LARGEST:
            raise _TooLarge
        parts.append(part)
    return b"".join(parts)


class RestServer:
    """Serves the REST API of a backend.

    Args:
      backend, metrics_path: see handler.Handler.
      host: address to listen on. port: 0 for any.
      timeout_ms: deadline of one model run; 0: none.
      threads: requests worked on at the same time; further ones wait.
      patience_s: how long a client may take to send what it has to send.
    """

    def __init__(
        self,
        backend: handler.Backend,
        host: str,
        port: int,
        timeout_ms: int = 30000,
        threads: int = 4,
        metrics_path: str = handler.METRICS_PATH,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._patience = patience_s
        self._handler = handler.Handler(backend, timeout_ms, metrics_path)
        self._address = host, port
        self._pool = concurrent.futures.ThreadPoolExecutor(max(threads, 1), thread_name_prefix="rest")
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> int:
        """Listen. Returns: the port. Raises: TftrtError where the address cannot be had."""
        ready: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="rest-loop", daemon=True)
        self._thread.start()
        try:
            return ready.result()
        except OSError as error:
            self._thread.join()
            self._pool.shutdown()
            host, port = self._address
            raise errors.TftrtError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                "choose another REST port, or end what listens there",
            ) from None

    def stop(self) -> None:
        """Close all connections; running requests end by themselves. May be called twice."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, ready: concurrent.futures.Future[int]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: concurrent.futures.Future[int]) -> None:
        self._stop = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(_without_descriptor)
        server = _Bounded(
            self._respond,
            access_log=None,
            logger=_quiet,
            auto_decompress=False,
            max_line_size=_HEADER_LIMIT,
            max_field_size=_HEADER_LIMIT,
            keepalive_timeout=self._patience,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address).start()
            self._loop = asyncio.get_running_loop()
            ready.set_result(runner.addresses[0][1])
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0  # nothing of the answer itself is sent yet
            body = await asyncio.wait_for(_body(request), self._patience)
        except asyncio.TimeoutError:
            answer = handler.page(408)
        except _TooLarge:
            answer = handler.page(413)
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError, EOFError):
            answer = handler.page(400)  # a broken body; nobody reads this if the client has gone
        else:
            answer = await asyncio.get_running_loop().run_in_executor(
                self._pool,
                self._handler.answer,
                request.method,
                request.raw_path,
                request.headers.get("Content-Encoding", ""),
                body,
            )
        response = web.Response(
            status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type, "Server": "tftrt"}
        )
        if answer.close:
            response.force_close()
        return response
