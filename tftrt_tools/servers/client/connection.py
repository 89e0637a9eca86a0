"""One connection to one server, whichever protocol it speaks: calls that block, and calls that are awaited.

A client is a subclass with a `protocol` and the methods that `answered` or `awaited` make from functions that return a Call.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar

from tftrt_tools.base import errors
from tftrt_tools.servers.client import address as addresses
from tftrt_tools.servers.client import channel, serving_error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    import grpc
    from typing_extensions import Self

    from tftrt_tools.servers.client.call import Call
    from tftrt_tools.servers.client.protocol import Protocol

_SECONDS = 60.0
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class _Connection:
    """The parts that all clients share: the address, the arguments of each call, and the messages for errors."""

    # The server's protocol; a class attribute of each client.
    protocol: ClassVar[Protocol]

    def __init__(
        self,
        address: str,
        timeout: float = _SECONDS,
        tls: channel.Tls | bool | None = None,
        compression: str = "",
        retries: int = channel.RETRIES,
        wait_for_ready: bool = False,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        proxy: bool = True,
        mends: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
          address: HOST[:PORT] or unix:PATH.
          timeout: seconds for one call with all its attempts; math.inf for no deadline.
          tls: Tls; True for the system's certificates; None for a connection in the clear.
          compression: of requests, "gzip" or "deflate".
          retries: more attempts after UNAVAILABLE, 0 to 4; which calls, and the pauses: tftrt_tools.servers.client.channel.
          wait_for_ready: if no server answers, wait for one until the deadline instead of failing.
          headers: (name, value) pairs, or a dict, sent with each call.
          proxy: go through the proxy that the environment names (http_proxy), as gRPC does.
          mends: {code of a ServingError: what to do}: your own advice, such as your users' flags, in place of the client's.

        Raises: UsageError.
        """
        self.address = addresses.target(address, self.protocol)
        self._timeout = _seconds(timeout)
        certificates = (channel.Tls() if tls else None) if isinstance(tls, bool) else tls
        self._credentials = certificates.credentials() if certificates else None
        self._options = channel.options(retries, certificates, proxy)
        self._sent = {
            "compression": channel.compression(compression),
            "wait_for_ready": bool(wait_for_ready),
            "metadata": tuple(getattr(headers, "items", lambda: headers)()),
        }
        self._mends = dict(mends or {})
        self._closed = False
        self._start()

    def _start(self) -> None:
        """Start the subclass; its arguments are checked already."""

    def _arguments(self, call: Call[Any]) -> dict[str, Any]:
        if self._closed:
            raise errors.UsageError("the client is closed", "make another, or use it inside its `with`")
        return {"timeout": self._timeout if call.timeout is None else _seconds(call.timeout), **self._sent}

    def _answer(self, call: Call[_Answer], raw: bytes) -> _Answer:
        try:
            return call.read(raw)
        except ValueError as error:
            raise serving_error.ServingError(
                "INTERNAL",
                str(error),
                f"the answer of {self.address} to {_method(call)} cannot be read: {error}",
                f"is that a {self.protocol.server}?",
            ) from None

    def _failure(self, call: Call[Any], error: grpc.RpcError, seconds: float | None) -> serving_error.ServingError:
        """Args: error: grpc.RpcError; seconds: the call's deadline, None for none."""
        code = error.code().name
        if self._closed and code == "CANCELLED":
            return self._closed_meanwhile()
        return serving_error.of(
            code, error.details() or "", self.address, seconds, self.protocol, _method(call), self._mends
        )

    def _closed_meanwhile(self) -> serving_error.ServingError:
        return serving_error.ServingError(
            "CANCELLED",
            "the client was closed",
            f"the client of {self.address} was closed during the call",
            "close it when its calls have ended",
        )


