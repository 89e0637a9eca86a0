"""Converts NumPy arrays to TF_Tensors and back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tftrt_tools.base.wire import tensor as wire
from tftrt_tools.servers.serving.local import c_api
from tftrt_tools.servers.serving.local.servable import Array

_STRING_TYPE = 7
_alive: dict[int, Any] = {}  # address: the memory of a tensor of strings, until TensorFlow releases it


def new(array: Array) -> int:
    """A TF_Tensor with a copy of `array`; TF_DeleteTensor frees it. Raises: ValueError for a dtype that TensorFlow does not have."""
    number = wire.NUMBERS.get(array.dtype)
    if number is None:
        raise ValueError(f"no tensor of dtype {array.dtype}")
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    if number == _STRING_TYPE:
        return _new_strings(array, shape)
    library, size = c_api.quick(), array.nbytes
    tensor: int = library.TF_AllocateTensor(number, shape, array.ndim, size)
    if size:
        place: Any = (ctypes.c_char * size).from_address(library.TF_TensorData(tensor))
        # NumPy gives the GIL up while it copies.
        np.frombuffer(place, array.dtype).reshape(array.shape)[...] = array
    return tensor


def _new_strings(array: Array, shape: ctypes.Array[ctypes.c_int64]) -> int:
    library, size = c_api.library(), c_api.string_size()
    memory = ctypes.create_string_buffer(max(array.size, 1) * size)
    start = ctypes.addressof(memory)
    for index, value in enumerate(array.ravel()):
        place = start + index * size
        library.TF_StringInit(place)
        library.TF_StringCopy(place, value, len(value))
    _alive[start] = memory
    tensor: int = library.TF_NewTensor(_STRING_TYPE, shape, array.ndim, start, array.size * size, _release, None)
    return tensor


@c_api.DEALLOCATOR  # type: ignore[untyped-decorator]
def _release(start: int, length: int, _: object) -> None:
    """Called by TensorFlow with the last reference to a tensor of strings, from whichever thread drops it."""
    size = c_api.string_size()
    for place in range(start, start + (length or 0), size):
        c_api.library().TF_StringDealloc(place)
    _alive.pop(start, None)


def read(tensor: int) -> Array:
    """The array of a TF_Tensor, which is handed over: the array frees it. Raises: ValueError for a dtype that NumPy does not have."""
    library = c_api.quick()
    number = library.TF_TensorType(tensor)
    shape = tuple(library.TF_Dim(tensor, axis) for axis in range(library.TF_NumDims(tensor)))
    try:
        dtype = wire.dtype_of(number)
    except ValueError:
        library.TF_DeleteTensor(tensor)
        raise
    if number == _STRING_TYPE:
        try:
            return _strings(tensor, shape)
        finally:
            library.TF_DeleteTensor(tensor)
    size = library.TF_TensorByteSize(tensor)
    if not size:
        library.TF_DeleteTensor(tensor)
        return np.zeros(shape, dtype)
    memory = (ctypes.c_char * size).from_address(library.TF_TensorData(tensor))
    memory.owner = _Owner(tensor)  # kept by the array through its base
    return np.frombuffer(memory, dtype).reshape(shape)


class _Owner:
    """Deletes a TF_Tensor when nothing refers to it any more."""

    def __init__(self, tensor: int) -> None:
        self._tensor, self._delete = tensor, c_api.quick().TF_DeleteTensor

    def __del__(self) -> None:
        self._delete(self._tensor)


def _strings(tensor: int, shape: Sequence[int]) -> Array:
    library, size = c_api.library(), c_api.string_size()
    out = np.empty(shape, object)
    flat, start = out.reshape(-1), library.TF_TensorData(tensor)
    for index in range(flat.size):
        place = start + index * size
        flat[index] = ctypes.string_at(library.TF_StringGetDataPointer(place), library.TF_StringGetSize(place))
    return out
