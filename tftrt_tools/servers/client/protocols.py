"""The protocols that are spoken here, and which one an address asks for."""

from tftrt_tools.servers.client import model_metadata, model_service, predict_messages
from tftrt_tools.servers.client.kserve import (
    config_messages,
    infer_messages,
    metadata_messages,
    repository_messages,
    shared_memory,
    statistics_messages,
)
from tftrt_tools.servers.client.protocol import Protocol

TENSORFLOW_SERVING = Protocol(
    server="TensorFlow Serving",
    port=8500,
    scheme="",
    paths=(predict_messages.PREDICT, model_metadata.METADATA, model_service.STATUS, model_service.RELOAD),
    path=predict_messages.PREDICT,
    instead="a Triton is asked as triton://HOST:8001",
    only_its_own=False,
    request_bytes=predict_messages.request_bytes,
    response_arrays=predict_messages.response_arrays,
    unordered=True,
    empty_call=lambda model: (model_service.STATUS, model_service.status_request(model)),
)

TRITON = Protocol(
    server="Triton",
    port=8001,
    scheme="triton://",
    paths=(
        infer_messages.INFER,
        metadata_messages.METADATA,
        metadata_messages.SERVER_READY,
        metadata_messages.MODEL_READY,
        config_messages.CONFIG,
        repository_messages.INDEX,
        repository_messages.LOAD,
        repository_messages.UNLOAD,
        statistics_messages.STATISTICS,
        shared_memory.REGISTER,
        shared_memory.UNREGISTER,
    ),
    path=infer_messages.INFER,
    instead="a TensorFlow Serving is asked as HOST:PORT, without triton://",
    only_its_own=True,
    request_bytes=infer_messages.request_bytes,
    response_arrays=infer_messages.response_arrays,
    unordered=False,  # the raw contents belong to the outputs by their places
    empty_call=lambda model: (metadata_messages.MODEL_READY, metadata_messages.request(model)),
)


def of(address: str) -> Protocol:
    """The Protocol that an address names by its scheme: triton://HOST:PORT is a Triton's, any other TensorFlow Serving's."""
    return TRITON if address.startswith(TRITON.scheme) else TENSORFLOW_SERVING
