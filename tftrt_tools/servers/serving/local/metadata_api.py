"""PredictionService.GetModelMetadata: the signatures of a model.

Checks, their order and their texts are those of TensorFlow Serving 2.14.1 (servables/tensorflow/get_model_metadata_impl.cc).
"""

from __future__ import annotations

from tensorflow_serving.apis import get_model_metadata_pb2

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.servable import AnyServable

SIGNATURES = "signature_def"


def check(request: get_model_metadata_pb2.GetModelMetadataRequest) -> None:
    """Refuse a request that names no field, or another than the signatures. The real server does this before it looks for the model.

    Raises: Failure INVALID_ARGUMENT.
    """
    if not request.HasField("model_spec"):
        raise failure.invalid("Missing ModelSpec")
    if not request.metadata_field:
        raise failure.invalid("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != SIGNATURES:
            raise failure.invalid(f"Metadata field {field} is not supported")


def metadata(
    servable: AnyServable, request: get_model_metadata_pb2.GetModelMetadataRequest
) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Answer a GetModelMetadataRequest.

    Args: servable: Servable. request: GetModelMetadataRequest.
    Returns: GetModelMetadataResponse: model_spec with name and version, no signature name; "signature_def" as one Any of
      SignatureDefMap, with all signatures of the SavedModel, "__saved_model_init_op" too where there is one.
    Raises: Failure, as `check`.
    """
    check(request)
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.model_spec.name = servable.name
    answer.model_spec.version.value = servable.version
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in servable.signatures.items():
        signatures.signature_def[name].CopyFrom(signature)
    answer.metadata[SIGNATURES].Pack(signatures)
    return answer
