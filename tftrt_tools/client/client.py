"""Client and AsyncClient: the same methods, the one answers, the other is awaited."""

import asyncio
import dataclasses
import math

import grpc

from tftrt_tools import errors
from tftrt_tools.client import channel, failure, management, predict, signatures, spec
from tftrt_tools.serving import management_client

_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class _Call:
    """path: of the method; request: bytes; read: function of the answer's bytes; timeout: seconds, None for the client's own."""

    path: str
    request: bytes
    read: object
    timeout: float | None


class _Methods:
    """What can be asked. A subclass sends a _Call, and what that returns is returned here."""

    def __init__(self, address, timeout=_SECONDS, tls=None, compression="", retries=channel.RETRIES, wait_for_ready=False, headers=()):
        """
        Args:
          address: HOST[:PORT] or unix:PATH.
          timeout: seconds for one call with all its attempts; math.inf for no deadline.
          tls: Tls; True for the system's certificates; None for a connection in the clear.
          compression: of requests, "gzip" or "deflate".
          retries: more attempts after UNAVAILABLE, 0 to 4; which calls, and the pauses: tftrt_tools.client.channel.
          wait_for_ready: where no server answers, wait for one until the deadline instead of failing.
          headers: (name, value) pairs, or a dict, sent with each call.

        Raises: UsageError.
        """
        self.address = management_client.target(address)
        self._timeout = _seconds(timeout)
        tls = channel.Tls() if tls is True else tls
        self._credentials = tls.credentials() if tls else None
        self._options = channel.options(retries, tls)
        self._sent = {"compression": channel.compression(compression), "wait_for_ready": bool(wait_for_ready),
                      "metadata": tuple(headers.items() if hasattr(headers, "items") else headers)}
        self._closed = False

    def predict(self, model, inputs, signature="", version=None, label="", outputs=(), timeout=None, content=True, copy=False):
        """Run a signature.

        Args: as for `request_bytes`. timeout: seconds for this call. copy: give arrays of their own, aligned and writable, instead of
        read-only ones that lie in the answer.
        Returns: {alias: ndarray}, a dict whose attribute `model` is the ModelSpec that answered. Raises: ServingError, UsageError.
        """
        def read(raw):
            answered, arrays = predict.response_arrays(raw)
            return spec.Answered({alias: array.copy() for alias, array in arrays.items()} if copy else arrays, answered)

        request = predict.request_bytes(model, inputs, signature, version, label, outputs, content)
        return self._send(_Call(predict.PREDICT, request, read, timeout))

    def metadata(self, model, version=None, label="", timeout=None):
        """The signatures of a model.

        Returns: {name: Signature}, a dict whose attribute `model` is the ModelSpec that answered. Raises: ServingError, UsageError.
        """
        asked = spec.ModelSpec(model, version, label)
        return self._send(_Call(signatures.METADATA, signatures.request(asked), signatures.read, timeout))

    def status(self, model, version=None, timeout=None):
        """The states of all versions that the server has ever seen, or of one; those that were unloaded stay in the list as END.

        Returns: [VersionStatus(version, state, error_code, error)], the newest first. Raises: ServingError, UsageError.
        """
        request = management.status_request(spec.ModelSpec(model, version))
        return self._send(_Call(management.STATUS, request, management.read_status, timeout))

    def reload(self, config, timeout=None):
        """Give the server a new configuration, whole: a model that it does not list is unloaded.

        It returns when models with new names are available; for a new version of a known model, ask `status`. It is never sent twice.

        Args: config: a pathlib.Path of a models.config, its text, or a ModelServerConfig message.
        Raises: ServingError, UsageError.
        """
        def read(raw):
            code, message = management.read_reload(raw)
            if code != "OK":  # the real server also fails the call itself
                raise failure.of(code, message, self.address, None)

        return self._send(_Call(management.RELOAD, management.reload_request(config), read, timeout))

    def _arguments(self, call):
        if self._closed:
            raise errors.UsageError("the client is closed", "make another, or use it inside its `with`")
        return {"timeout": self._timeout if call.timeout is None else _seconds(call.timeout), **self._sent}

    def _answer(self, call, raw):
        try:
            return call.read(raw)
        except ValueError as error:
            raise failure.ServingError("INTERNAL", str(error), f"the answer of {self.address} to {call.path.rpartition('/')[2]} cannot be "
                                       f"read: {error}", "is that a TensorFlow Serving?") from None

    def _failure(self, error, seconds):
        if self._closed and error.code() == grpc.StatusCode.CANCELLED:
            return self._closed_meanwhile()
        return failure.of(error.code().name, error.details() or "", self.address, seconds)


    def _closed_meanwhile(self):
        return failure.ServingError("CANCELLED", "the client was closed", f"the client of {self.address} was closed during the call",
                                    "close it when its calls have ended")


class Client(_Methods):
    """One connection to one TensorFlow Serving, for any number of threads. A context manager; `close` ends it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._channel = channel.opened(grpc, self.address, self._credentials, self._options)
        self._calls = _calls(self._channel)

    __init__.__doc__ = _Methods.__init__.__doc__

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the connection; calls that run are cancelled."""
        self._closed = True
        self._channel.close()

    def _send(self, call):
        arguments = self._arguments(call)
        try:
            raw = self._calls[call.path](call.request, **arguments)
        except grpc.RpcError as error:
            raise self._failure(error, arguments["timeout"]) from None
        except ValueError:
            self._arguments(call)  # closed meanwhile, by another thread
            raise
        return self._answer(call, raw)


class AsyncClient(_Methods):
    """The same to be awaited: `await client.predict(…)`. An async context manager, of the event loop that first uses it."""

    _channel = _loop = None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self):
        """End the connection; calls that run are cancelled."""
        self._closed = True
        if self._channel:
            await self._channel.close()

    async def _send(self, call):
        arguments = self._arguments(call)
        self._open()
        try:
            raw = await self._ended(self._calls[call.path](call.request, **arguments))
        except grpc.RpcError as error:
            raise self._failure(error, arguments["timeout"]) from None
        return self._answer(call, raw)

    async def _ended(self, running):
        """The answer of a grpc.aio call. `close` cancels the call, which is no cancellation of the task that awaits it: the call has a task
        of its own, so that the two can be told apart."""
        own = asyncio.ensure_future(_awaited(running))
        try:
            await asyncio.wait([own])
        except asyncio.CancelledError:
            own.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody else asks for it
            own.cancel()
            raise
        if own.cancelled() and self._closed:
            raise self._closed_meanwhile()
        return own.result()

    def _open(self):
        running = asyncio.get_running_loop()
        if self._channel is None:
            from grpc import aio

            self._loop = running
            self._channel = channel.opened(aio, self.address, self._credentials, self._options)
            self._calls = _calls(self._channel)
        elif running is not self._loop:
            raise errors.UsageError("an AsyncClient was used from two event loops", "make one for each loop")


async def _awaited(running):
    return await running


def _calls(opened):
    """{path: function of bytes that gives bytes}."""
    return {path: opened.unary_unary(path) for path in (predict.PREDICT, signatures.METADATA, management.STATUS, management.RELOAD)}


def _seconds(timeout):
    """Seconds as gRPC takes them. Raises: UsageError."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise errors.UsageError(f"the timeout is {timeout!r}", "give seconds, more than 0; math.inf for none")
    return None if math.isinf(timeout) else timeout
