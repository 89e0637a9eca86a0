"""The names that KServe's protocol v2 has for element types, and an array's bytes as it sends them (raw_input_contents)."""

import struct
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

BYTES = "BYTES"
_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(kind): name
    for kind, name in (
        (np.bool_, "BOOL"),
        (np.uint8, "UINT8"),
        (np.uint16, "UINT16"),
        (np.uint32, "UINT32"),
        (np.uint64, "UINT64"),
        (np.int8, "INT8"),
        (np.int16, "INT16"),
        (np.int32, "INT32"),
        (np.int64, "INT64"),
        (np.float16, "FP16"),
        (np.float32, "FP32"),
        (np.float64, "FP64"),
        (ml_dtypes.bfloat16, "BF16"),
        (np.object_, BYTES),
    )
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH = struct.Struct("<I")


def name_of(dtype: np.dtype[Any]) -> str:
    """The protocol's name of a dtype, such as "FP32". Raises: ValueError for a type that the protocol has not."""
    name = _NAMES.get(dtype)
    if name is None:
        raise ValueError(f"the protocol has no type for {dtype}")
    return name


def text(name: str) -> str:
    """The dtype as NumPy names it, or "string", for people; the protocol's own name where no request can have it."""
    dtype = _DTYPES.get(name)
    if dtype is None:
        return name
    return "string" if dtype.kind == "O" else dtype.name


def of_text(dtype: str) -> str:
    """The protocol's name of a dtype as `text` writes it, such as "FP32". Raises: ValueError."""
    matching = next((name for name in _DTYPES if text(name) == dtype), None)
    if matching is None:
        raise ValueError(f"the protocol has no type for {dtype}")
    return matching


def content(array: npt.NDArray[Any]) -> bytes | memoryview:
    """The bytes of an array, little endian; of texts, which are bytes in an object array, each with its length in four bytes before it."""
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return b"".join(part for value in array.ravel().tolist() for part in (_LENGTH.pack(len(value)), value))


def array(name: str, shape: tuple[int, ...], raw: memoryview) -> npt.NDArray[Any]:
    """The array of a type's name, a shape and its bytes; read-only, and it lies in `raw`. Raises: ValueError where they do not fit."""
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise ValueError(f"there is no type {name!r}")
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape {list(shape)} has a negative size")
    count = 1
    for size in shape:
        count *= size
    if dtype.kind == "O":
        values = list(_texts(raw))
        if len(values) != count:
            raise ValueError(f"{len(values)} texts were sent, and the shape asks for {count}")
        elements = np.empty(count, object)
        elements[:] = values
    else:
        if len(raw) != count * dtype.itemsize:
            raise ValueError(f"{len(raw)} bytes were sent, and the shape asks for {count * dtype.itemsize}")
        elements = np.frombuffer(raw, dtype)
    elements = elements.reshape(shape)
    elements.flags.writeable = False
    return elements


def _texts(raw: memoryview) -> Iterator[bytes]:
    place = 0
    while place < len(raw):
        if place + _LENGTH.size > len(raw):
            raise ValueError("a text's length is cut off")
        (length,) = _LENGTH.unpack_from(raw, place)
        place += _LENGTH.size + length
        if place > len(raw):
            raise ValueError("a text is cut off")
        yield bytes(raw[place - length : place])