def answered(
    build: Callable[Concatenate[Any, _Arguments], Call[_Answer]],
) -> Callable[Concatenate[Any, _Arguments], _Answer]:
    """The method of a Blocking client that sends what `build` makes, with its signature and its docstring."""

    def method(self: Blocking, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        return self._send(build(self, *args, **kwargs))

    _describe(method, build)
    return method


def awaited(
    build: Callable[Concatenate[Any, _Arguments], Call[_Answer]],
) -> Callable[Concatenate[Any, _Arguments], Coroutine[Any, Any, _Answer]]:
    """The same for an Awaiting client. Arguments that can never work raise when the method is called, before anything is awaited."""

    def method(self: Awaiting, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Coroutine[Any, Any, _Answer]:
        return self._send(build(self, *args, **kwargs))

    _describe(method, build)
    return method


def _describe(method: Callable[..., object], build: Callable[..., Any]) -> None:
    """Give a method the name, docstring and signature of `build`, for `help`; it returns what the Call returns."""
    functools.update_wrapper(method, build)
    told = inspect.signature(build)
    first, *others = told.parameters.values()
    answer = str(told.return_annotation).removeprefix("Call[").removesuffix("]")
    itself = first.replace(name="self", annotation=first.empty)
    vars(method)["__signature__"] = told.replace(parameters=[itself, *others], return_annotation=answer)


class Blocking(_Connection):
    """A client whose calls return the answer, for any number of threads. A context manager; `close` ends it."""

    def _start(self) -> None:
        import grpc

        self._channel = channel.opened(grpc, self.address, self._credentials, self._options)
        self._calls = {path: self._channel.unary_unary(path) for path in self.protocol.paths}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; calls that run are cancelled."""
        self._closed = True
        self._channel.close()

    def _send(self, call: Call[_Answer]) -> _Answer:
        import grpc

        arguments = self._arguments(call)
        try:
            raw = self._calls[call.path](call.request, **arguments)
        except grpc.RpcError as error:
            raise self._failure(call, error, arguments["timeout"]) from None
        except ValueError:
            self._arguments(call)  # closed meanwhile, by another thread
            raise
        return self._answer(call, raw)


class Awaiting(_Connection):
    """A client whose calls are awaited. An async context manager; it belongs to the event loop that first uses it."""

    _channel: Any = None
    _loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; calls that run are cancelled."""
        self._closed = True
        if self._channel:
            await self._channel.close()

    async def _send(self, call: Call[_Answer]) -> _Answer:
        import grpc

        arguments = self._arguments(call)
        self._open()
        try:
            raw = await self._ended(self._calls[call.path](call.request, **arguments))
        except grpc.RpcError as error:
            raise self._failure(call, error, arguments["timeout"]) from None
        return self._answer(call, raw)

    async def _ended(self, running: Awaitable[bytes]) -> bytes:
        """The answer of a grpc.aio call.

        `close` cancels the call, and this must not look as if the awaiting task were cancelled. So the call has a task of its own.
        """
        import asyncio

        own = asyncio.ensure_future(_result(running))
        try:
            await asyncio.wait([own])
        except asyncio.CancelledError:
            own.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody else asks for it
            own.cancel()
            raise
        if own.cancelled() and self._closed:
            raise self._closed_meanwhile()
        return own.result()

    def _open(self) -> None:
        import asyncio

        running = asyncio.get_running_loop()
        if self._channel is None:
            from grpc import aio

            self._loop = running
            self._channel = channel.opened(aio, self.address, self._credentials, self._options)
            self._calls = {path: self._channel.unary_unary(path) for path in self.protocol.paths}
        elif running is not self._loop:
            raise errors.UsageError("an asyncio client was used from two event loops", "make one for each loop")


async def _result(running: Awaitable[bytes]) -> bytes:
    raw: bytes = await running
    return raw


def _method(call: Call[Any]) -> str:
    """The method's name in a path, such as "Predict"."""
    return call.path.rpartition("/")[2]


def _seconds(timeout: float) -> float | None:
    """Seconds as gRPC takes them. Raises: UsageError."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise errors.UsageError(f"the timeout is {timeout!r}", "give seconds, more than 0; math.inf for none")
    return None if math.isinf(timeout) else timeout
