"""The part of TensorFlow's C API (tensorflow/c/c_api.h) that loads and runs a model: public, stable, and without the GIL.

TensorFlow Serving loads and runs models with the same functions below it, so the errors are the same. Python's own loader would hold
the GIL for the seconds that a graph takes to import, and every request that is being answered would wait.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any

_STRING = 24  # bytes of a TF_TString
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t


class Output(ctypes.Structure):
    """TF_Output: an operation and the number of its output."""

    _fields_ = [("operation", _POINTER), ("index", ctypes.c_int)]


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", _POINTER), ("length", _SIZE), ("deallocator", _POINTER)]


DEALLOCATOR = ctypes.CFUNCTYPE(None, _POINTER, _SIZE, _POINTER)

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "TF_NewStatus": (_POINTER, []),
    "TF_DeleteStatus": (None, [_POINTER]),
    "TF_GetCode": (ctypes.c_int, [_POINTER]),
    "TF_Message": (ctypes.c_char_p, [_POINTER]),
    "TF_NewBuffer": (_POINTER, []),
    "TF_NewBufferFromString": (_POINTER, [ctypes.c_char_p, _SIZE]),
    "TF_DeleteBuffer": (None, [_POINTER]),
    "TF_NewSessionOptions": (_POINTER, []),
    "TF_DeleteSessionOptions": (None, [_POINTER]),
    "TF_SetConfig": (None, [_POINTER, ctypes.c_char_p, _SIZE, _POINTER]),
    "TF_NewGraph": (_POINTER, []),
    "TF_DeleteGraph": (None, [_POINTER]),
    "TF_LoadLibrary": (_POINTER, [ctypes.c_char_p, _POINTER]),
    "TF_LoadSessionFromSavedModel": (
        _POINTER,
        [_POINTER, _POINTER, ctypes.c_char_p, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER],
    ),
    "TF_CloseSession": (None, [_POINTER, _POINTER]),
    "TF_DeleteSession": (None, [_POINTER, _POINTER]),
    "TF_GraphOperationByName": (_POINTER, [_POINTER, ctypes.c_char_p]),
    "TF_OperationNumOutputs": (ctypes.c_int, [_POINTER]),
    "TF_SessionRun": (
        None,
        [
            _POINTER,
            _POINTER,
            _POINTER,
            _POINTER,
            ctypes.c_int,
            _POINTER,
            _POINTER,
            ctypes.c_int,
            _POINTER,
            ctypes.c_int,
            _POINTER,
            _POINTER,
        ],
    ),
    "TF_AllocateTensor": (_POINTER, [ctypes.c_int, _POINTER, ctypes.c_int, _SIZE]),
    "TF_NewTensor": (_POINTER, [ctypes.c_int, _POINTER, ctypes.c_int, _POINTER, _SIZE, DEALLOCATOR, _POINTER]),
    "TF_DeleteTensor": (None, [_POINTER]),
    "TF_TensorType": (ctypes.c_int, [_POINTER]),
    "TF_NumDims": (ctypes.c_int, [_POINTER]),
    "TF_Dim": (ctypes.c_int64, [_POINTER, ctypes.c_int]),
    "TF_TensorByteSize": (_SIZE, [_POINTER]),
    "TF_TensorData": (_POINTER, [_POINTER]),
    "TF_StringInit": (None, [_POINTER]),
    "TF_StringCopy": (None, [_POINTER, ctypes.c_char_p, _SIZE]),
    "TF_StringGetDataPointer": (_POINTER, [_POINTER]),
    "TF_StringGetSize": (_SIZE, [_POINTER]),
    "TF_StringDealloc": (None, [_POINTER]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The functions above, of the TensorFlow that this process has. Each call gives the GIL up meanwhile."""
    return _typed(ctypes.CDLL)


@functools.cache
def quick() -> ctypes.CDLL:
    """The same functions, whose calls keep the GIL: for those that end within a microsecond, as giving it up and waiting for it takes
    longer."""
    return _typed(ctypes.PyDLL)


def _typed(kind: type[ctypes.CDLL]) -> ctypes.CDLL:
    import tensorflow as tf

    loaded = kind(str(pathlib.Path(tf.__file__).parent / "libtensorflow_cc.so.2"))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def string_size() -> int:
    """Bytes of a string's place in a tensor of strings."""
    return _STRING
