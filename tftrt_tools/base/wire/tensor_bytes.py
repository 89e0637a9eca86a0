"""Reads a TensorProto directly from unchecked bytes, without a message object and, if possible, without a copy."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base.wire import fields, many_texts, tensor, varints

DTYPE, SHAPE, CONTENT, STRINGS = 1, 2, 4, 8
_STRING = 7  # of DataType
# bytes by which one answer may grow through filling up: a shape of a few bytes can ask for terabytes
SPARE = 256 << 20


def read(raw: memoryview, spare: int = SPARE) -> tuple[npt.NDArray[Any], int]:
    """The array of a TensorProto.

    As TensorFlow reads it: a field that came twice counts as protobuf counts it; a typed field that is shorter than the shape asks is
    filled up with its last value.

    Args: raw: memoryview of the message's bytes; spare: bytes that may be filled up.
    Returns: (ndarray, bytes that were filled up). If `raw` holds the values as memory does, the array lies in `raw`, at any alignment.
    It is always read-only; strings are bytes in an object array.
    Raises: ValueError where it is no TensorProto, or dtype, shape and content do not go together.
    """
    number, content = 0, memoryview(b"")
    shapes: list[memoryview] = []
    strings: list[bytes] = []
    typed: list[tuple[int, int, Any]] = []
    for field, wire_type, value in fields.walk(raw):
        if field == STRINGS and wire_type == fields.DELIMITED:
            strings.append(bytes(value))
            if len(strings) > many_texts.FEW:
                return _many(raw, spare)
        elif field == DTYPE and wire_type == fields.VARINT:
            number = fields.signed(value, 32)
        elif field == SHAPE and wire_type == fields.DELIMITED:
            shapes.append(value)
        elif field == CONTENT and wire_type == fields.DELIMITED:
            content = value
        else:
            typed.append((field, wire_type, value))
    dtype, field, layout = tensor.kind(number)
    shape, count = read_shape(shapes)
    if not count:
        return _done(np.empty(shape, dtype), shape, 0)
    if content:
        return _done(tensor.from_content(number, content, count), shape, 0)
    values = tensor.from_values(number, strings if layout == "bytes" else _packed(typed, field, dtype, layout))
    return _filled(values, shape, count, spare)


def _many(raw: memoryview, spare: int) -> tuple[npt.NDArray[Any], int]:
    """`read` of a tensor with many strings."""
    message = many_texts.parse(raw)
    if message.dtype != _STRING:
        raise ValueError(f"there are strings, and the DataType is {message.dtype}")
    shape, count = tensor.shape_of(dim.size for dim in message.tensor_shape.dim)
    if not count:
        return _done(np.empty(shape, object), shape, 0)
    if message.tensor_content:
        return _done(tensor.from_content(_STRING, message.tensor_content, count), shape, 0)
    return _filled(tensor.from_values(_STRING, message.string_val), shape, count, spare)


def _filled(values: npt.NDArray[Any], shape: tuple[int, ...], count: int, spare: int) -> tuple[npt.NDArray[Any], int]:
    missing = max(count - len(values), 0) * values.itemsize
    if missing > spare:
        raise ValueError(f"the shape asks for {count} elements and {len(values)} were sent")
    return _done(tensor.filled(values, count), shape, missing)


def _done(values: npt.NDArray[Any], shape: tuple[int, ...], filled: int) -> tuple[npt.NDArray[Any], int]:
    values = values.reshape(shape)
    values.flags.writeable = False
    return values, filled


def read_shape(parts: Sequence[memoryview]) -> tuple[tuple[int, ...], int]:
    """(shape, number of elements) of a TensorShapeProto that came in these pieces; unknown_rank is not looked at. Raises: ValueError."""
    return tensor.shape_of(sizes(parts))


def sizes(parts: Sequence[memoryview]) -> Iterator[int]:
    """Yields the sizes of the dimensions, -1 for unknown ones."""
    for field, wire_type, dim in fields.walk(fields.joined(parts)) if parts else ():
        if field == 2 and wire_type == fields.DELIMITED:
            size = 0
            for inner, inner_type, value in fields.walk(dim):
                if inner == 1 and inner_type == fields.VARINT:
                    size = fields.signed(value)
            yield size


def _packed(
    typed: Sequence[tuple[int, int, Any]], field: int, dtype: np.dtype[Any], layout: tensor.Layout
) -> bytes | memoryview:
    """The bytes of one typed field, as if it had come packed and once."""
    parts: list[Any] = []
    width = (dtype.itemsize // (2 if layout == "pairs" else 1)) if layout in ("raw", "pairs") else 0
    loose = {0: fields.VARINT, 4: fields.FIXED32, 8: fields.FIXED64}[width]
    for number, wire_type, value in typed:
        if number != field:
            continue
        if wire_type == fields.DELIMITED:
            if width and len(value) % width:
                raise ValueError(f"field {field} has {len(value)} bytes, which is no number of values")
            if not width and len(value) and value[-1] > 127:
                raise ValueError("the last varint does not end")
            parts.append(value)
        elif wire_type == loose:
            parts.append(value if width else varints.encode_one(value))
    return fields.joined(parts) if parts else b""
