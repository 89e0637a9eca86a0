"""The HTTP side of the REST API: sockets in one event loop with its own thread, requests in a pool of threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading

import aiohttp
from aiohttp import web

from tftrt_tools import errors
from tftrt_tools.serving.local.rest import handler

_HEADER_LIMIT = 1 << 20  # bytes of one line; the real server has no limit
_SHUTDOWN_S = 1.0
_quiet = logging.getLogger(__name__ + ".http")
_quiet.setLevel(logging.CRITICAL + 1)  # errors of clients are not logged; handler logs our own errors


class RestServer:
    """Serves the REST API of a backend.

    Args:
      backend, metrics_path: see handler.Handler.
      host: address to listen on. port: 0 for any.
      timeout_ms: deadline of one model run; 0: none.
      threads: requests worked on at the same time; further ones wait.
    """

    def __init__(self, backend: handler.Backend, host: str, port: int, timeout_ms: int = 30000, threads: int = 4,
                 metrics_path: str = handler.METRICS_PATH) -> None:
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
            raise errors.TftrtError(f"cannot listen on {host}:{port}: {error.strerror or error}",
                                    "choose another REST port, or end what listens there") from None

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
        server = web.Server(self._respond, access_log=None, logger=_quiet, auto_decompress=False, max_line_size=_HEADER_LIMIT,
                            max_field_size=_HEADER_LIMIT)
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
            body = await request.content.read()
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError, EOFError):
            answer = handler.page(400)  # a broken body; nobody reads this if the client has gone
        else:
            answer = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._handler.answer, request.method, request.raw_path, request.headers.get("Content-Encoding", ""), body)
        response = web.Response(status=answer.status, body=answer.body,
                                headers={"Content-Type": answer.content_type, "Server": "tftrt"})
        if answer.close:
            response.force_close()
        return response
