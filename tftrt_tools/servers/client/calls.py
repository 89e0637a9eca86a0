"""The calls to a TensorFlow Serving, each as a Call: the bytes to send, and how to read the answer's bytes. Client and AsyncClient both
send them.

The functions here are the clients' methods: their arguments and their docstrings. `connection` is the client itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from tftrt_tools.servers.client import model_metadata, model_service, predict_messages, protocols, serving_error
from tftrt_tools.servers.client.call import Call, Connection
from tftrt_tools.servers.client.model_metadata import Signature
from tftrt_tools.servers.client.model_service import VersionStatus
from tftrt_tools.servers.client.model_spec import Answered, ModelSpec


def predict(
    connection: Connection,
    model: str,
    inputs: Mapping[str, npt.ArrayLike],
    signature: str = "",
    version: int | None = None,
    label: str = "",
    outputs: str | Iterable[str] = (),
    timeout: float | None = None,
    content: bool = True,
    copy: bool = False,
) -> Call[Answered[npt.NDArray[Any]]]:
    """Run a signature.

    Args: as for `request_bytes`. timeout: seconds for this call. copy: give arrays of their own, aligned and writable, instead of
    read-only ones that lie in the answer.
    Returns: {alias: ndarray}, a dict whose attribute `model` is the ModelSpec that answered. Raises: ServingError, UsageError.
    """

    def read(raw: bytes) -> Answered[npt.NDArray[Any]]:
        answered, arrays = predict_messages.response_arrays(raw)
        return Answered({alias: array.copy() for alias, array in arrays.items()} if copy else arrays, answered)

    request = predict_messages.request_bytes(model, inputs, signature, version, label, outputs, content)
    return Call(predict_messages.PREDICT, request, read, timeout)


def predict_bytes(connection: Connection, request: bytes, timeout: float | None = None) -> Call[bytes]:
    """Run a signature, bytes in and bytes out. The time of such a call is the server's and the network's; no arrays are read.

    Args: request: of `request_bytes`. timeout: seconds for this call.
    Returns: bytes for `response_arrays`. Raises: ServingError, UsageError.
    """
    return Call(predict_messages.PREDICT, request, bytes, timeout)


def metadata(
    connection: Connection, model: str, version: int | None = None, label: str = "", timeout: float | None = None
) -> Call[Answered[Signature]]:
    """The signatures of a model.

    Returns: {name: Signature}, a dict whose attribute `model` is the ModelSpec that answered. Raises: ServingError, UsageError.
    """
    return Call(
        model_metadata.METADATA, model_metadata.request(ModelSpec(model, version, label)), model_metadata.read, timeout
    )


def status(
    connection: Connection, model: str, version: int | None = None, timeout: float | None = None
) -> Call[list[VersionStatus]]:
    """The states of all versions that the server has ever seen, or of one; those that were unloaded stay in the list as END.

    Returns: [VersionStatus(version, state, error_code, error)], the newest first. Raises: ServingError, UsageError.
    """
    return Call(
        model_service.STATUS,
        model_service.status_request(ModelSpec(model, version)),
        model_service.read_status,
        timeout,
    )


def reload(connection: Connection, config: model_service.Config, timeout: float | None = None) -> Call[None]:
    """Give the server a new configuration. It replaces the old one: the server unloads a model that it does not list.

    It returns when models with new names are available; for a new version of a known model, ask `status`. It is never sent twice.

    Args: config: the path of a models.config, its text, or a ModelServerConfig message.
    Raises: ServingError, UsageError.
    """

    def read(raw: bytes) -> None:
        code, message = model_service.read_reload(raw)
        if code != "OK":  # the real server also makes the call itself fail
            raise serving_error.of(
                code, message, connection.address, None, protocols.TENSORFLOW_SERVING, "HandleReloadConfigRequest"
            )

    return Call(model_service.RELOAD, model_service.reload_request(config), read, timeout)
