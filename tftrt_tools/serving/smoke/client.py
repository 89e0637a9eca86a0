"""Predict and GetModelMetadata of a running server, as arrays and signatures; errors as the management client words them."""

import dataclasses
import time

from tftrt_tools import errors
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.serving import management_client
from tftrt_tools.serving.smoke import messages
from tftrt_tools.wire import tensor

_SECONDS = 10
# A request fails with these where the server itself is gone, or never was there.
_GONE = ("UNAVAILABLE", "UNIMPLEMENTED", "CANCELLED")


@dataclasses.dataclass(frozen=True)
class Signature:
    """inputs, outputs: (InputSpec, …), by name; tensors: {"inputs/ALIAS" or "outputs/ALIAS": name of the graph's tensor}."""

    inputs: tuple
    outputs: tuple
    tensors: dict


@dataclasses.dataclass(frozen=True)
class Served:
    """What answers for a model. version: of the answer, an int; signatures: {name: Signature}."""

    name: str
    version: int
    signatures: dict


class NotServed(errors.UsageError):
    """The server has no such model, version or label. Its mend is "" where nothing is known of the model."""


class Client(management_client.Client):
    """Args: address: HOST[:PORT] or unix:PATH; timeout: seconds for one request; tls: client.Tls or None. A context manager; all methods
    raise ServerError."""

    def __init__(self, address, timeout, tls=None):
        # What is no model's work is answered soon.
        super().__init__(address, max(timeout, _SECONDS), tls)
        self.timeout = timeout
        # Bytes in, bytes out: what is timed is the server and the wire, not this process's parsing.
        self._calls |= {messages.PREDICT: self._channel.unary_unary(messages.PREDICT),
                        messages.METADATA: self._channel.unary_unary(messages.METADATA)}

    def served(self, name, version=None, label=""):
        """The Served of a model, by version, by label, or by default. Raises: NotServed."""
        try:
            raw = self._call(messages.METADATA, messages.metadata_request(messages.model_spec(name, version, label)))
        except management_client.ServerError as error:
            if error.code == "DEADLINE_EXCEEDED":
                raise _late(self.address, "the model's metadata", max(self.timeout, _SECONDS)) from None
            if error.code in ("NOT_FOUND", "INVALID_ARGUMENT"):
                raise NotServed(f"{self.address} serves no {_asked(name, version, label)}: {error.text}", self._versions(name)) from None
            raise
        try:
            found, answered = messages.metadata_answer(raw)
        except ValueError as error:
            raise errors.TftrtError(f"{self.address} is no TensorFlow Serving: {error}", "give the gRPC port of one") from None
        return Served(name, answered, {key: _signature(one) for key, one in sorted(found.items()) if not key.startswith("__saved_model_")})

    def predict(self, request, what):
        """Send bytes of a PredictRequest. Args: what: the call for people. Returns: (bytes of the answer, seconds).

        Raises: ServerError where the server refuses it; TftrtError after the deadline; CheckFailed where the server is gone.
        """
        start = time.perf_counter()
        try:
            return self._call(messages.PREDICT, request, self.timeout), time.perf_counter() - start
        except management_client.ServerError as error:
            if error.code == "DEADLINE_EXCEEDED":
                raise _late(self.address, what, self.timeout) from None
            # A full batching queue is UNAVAILABLE too, of a server that is well.
            if error.code in _GONE and not self._answers():
                raise errors.CheckFailed(f"the server ended, or closed the connection, at {what}: {error.text}",
                                         "look at the end of its log; engines of another TensorRT end it like this") from None
            raise

    def _answers(self):
        try:
            self.status("")
        except management_client.ServerError as error:
            return error.code == "NOT_FOUND"
        return True

    def _versions(self, name):
        """A mend that lists what the server has of this model, "" where it has nothing of it."""
        try:
            states = self.status(name)
        except management_client.ServerError:
            return ""
        return f"versions of {name}: " + ", ".join(f"{one.version} {one.state}" for one in states)


def _asked(name, version, label):
    return f"model {name!r}" + (f", version {version}" if version is not None else "") + (f", label {label!r}" if label else "")


def _late(address, what, seconds):
    return errors.TftrtError(f"no answer from {address} for {what} within {seconds:g} s",
                             "--timeout waits longer: a request that builds engines takes minutes")


def _signature(proto):
    tensors = {f"{kind}/{one.key}": one.value.name for kind in ("inputs", "outputs") for one in getattr(proto, kind)}
    return Signature(_specs(proto.inputs), _specs(proto.outputs), tensors)


def _specs(listed):
    found = (InputSpec(one.key, tensor.dtype_text(one.value.dtype), _shape(one.value.tensor_shape)) for one in listed)
    return tuple(sorted(found, key=lambda spec: spec.name))


def _shape(proto):
    return None if proto.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in proto.dim)
