"""The three calls that manage a TensorFlow Serving, without the modules of tensorflow-serving-api: those load TensorFlow, which takes
seconds and prints to stderr.

Field numbers and types are those of tensorflow/serving 2.14.1 (apis/model.proto, get_model_status.proto, model_management.proto,
get_model_metadata.proto, util/status.proto). What is not read here is left out; enums are plain numbers; a ModelServerConfig is bytes,
which is the same on the wire.
"""

import functools

from tftrt_tools.wire import messages

GET_MODEL_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
HANDLE_RELOAD_CONFIG = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
GET_MODEL_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
# ModelVersionStatus.State
STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}

# As messages.classes takes them.
_MESSAGES = {
    "Version": {"value": (1, "int64")},  # google.protobuf.Int64Value
    "ModelSpec": {"name": (1, "string"), "version": (2, ".Version"), "version_label": (4, "string")},
    "Status": {"error_code": (1, "int32"), "error_message": (2, "string")},
    "ModelVersionStatus": {"version": (1, "int64"), "state": (2, "int32"), "status": (3, ".Status")},
    "GetModelStatusRequest": {"model_spec": (1, ".ModelSpec")},
    "GetModelStatusResponse": {"model_version_status": (1, "[.ModelVersionStatus]")},
    "ReloadConfigRequest": {"config": (1, "bytes")},
    "ReloadConfigResponse": {"status": (1, ".Status")},
    "GetModelMetadataRequest": {"model_spec": (1, ".ModelSpec"), "metadata_field": (2, "[string]")},
    "GetModelMetadataResponse": {"model_spec": (1, ".ModelSpec")},
}
_ANSWERS = {GET_MODEL_STATUS: "GetModelStatusResponse", HANDLE_RELOAD_CONFIG: "ReloadConfigResponse",
            GET_MODEL_METADATA: "GetModelMetadataResponse"}


def new(name, **fields):
    """A message by its name."""
    return _classes()[name](**fields)


def calls(channel):
    """{path: function of a request} of a grpc.Channel."""
    return {path: channel.unary_unary(path, request_serializer=lambda request: request.SerializeToString(),
                                      response_deserializer=_classes()[answer].FromString) for path, answer in _ANSWERS.items()}


@functools.cache
def _classes():
    return messages.classes("tftrt_tools/serving/management.proto", "tftrt", _MESSAGES)
