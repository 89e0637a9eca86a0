"""The version that answers for a model on a running server, and single calls to it."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.client import ServingError, TritonClient, opened
from tftrt_tools.servers.client.kserve import askable
from tftrt_tools.servers.client.protocol import Protocol
from tftrt_tools.servers.serving.smoke.platform_evidence import Platform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tftrt_tools.servers import client

# A request fails with these codes if the server is gone or was never there.
_GONE = ("UNAVAILABLE", "UNIMPLEMENTED", "CANCELLED")


@dataclasses.dataclass(frozen=True)
class Signature:
    """inputs, outputs: by name; tensors: {"inputs/ALIAS" or "outputs/ALIAS": name of the graph's tensor}."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    tensors: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Served:
    """The version that answers for a model. version: its number; signatures: {name: Signature}; runs: what runs it, as a Triton says; None
    on a TensorFlow Serving, which says nothing of it."""

    name: str
    version: int
    signatures: Mapping[str, Signature]
    runs: Platform | None = None


class NotServed(errors.UsageError):
    """The server has no such model, version or label. Its mend is "" if nothing is known of the model."""


class Asking:
    """A client of a server. A context manager. address: the gRPC target. The methods raise ServingError."""

    def __init__(self, address: str, timeout: float, tls: client.Tls | None = None) -> None:
        """Args: address: HOST[:PORT] or unix:PATH; timeout: seconds for one request. Raises: UsageError."""
        self._timeout = timeout
        # No call is sent again, because a second attempt would be timed with the first.
        self._client = opened(address, timeout=timeout, tls=tls, retries=0)
        self.address = self._client.address

    @property
    def protocol(self) -> Protocol:
        """What the server speaks."""
        return self._client.protocol

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def served(self, name: str, version: int | None = None, label: str = "") -> Served:
        """The version that answers for a model, by version, by label, or by default. Raises: NotServed."""
        try:
            metadata = self._client.metadata(name, version, label)
        except ServingError as error:
            if error.code == "DEADLINE_EXCEEDED":
                raise errors.TftrtError(
                    f"no answer from {self.address} for the model's metadata within {self._timeout:g} s",
                    "see the server's log; --timeout_seconds waits longer",
                ) from None
            if error.code in ("NOT_FOUND", "INVALID_ARGUMENT"):
                raise NotServed(
                    f"{self.address} serves no {_asked(name, version, label)}: {error.line}", self._versions(name)
                ) from None
            raise
        signatures = {
            key: _signature(definition) for key, definition in metadata.items() if not key.startswith("__saved_model_")
        }
        runs = None
        if isinstance(self._client, TritonClient):
            config = askable.config(self._client, name, metadata.model.version)
            runs = Platform(
                next((definition.method for definition in metadata.values()), "") or config.backend or "not told",
                config.on_cpu,
            )
        return Served(name, metadata.model.version or 0, signatures, runs)

    def predict(self, request: bytes, what: str) -> tuple[bytes, float]:
        """Send a request that runs a model. Args: what: the call for people. Returns: (bytes of the answer, seconds).

        Raises: ServingError where the server refuses it; TftrtError after the deadline; CheckFailed where the server is gone.
        """
        start = time.perf_counter()
        try:
            return self._client.predict_bytes(request, self._timeout), time.perf_counter() - start
        except ServingError as error:
            if error.code == "DEADLINE_EXCEEDED":
                raise errors.TftrtError(
                    f"no answer from {self.address} for {what} within {self._timeout:g} s",
                    "--timeout_seconds waits longer: a request that builds engines takes minutes",
                ) from None
            # A full batching queue of a healthy server is UNAVAILABLE too.
            if error.code in _GONE and not self._answers():
                raise errors.CheckFailed(
                    f"the server ended, or closed the connection, at {what}: {error.line}",
                    "look at the end of its log; engines of another TensorRT end it like this",
                ) from None
            raise

    def _answers(self) -> bool:
        try:
            self._client.status("")
        except ServingError as error:
            return error.code == "NOT_FOUND"
        return True

    def _versions(self, name: str) -> str:
        """A mend that lists the server's versions of this model, "" if it has none."""
        if isinstance(self._client, TritonClient):
            return askable.known(self._client, name)
        try:
            states = self._client.status(name)
        except ServingError:
            return ""
        return f"versions of {name}: " + ", ".join(state.line() for state in states)


def _asked(name: str, version: int | None, label: str) -> str:
    return (
        f"model {name!r}"
        + (f", version {version}" if version is not None else "")
        + (f", label {label!r}" if label else "")
    )


def _signature(told: client.Signature) -> Signature:
    both = {"inputs": told.inputs, "outputs": told.outputs}
    tensors = {f"{kind}/{alias}": spec.name for kind, specs in both.items() for alias, spec in specs.items()}
    inputs, outputs = (
        tuple(InputSpec(alias, spec.dtype, spec.shape) for alias, spec in sorted(specs.items()))
        for specs in both.values()
    )
    return Signature(inputs, outputs, tensors)
