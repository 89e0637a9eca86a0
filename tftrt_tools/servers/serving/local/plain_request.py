"""Reads the usual form of a PredictRequest from its bytes, in place and without message objects.

protobuf's parser copies each tensor twice. This reader takes views, and knows only what clients write as a rule: each field once, shapes
without names, tensors as long as their shape asks. Of everything else it says None; then protobuf's parser decides what it is, and if it
is a request at all.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf import message

from tftrt_tools.base.wire import fields, tensor
from tftrt_tools.servers.serving.local.servable import Array

_Known = TypeVar("_Known")
_SPEC, _INPUTS, _FILTER = 1, 2, 3
_KEY, _VALUE = 1, 2
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_DIM, _SIZE = 2, 1
_REMEMBERED = 256  # bytes; clients repeat short specs and shapes


@dataclasses.dataclass(frozen=True)
class PlainRequest:
    """What predict_api needs of a PredictRequest. inputs: {alias: ndarray}, read-only, at any alignment, in the request's bytes where these
    hold the values as memory does."""

    model_spec: Any
    inputs: Mapping[str, Array]
    output_filter: Sequence[str]


def read(raw: bytes | memoryview) -> PlainRequest | None:
    """The request in `raw`; None where it has another form than the usual one, or is none."""
    spec = None
    inputs: dict[str, Array] = {}
    names: list[str] = []
    try:
        for field, wire_type, value in fields.walk(memoryview(raw)):
            if wire_type != fields.DELIMITED:
                return None
            if field == _SPEC and spec is None:
                spec = _remembered(_model_spec, value)
            elif field == _INPUTS:
                alias, array = _input(value)
                if alias in inputs:
                    return None
                inputs[alias] = array
            elif field == _FILTER:
                names.append(str(value, "utf-8"))
            else:
                return None
    except ValueError:
        return None
    return None if spec is None else PlainRequest(spec, inputs, names)


def _remembered(parse: Callable[[bytes], _Known], value: memoryview) -> _Known:
    return parse(bytes(value)) if len(value) <= _REMEMBERED else parse.__wrapped__(bytes(value))  # type: ignore[attr-defined]


@functools.lru_cache(256)
def _model_spec(raw: bytes) -> Any:
    """The ModelSpec; nobody changes it. Raises: ValueError."""
    from tensorflow_serving.apis import model_pb2

    try:
        return model_pb2.ModelSpec.FromString(raw)
    except message.DecodeError as error:
        raise ValueError(str(error)) from None


@functools.lru_cache(256)
def _shape(raw: bytes) -> tuple[tuple[int, ...], int]:
    """(shape, number of elements) of a TensorShapeProto. Raises: ValueError."""
    sizes = []
    for field, wire_type, dim in fields.walk(memoryview(raw)):
        if field != _DIM or wire_type != fields.DELIMITED:
            raise ValueError("not the usual form")
        size, *more = list(fields.walk(dim)) or [(_SIZE, fields.VARINT, 0)]
        if more or size[:2] != (_SIZE, fields.VARINT):
            raise ValueError("not the usual form")
        sizes.append(fields.signed(size[2]))
    return tensor.shape_of(sizes)


def _input(raw: memoryview) -> tuple[str, Array]:
    """(alias, array) of an entry of the map `inputs`. Raises: ValueError."""
    (key, key_type, alias), (value, value_type, content) = fields.walk(raw)
    if (key, key_type, value, value_type) != (_KEY, fields.DELIMITED, _VALUE, fields.DELIMITED):
        raise ValueError("not the usual form")
    return str(alias, "utf-8"), _array(content)


def _array(raw: memoryview) -> Array:
    """The array of a TensorProto with a dtype, a shape and one field of values. Raises: ValueError."""
    number = 0
    shape: tuple[tuple[int, ...], int] | None = None
    values: tuple[int, memoryview] | None = None
    for field, wire_type, value in fields.walk(raw):
        if field == _DTYPE and wire_type == fields.VARINT and not number:
            number = value
        elif field == _SHAPE and wire_type == fields.DELIMITED and shape is None:
            shape = _remembered(_shape, value)
        elif field not in (_DTYPE, _SHAPE) and wire_type == fields.DELIMITED and values is None:
            values = field, value
        else:
            raise ValueError("not the usual form")
    _, typed, layout = tensor.kind(number)
    if shape is None or values is None or layout == "bytes" or not shape[1]:
        raise ValueError("not the usual form")
    field, content = values
    if field == _CONTENT:
        array = tensor.from_content(number, content, shape[1])
    elif field == typed:
        array = tensor.from_values(number, content)
    else:
        raise ValueError("not the usual form")
    if len(array) != shape[1] or field == typed and layout in ("raw", "pairs") and array.nbytes != len(content):
        raise ValueError("not the usual form")
    array = array.reshape(shape[0])
    array.flags.writeable = False
    return array
