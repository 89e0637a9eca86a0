"""Typed clients for TensorFlow Serving and for Triton that load no TensorFlow.

    from tftrt_tools.client import Client

    with Client("localhost:8500") as client:
        arrays = client.predict("digits", {"image": images})
        arrays["probabilities"], arrays.model.version
        client.metadata("digits")["serving_default"].inputs["image"].shape

`AsyncClient` has the same methods, to be awaited. `request_bytes` and `response_arrays` are the two halves of a Predict without a network;
`predict_bytes` sends such a request. `TritonClient` and `AsyncTritonClient` ask a Triton (KServe's protocol v2).
"""

from tftrt_tools.servers.client.channel import Tls
from tftrt_tools.servers.client.client import AsyncClient, Client
from tftrt_tools.servers.client.kserve.client import AsyncTritonClient, TritonClient
from tftrt_tools.servers.client.kserve.shared_memory import SharedMemory
from tftrt_tools.servers.client.model_metadata import Signature, TensorSpec
from tftrt_tools.servers.client.model_service import VersionStatus
from tftrt_tools.servers.client.model_spec import Answered, ModelSpec
from tftrt_tools.servers.client.opening import opened
from tftrt_tools.servers.client.predict_messages import PREDICT, request_bytes, response_arrays
from tftrt_tools.servers.client.serving_error import ServingError

__all__ = [
    "PREDICT",
    "Answered",
    "AsyncClient",
    "AsyncTritonClient",
    "Client",
    "ModelSpec",
    "ServingError",
    "SharedMemory",
    "Signature",
    "TensorSpec",
    "Tls",
    "TritonClient",
    "VersionStatus",
    "opened",
    "request_bytes",
    "response_arrays",
]
