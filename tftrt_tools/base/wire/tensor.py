"""TensorProto bytes to NumPy arrays and back, without TensorFlow and without a Python loop over numbers.

Field numbers and their dtypes: tensorflow/core/framework/{tensor,tensor_shape,types}.proto. A typed field (float_val and the like) is
packed, so that its bytes are the array's own for floats, and varints for integers. A field that is shorter than the shape asks is filled
up with its last value, an empty one with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tftrt_tools.base.wire import fields, many_texts, varints

if TYPE_CHECKING:
    from tensorflow.core.framework import tensor_pb2


Layout = Literal["raw", "int", "bits", "pairs", "bytes"]
# DataType number: (dtype, number of the typed field, how values lie in it). "raw": as in memory; "int": varints; "bits": varints of the
# 16-bit pattern; "pairs": real and imaginary part in turn; "bytes": one field for each string.
_KINDS: dict[int, tuple[Any, int, Layout]] = {
    1: (np.float32, 5, "raw"),
    2: (np.float64, 6, "raw"),
    3: (np.int32, 7, "int"),
    4: (np.uint8, 7, "int"),
    5: (np.int16, 7, "int"),
    6: (np.int8, 7, "int"),
    7: (np.object_, 8, "bytes"),
    8: (np.complex64, 9, "pairs"),
    9: (np.int64, 10, "int"),
    10: (np.bool_, 11, "int"),
    14: (ml_dtypes.bfloat16, 13, "bits"),
    17: (np.uint16, 7, "int"),
    18: (np.complex128, 12, "pairs"),
    19: (np.float16, 13, "bits"),
    22: (np.uint32, 16, "int"),
    23: (np.uint64, 17, "int"),
}
NUMBERS = {np.dtype(kind[0]): number for number, kind in _KINDS.items()}
_CONTENT, _SHAPE, _DTYPE = 4, 2, 1
_LARGEST = 1 << 40  # elements; no filled tensor has a shape with more


def dtype_of(number: int) -> np.dtype[Any]:
    """numpy.dtype of a DataType number; object for strings. Raises: ValueError for dtypes that no tensor of a request has."""
    return kind(number)[0]


def dtype_text(number: int) -> str:
    """Such as "float32" or "string", for people; "DataType 20" for one that no tensor of a request has."""
    try:
        dtype = dtype_of(number)
    except ValueError:
        return f"DataType {number}"
    return "string" if dtype.kind == "O" else dtype.name


def decode(message: tensor_pb2.TensorProto) -> npt.NDArray[Any]:
    """The array of a parsed TensorProto.

    Args: message: tensorflow TensorProto.
    Returns: ndarray of message.tensor_shape, read-only where it lies in the message's own bytes; strings are bytes in an object array.
    Raises: ValueError where dtype, shape and content do not go together.
    """
    number = message.dtype
    dtype, field, layout = kind(number)
    # unknown_rank is not looked at, as in TensorFlow.
    shape, count = shape_of(dim.size for dim in message.tensor_shape.dim)
    if not count:
        return np.empty(shape, dtype)
    if message.tensor_content:
        return from_content(number, message.tensor_content, count).reshape(shape)
    values = message.string_val if layout == "bytes" else _packed(message, field)
    try:
        return filled(from_values(number, values), count).reshape(shape)
    except MemoryError:
        raise ValueError("there is no memory for as many elements as the shape asks for") from None


def kind(number: int) -> tuple[np.dtype[Any], int, Layout]:
    """(dtype, number of the typed field, how values lie in it) of a DataType. Raises: ValueError for one that no request has."""
    if number not in _KINDS:
        raise ValueError(f"no tensor of DataType {number} can be sent")
    dtype, field, layout = _KINDS[number]
    return np.dtype(dtype), field, layout


def shape_of(sizes: Iterable[int]) -> tuple[tuple[int, ...], int]:
    """(shape, number of elements). Raises: ValueError for shapes that no tensor has."""
    shape = tuple(sizes)
    if any(size < 0 for size in shape) or len(shape) > 254:
        raise ValueError("a size is negative, or there are too many dimensions")
    count = math.prod(shape)
    if count > _LARGEST:
        raise ValueError("the shape asks for more elements than there can be")
    return shape, count


def from_content(number: int, content: bytes | memoryview, count: int) -> npt.NDArray[Any]:
    """1-D array of `count` elements, more than none, from tensor_content, in place. Raises: ValueError."""
    dtype, _, layout = kind(number)
    if layout == "bytes":
        return _string_content(content, count)
    if len(content) != count * dtype.itemsize:
        raise ValueError(f"tensor_content has {len(content)} bytes, the shape needs {count * dtype.itemsize}")
    if dtype.kind == "b" and np.frombuffer(content, np.uint8).max() > 1:
        raise ValueError("tensor_content has a bool that is neither 0 nor 1")
    return np.frombuffer(content, dtype)


def from_values(number: int, values: Sequence[bytes] | bytes | memoryview) -> npt.NDArray[Any]:
    """1-D array of the values in a typed field. values: sequence of bytes for strings, else the field's packed bytes. Raises:
    ValueError."""
    dtype, _, layout = kind(number)
    if layout == "bytes" or not isinstance(values, (bytes, memoryview)):
        return np.array([None, *values], object)[1:]
    return _values(values, dtype, layout)


def _packed(message: tensor_pb2.TensorProto, field: int) -> bytes | memoryview:
    """The bytes of one typed field. The parser has checked the message, so its serialized form is valid, with each field packed and only
    once; reading the values from the message would make a Python object of each."""
    written = fields.walk(memoryview(message.SerializeToString()))
    return next(
        (value for number, wire_type, value in written if number == field and wire_type == fields.DELIMITED), b""
    )


def _values(payload: bytes | memoryview, dtype: np.dtype[Any], layout: Layout) -> npt.NDArray[Any]:
    if layout in ("raw", "pairs"):
        return np.frombuffer(payload, dtype, len(payload) // dtype.itemsize)  # half a complex number is not looked at
    decoded = varints.decode(payload)
    if layout == "bits":
        return decoded.astype(np.uint16).view(dtype)
    return decoded.astype(bool) if dtype.kind == "b" else decoded.astype(dtype)


def filled(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """`values` (1-D) at the length `count`, as TensorFlow reads a typed field: missing ones repeat the last one, or are zeros or empty
    strings if there is none; values beyond `count` are dropped."""
    if len(values) >= count:
        return values[:count]
    if not len(values):
        return np.full(count, b"", object) if values.dtype == object else np.zeros(count, values.dtype)
    out = np.empty(count, values.dtype)
    out[: len(values)] = values
    out[len(values) :] = values[-1]
    return out


def _string_content(content: bytes | memoryview, count: int) -> npt.NDArray[Any]:
    """TensorFlow's own form for strings: all lengths as varints, then all bytes."""
    lengths: list[int] = []
    position = 0
    for _ in range(count):
        length, position = fields.varint(content, position)
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise ValueError("tensor_content has not the bytes that its lengths say")
    out = np.empty(count, object)
    for index, length in enumerate(lengths):
        out[index] = bytes(content[position : position + length])
        position += length
    return out


