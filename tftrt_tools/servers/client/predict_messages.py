"""A PredictRequest's bytes from arrays, and arrays from a PredictResponse's bytes (tensorflow_serving/apis/predict.proto)."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.wire import entries, fields, tensor, tensor_bytes, varints
from tftrt_tools.servers.client import sendable
from tftrt_tools.servers.client.model_spec import ModelSpec, utf8

PREDICT = "/tensorflow.serving.PredictionService/Predict"


def request_bytes(
    model: str,
    inputs: Mapping[str, npt.ArrayLike],
    signature: str = "",
    version: int | None = None,
    label: str = "",
    outputs: str | Iterable[str] = (),
    content: bool = True,
) -> bytes:
    """A PredictRequest on the wire: byte for byte what tensorflow-serving-api writes with SerializeToString(deterministic=True).

    Args:
      model: its name. signature: "" for "serving_default". version: int; label: instead of a version.
      inputs: {alias: ndarray, or what numpy.asarray takes}. Texts are arrays of str (sent as UTF-8) or of bytes; bfloat16 is ml_dtypes'.
      outputs: aliases of the wanted outputs, all where empty.
      content: numbers as tensor_content, the bytes of the array. False: in the typed fields (float_val and the like).

    Returns: bytes. The values are copied once, into it. Raises: UsageError.
    """
    spec = ModelSpec(model, version, label, signature)
    if not model:
        raise errors.UsageError("the model has no name", "write client.predict('digits', …)")
    parts = varints.delimited(1, spec.to_bytes())
    for raw, alias, array in sorted(
        ((utf8(alias), alias, array) for alias, array in sendable.pairs(inputs)), key=_place
    ):
        parts += varints.delimited(
            2, *varints.delimited(1, raw), *varints.delimited(2, *_encoded(alias, array, content))
        )
    for alias in (outputs,) if isinstance(outputs, str) else outputs:
        parts += varints.delimited(3, utf8(alias))
    return sendable.joined(parts)


def response_arrays(raw: bytes) -> tuple[ModelSpec, dict[str, npt.NDArray[Any]]]:
    """The content of a PredictResponse; numbers may be in tensor_content or in the typed fields.

    Args: raw: bytes of it, which nobody has checked.
    Returns: (ModelSpec of the model that answered, {alias: ndarray}), in the order of the aliases. Arrays are read-only; floats, and all
    numbers that came as tensor_content, lie in `raw` at any alignment and keep it alive. Strings are bytes in an object array.
    Raises: ValueError if the bytes are no PredictResponse, or visibly damaged.
    """
    outputs: dict[str, memoryview] = {}
    specs: list[memoryview] = []
    for field, wire_type, value in fields.walk(memoryview(raw)):
        if wire_type == fields.DELIMITED:
            if field == 1:
                alias, message = entries.read(value)
                outputs[alias] = message
            elif field == 2:
                specs.append(value)
    arrays: dict[str, npt.NDArray[Any]] = {}
    spare = tensor_bytes.SPARE
    for alias in sorted(outputs):
        try:
            arrays[alias], filled = tensor_bytes.read(outputs[alias], spare)
        except ValueError as error:
            raise ValueError(f"output {alias!r}: {error}") from None
        spare -= filled
    return ModelSpec.from_parts(specs), arrays


def _place(entry: tuple[bytes, str, npt.ArrayLike]) -> tuple[int, ...]:
    """protobuf (upb) sorts the keys of a map by their bytes, and a key that begins another comes after it: "ids_mask", then "ids"."""
    return (*entry[0], 256)


def _encoded(alias: str, value: npt.ArrayLike, content: bool) -> list[Any]:
    """Pieces of a TensorProto, bytes and memoryviews."""
    array = sendable.array(alias, value)
    try:
        return tensor.encode(array, content)
    except (ValueError, TypeError) as error:
        raise sendable.unsendable(alias, error) from None
