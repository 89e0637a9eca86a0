"""The calls to a Triton, each as a Call. TritonClient and AsyncTritonClient both send them; the functions are their methods.

`connection` is the client itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy.typing as npt

from tftrt_tools.servers.client import protocols, serving_error
from tftrt_tools.servers.client.call import Call, Connection
from tftrt_tools.servers.client.kserve import (
    config_messages,
    infer_messages,
    metadata_messages,
    repository_messages,
    shared_memory,
    statistics_messages,
)
from tftrt_tools.servers.client.kserve.config_messages import ModelConfig
from tftrt_tools.servers.client.kserve.repository_messages import Indexed
from tftrt_tools.servers.client.kserve.shared_memory import SharedMemory
from tftrt_tools.servers.client.kserve.statistics_messages import Statistics
from tftrt_tools.servers.client.model_metadata import Signature
from tftrt_tools.servers.client.model_service import VersionStatus
from tftrt_tools.servers.client.model_spec import Answered, ModelSpec


class Sharing(Connection, Protocol):
    """A client that may share memory with the server. regions: those that the server has registered for it."""

    regions: tuple[SharedMemory, ...]


def predict(
    connection: Sharing,
    model: str,
    inputs: Mapping[str, npt.ArrayLike],
    signature: str = "",
    version: int | None = None,
    label: str = "",
    outputs: str | Iterable[str] = (),
    timeout: float | None = None,
    copy: bool = False,
) -> Call[Answered[npt.NDArray[Any]]]:
    """Run a model. The arguments are those of TensorFlow Serving's client.

    Args: as for `infer_messages.request_bytes`. timeout: seconds for this call. copy: give arrays of their own, aligned and writable,
    instead of read-only ones that lie in the answer.
    Returns: {output: ndarray}, a dict whose attribute `model` is the ModelSpec that answered. Raises: ServingError, UsageError.
    """

    def read(raw: bytes) -> Answered[npt.NDArray[Any]]:
        answered, arrays = infer_messages.response_arrays(raw)
        return Answered({name: array.copy() for name, array in arrays.items()} if copy else arrays, answered)

    request = infer_messages.request_bytes(model, inputs, signature, version, label, outputs, connection.regions)
    return Call(infer_messages.INFER, request, read, timeout)


def predict_bytes(connection: Connection, request: bytes, timeout: float | None = None) -> Call[bytes]:
    """Run a model, bytes in and bytes out.

    Args: request: of `infer_messages.request_bytes`. timeout: seconds for this call.
    Returns: bytes for `infer_messages.response_arrays`. Raises: ServingError, UsageError.
    """
    return Call(infer_messages.INFER, request, bytes, timeout)


def metadata(
    connection: Connection, model: str, version: int | None = None, label: str = "", timeout: float | None = None
) -> Call[Answered[Signature]]:
    """The inputs and outputs of a model, batch first.

    Args: label: "": Triton has no labels.
    Returns: {"serving_default": Signature}, a dict whose attribute `model` has the version that answers. Raises: ServingError, UsageError.
    """
    return Call(
        metadata_messages.METADATA,
        metadata_messages.request(ModelSpec(model, version, label)),
        lambda raw: metadata_messages.read(raw, version),
        timeout,
    )


def config(
    connection: Connection, model: str, version: int | None = None, timeout: float | None = None
) -> Call[ModelConfig]:
    """What runs a model and where, and whether it answers with a stream. Returns: ModelConfig. Raises: ServingError, UsageError."""
    return Call(
        config_messages.CONFIG, config_messages.request(ModelSpec(model, version)), config_messages.read, timeout
    )


def ready(
    connection: Connection, model: str = "", version: int | None = None, timeout: float | None = None
) -> Call[bool]:
    """Whether a model can be asked, or without a name, whether the server and all its models are ready. Raises: ServingError."""
    if not model:
        return Call(metadata_messages.SERVER_READY, b"", metadata_messages.read_ready, timeout)
    return Call(
        metadata_messages.MODEL_READY,
        metadata_messages.request(ModelSpec(model, version)),
        metadata_messages.read_ready,
        timeout,
    )


def repository(connection: Connection, timeout: float | None = None) -> Call[list[Indexed]]:
    """All models of the repository with their versions and states. Returns: [Indexed]. Raises: ServingError."""
    return Call(repository_messages.INDEX, repository_messages.index_request(), repository_messages.read_index, timeout)


def status(
    connection: Connection, model: str, version: int | None = None, timeout: float | None = None
) -> Call[list[VersionStatus]]:
    """The states of a model's versions, in TensorFlow Serving's words.

    Returns: [VersionStatus(version, state, error_code, error)], the newest first. Raises: ServingError, NOT_FOUND for a model that is not
    in the repository, or for a version that it does not know, with those that are.
    """

    def read(raw: bytes) -> list[VersionStatus]:
        index = repository_messages.read_index(raw)
        states = sorted((entry.status() for entry in index if entry.name == model), key=lambda entry: -entry.version)
        matching = [state for state in states if version in (None, state.version)]
        if not matching:
            names = ", ".join(dict.fromkeys(entry.name for entry in index)) or "none"
            versions = (
                ", ".join(f"{state.version} {state.state}" for state in states if state.version)
                or "none that was loaded"
            )
            what = (
                f"no version {version} of model {model!r}; its versions: {versions}"
                if states
                else f"no model {model!r} in the repository; its models: {names}"
            )
            raise serving_error.of("NOT_FOUND", what, connection.address, None, protocols.TRITON, "RepositoryIndex")
        return matching

    return Call(repository_messages.INDEX, repository_messages.index_request(), read, timeout)


def statistics(
    connection: Connection, model: str, version: int | None = None, timeout: float | None = None
) -> Call[list[Statistics]]:
    """What the server counted for a model since it was loaded. Returns: [Statistics] of each version. Raises: ServingError, UsageError."""
    return Call(
        statistics_messages.STATISTICS,
        statistics_messages.request(ModelSpec(model, version)),
        statistics_messages.read,
        timeout,
    )


def register(connection: Sharing, memory: SharedMemory, timeout: float | None = None) -> Call[None]:
    """Let the server, on this machine, see a region: inputs that lie in it are not sent from then on. Raises: ServingError."""

    def read(raw: bytes) -> None:
        connection.regions = (*connection.regions, memory)

    return Call(shared_memory.REGISTER, shared_memory.register_request(memory), read, timeout)


def unregister(connection: Sharing, memory: SharedMemory, timeout: float | None = None) -> Call[None]:
    """Let the server forget a region. Raises: ServingError."""

    def read(raw: bytes) -> None:
        connection.regions = tuple(one for one in connection.regions if one is not memory)

    return Call(shared_memory.UNREGISTER, shared_memory.unregister_request(memory), read, timeout)


def load(connection: Connection, model: str, timeout: float | None = None) -> Call[None]:
    """Load a model, or load it again with the versions that are there now (--model-control-mode=explicit); it is never sent twice.

    It returns when the model is ready. Raises: ServingError.
    """
    return Call(repository_messages.LOAD, repository_messages.model_request(model), lambda raw: None, timeout)


def unload(connection: Connection, model: str, timeout: float | None = None) -> Call[None]:
    """Unload a model (--model-control-mode=explicit); it is never sent twice. It does not wait for the end. Raises: ServingError."""
    return Call(repository_messages.UNLOAD, repository_messages.model_request(model), lambda raw: None, timeout)
