"""What GetModelMetadata tells of a model (tensorflow_serving/apis/get_model_metadata.proto, tensorflow/core/protobuf/meta_graph.proto)."""

import dataclasses

from tftrt_tools.base.wire import entries, fields, tensor, tensor_bytes, varints
from tftrt_tools.models.savedmodel import shapes
from tftrt_tools.servers.client.model_spec import Answered, ModelSpec
from tftrt_tools.servers.client.model_spec import text as decoded

METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_FIELD = "signature_def"
_INNER = "__saved_model_"


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or output. dtype: as NumPy names it, or "string"; shape: None for an unknown rank, else a tuple with None for unknown
    dimensions; name: of the graph's tensor, such as "serving_default_x:0"."""

    dtype: str
    shape: tuple[int | None, ...] | None
    name: str = ""

    def text(self) -> str:
        """Dtype and shape, such as float32[?,224,224,3]."""
        return f"{self.dtype}[{shapes.text(self.shape)}]"


@dataclasses.dataclass(frozen=True)
class Signature:
    """inputs, outputs: {alias: TensorSpec}, by alias; method: such as "tensorflow/serving/predict"."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    method: str


def request(model: ModelSpec) -> bytes:
    """bytes of the GetModelMetadataRequest of a model."""
    return b"".join([*varints.delimited(1, model.to_bytes()), *varints.delimited(2, _FIELD.encode())])


def read(raw: bytes) -> Answered[Signature]:
    """{name of a signature: Signature} of a GetModelMetadataResponse's bytes, which nobody has checked; without TensorFlow's own, such as
    "__saved_model_init_op", which no client can ask. Raises: ValueError."""
    message = memoryview(raw)
    specs = [value for field, wire_type, value in fields.walk(message) if field == 1 and wire_type == fields.DELIMITED]
    packed = entries.read_all(message, 2).get(_FIELD, memoryview(b""))  # a google.protobuf.Any
    definitions = entries.read_all(_last(packed, 2), 1)
    return Answered(
        {name: _signature(definitions[name]) for name in sorted(definitions) if not name.startswith(_INNER)},
        ModelSpec.from_parts(specs),
    )


def _signature(raw: memoryview) -> Signature:
    inputs, outputs = (
        {alias: _tensor(info) for alias, info in sorted(entries.read_all(raw, number).items())} for number in (1, 2)
    )
    return Signature(inputs, outputs, decoded(_last(raw, 3)))


def _tensor(raw: memoryview) -> TensorSpec:
    number, name, parts = 0, "", []
    for field, wire_type, value in fields.walk(raw):
        if field == 1 and wire_type == fields.DELIMITED:
            name = decoded(value)
        elif field == 2 and wire_type == fields.VARINT:
            number = fields.signed(value, 32)
        elif field == 3 and wire_type == fields.DELIMITED:
            parts.append(value)
    return TensorSpec(tensor.dtype_text(number), _shape(parts), name)


def _shape(parts: list[memoryview]) -> tuple[int | None, ...] | None:
    unknown = False
    for field, wire_type, value in fields.walk(fields.joined(parts)) if parts else ():
        if field == 3 and wire_type == fields.VARINT:
            unknown = bool(value)
    return None if unknown else tuple(None if size < 0 else size for size in tensor_bytes.sizes(parts))


def _last(raw: memoryview, number: int) -> memoryview:
    """The bytes or message in field `number`: the last one if there are several, empty if there is none."""
    answer = memoryview(b"")
    for field, wire_type, value in fields.walk(raw):
        if field == number and wire_type == fields.DELIMITED:
            answer = value
    return answer
