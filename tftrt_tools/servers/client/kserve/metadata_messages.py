"""ModelMetadata, ModelReady and ServerReady, to and from bytes."""

from tftrt_tools.base.wire import fields
from tftrt_tools.servers.client.kserve import datatypes
from tftrt_tools.servers.client.kserve.infer_messages import tensor
from tftrt_tools.servers.client.kserve.model import SIGNATURE, asked, version_text
from tftrt_tools.servers.client.model_metadata import Signature, TensorSpec
from tftrt_tools.servers.client.model_spec import Answered, ModelSpec, text

METADATA = "/inference.GRPCInferenceService/ModelMetadata"
SERVER_READY = "/inference.GRPCInferenceService/ServerReady"
MODEL_READY = "/inference.GRPCInferenceService/ModelReady"


def request(model: ModelSpec) -> bytes:
    """bytes of a ModelMetadataRequest or a ModelReadyRequest. Raises: UsageError."""
    return b"".join(asked(model))


def read(raw: bytes, wanted: int | None) -> Answered[Signature]:
    """{"serving_default": Signature} of a ModelMetadataResponse. Its `method` is the server's platform for the model, such as
    "tensorrt_plan"; its `model` has the version that answers: the wanted one, else the largest that is ready. Raises: ValueError."""
    name = platform = ""
    versions: list[int] = []
    sides: dict[int, dict[str, TensorSpec]] = {4: {}, 5: {}}
    for field, wire_type, value in fields.walk(memoryview(raw)):
        if wire_type != fields.DELIMITED:
            continue
        if field == 1:
            name = text(value)
        elif field == 2:
            versions.append(version_text(text(value)) or 0)
        elif field == 3:
            platform = text(value)
        elif field in sides:
            alias, datatype, shape = tensor(value)
            sides[field][alias] = TensorSpec(
                datatypes.text(datatype), tuple(None if size < 0 else size for size in shape)
            )
    version = wanted if wanted is not None else max(versions, default=None)
    return Answered({SIGNATURE: Signature(sides[4], sides[5], platform)}, ModelSpec(name, version))


def read_ready(raw: bytes) -> bool:
    """Whether a ServerReadyResponse or a ModelReadyResponse says ready. Raises: ValueError."""
    return any(
        field == 1 and wire_type == fields.VARINT and bool(value)
        for field, wire_type, value in fields.walk(memoryview(raw))
    )