def encode(array: npt.ArrayLike, content: bool = False) -> list[Any]:
    """TensorProto bytes of an array.

    Args: array: ndarray; object or bytes dtypes are strings. content: as tensor_content instead of the typed field (never for strings).
    Returns: list of bytes-like parts, to be joined. Raises: ValueError for a dtype that has no DataType.
    """
    array = np.asarray(array)
    if array.dtype.kind in "SU":
        array = np.char.encode(array) if array.dtype.kind == "U" else array
        array = array.astype(object)
    number = NUMBERS.get(array.dtype)
    if number is None:
        raise ValueError(f"no TensorProto for dtype {array.dtype}")
    _, field, layout = _KINDS[number]
    dims = b"".join(
        b"".join(varints.delimited(2, b"\x08" + varints.encode_one(size) if size else b"")) for size in array.shape
    )
    parts = [b"\x08" + varints.encode_one(number), *varints.delimited(_SHAPE, dims)]
    if layout == "bytes":
        values = [value if isinstance(value, bytes) else str(value).encode() for value in array.ravel().tolist()]
        if len(values) > many_texts.FEW:
            return [*parts, many_texts.write(values)]
        for value in values:
            parts += varints.delimited(8, value)
        return parts
    if not array.size:
        return parts
    flat = np.ascontiguousarray(array).reshape(-1)
    payload: bytes | memoryview
    if content or layout in ("raw", "pairs"):
        payload = flat.view(np.uint8).data
    else:
        payload = varints.encode(flat.view(np.uint16) if layout == "bits" else flat)
    return parts + varints.delimited(_CONTENT if content else field, payload)
