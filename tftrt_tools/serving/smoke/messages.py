"""PredictionService's messages, without the modules of tensorflow-serving-api: those load TensorFlow.

Field numbers and types are those of tensorflow/serving 2.14.1 (apis/predict.proto, get_model_metadata.proto) and of tensorflow 2.14.1
(framework/tensor.proto, tensor_shape.proto, protobuf/meta_graph.proto). A map is the same on the wire as a repeated {key = 1, value = 2}.
What is not read here is left out; enums are plain numbers.
"""

import functools

from tftrt_tools.wire import messages as tables
from tftrt_tools.wire import tensor, varints

PREDICT = "/tensorflow.serving.PredictionService/Predict"
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
SIGNATURES = "signature_def"

# As tables.classes takes them.
_MESSAGES = {
    "Version": {"value": (1, "int64")},  # google.protobuf.Int64Value
    "ModelSpec": {"name": (1, "string"), "version": (2, ".Version"), "signature_name": (3, "string"), "version_label": (4, "string")},
    "Dim": {"size": (1, "int64")},
    "TensorShape": {"dim": (2, "[.Dim]"), "unknown_rank": (3, "bool")},
    "Tensor": {"dtype": (1, "int32"), "tensor_shape": (2, ".TensorShape"), "tensor_content": (4, "bytes"), "float_val": (5, "[float]"),
               "double_val": (6, "[double]"), "int_val": (7, "[int32]"), "string_val": (8, "[bytes]"), "scomplex_val": (9, "[float]"),
               "int64_val": (10, "[int64]"), "bool_val": (11, "[bool]"), "dcomplex_val": (12, "[double]"), "half_val": (13, "[int32]"),
               "uint32_val": (16, "[uint32]"), "uint64_val": (17, "[uint64]")},
    "NamedTensor": {"key": (1, "string"), "value": (2, ".Tensor")},
    "PredictResponse": {"outputs": (1, "[.NamedTensor]"), "model_spec": (2, ".ModelSpec")},
    "TensorInfo": {"name": (1, "string"), "dtype": (2, "int32"), "tensor_shape": (3, ".TensorShape")},
    "NamedInfo": {"key": (1, "string"), "value": (2, ".TensorInfo")},
    "SignatureDef": {"inputs": (1, "[.NamedInfo]"), "outputs": (2, "[.NamedInfo]"), "method_name": (3, "string")},
    "NamedSignature": {"key": (1, "string"), "value": (2, ".SignatureDef")},
    "SignatureDefMap": {"signature_def": (1, "[.NamedSignature]")},
    "Any": {"type_url": (1, "string"), "value": (2, "bytes")},
    "NamedAny": {"key": (1, "string"), "value": (2, ".Any")},
    "GetModelMetadataRequest": {"model_spec": (1, ".ModelSpec"), "metadata_field": (2, "[string]")},
    "GetModelMetadataResponse": {"model_spec": (1, ".ModelSpec"), "metadata": (2, "[.NamedAny]")},
}


def model_spec(name, version=None, label="", signature=""):
    """A ModelSpec. Args: version: int or None; label: "" for none; a server refuses both together."""
    spec = classes()["ModelSpec"](name=name, signature_name=signature, version_label=label)
    if version is not None:
        spec.version.value = version
    return spec


def metadata_request(spec):
    """bytes of the GetModelMetadataRequest for all signatures of ModelSpec `spec`."""
    return classes()["GetModelMetadataRequest"](model_spec=spec, metadata_field=[SIGNATURES]).SerializeToString()


def predict_request(spec, inputs):
    """bytes of a PredictRequest. Args: inputs: {alias: ndarray}, strings as objects. Raises: ValueError for a dtype that cannot be sent."""
    parts = varints.delimited(1, spec.SerializeToString())
    for alias, array in inputs.items():
        entry = [*varints.delimited(1, alias.encode()), *varints.delimited(2, *tensor.encode(array, content=True))]
        parts += varints.delimited(2, *entry)
    return b"".join(parts)


def predict_answer(raw):
    """({alias: ndarray}, version) of a PredictResponse. Raises: ValueError where it is none, or a tensor of it does not decode."""
    answer = _parsed("PredictResponse", raw)
    return {one.key: tensor.decode(one.value) for one in answer.outputs}, answer.model_spec.version.value


def metadata_answer(raw):
    """({signature: SignatureDef}, version) of a GetModelMetadataResponse. Raises: ValueError."""
    answer = _parsed("GetModelMetadataResponse", raw)
    packed = next((one.value.value for one in answer.metadata if one.key == SIGNATURES), b"")
    listed = _parsed("SignatureDefMap", packed).signature_def
    return {one.key: one.value for one in listed}, answer.model_spec.version.value


def _parsed(name, raw):
    from google.protobuf.message import DecodeError

    try:
        return classes()[name].FromString(raw)
    except DecodeError as error:
        raise ValueError(f"this is no {name}: {error}") from None


@functools.cache
def classes():
    """{name: class} of _MESSAGES."""
    return tables.classes("tftrt_tools/serving/smoke.proto", "tftrt_smoke", _MESSAGES)
